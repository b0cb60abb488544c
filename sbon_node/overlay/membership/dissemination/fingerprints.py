"""Fingerprints of a membership table, to find the buckets that differ between two tables. Pure.

Updates are made entry by entry. An entry is a member that is not gone; a suspect counts as alive. Its bucket is the first byte of
the BLAKE2b digest (4 bytes) of its name; a bucket's fingerprint is the exclusive or of the digests of its entries'
``name|incarnation|state|coordinate version``. With fewer buckets, a power of two, bucket i unites those whose number is i modulo
that power. Tombstones are left out: a node that joined later has none, and needs none.
"""

from __future__ import annotations

from hashlib import blake2b

from sbon_protocol.messages import Member

MOST_BUCKETS = 256
BUCKET_MEMBERS = 8
"""Members in a bucket, at most, as long as there are fewer than 2,048."""


def bucket_of(name: str) -> int:
    """Return the bucket of a name among the greatest number of buckets."""
    return blake2b(name.encode(), digest_size=4).digest()[0]


class Fingerprints:
    """Fingerprints of a table. Changes are noted, and computed on demand: most entries change more often than that."""

    def __init__(self) -> None:
        self._buckets = [0] * MOST_BUCKETS
        self._names: list[dict[str, None]] = [{} for _ in range(MOST_BUCKETS)]
        self._at: dict[str, int] = {}
        self._entries: dict[str, int] = {}
        self._changed: dict[str, Member] = {}
        self._folded: dict[int, bytes] = {}

    def put(self, member: Member) -> None:
        """Note that an entry of the table, a tombstone perhaps, is new or has changed."""
        if member.name not in self._at:
            at = self._at[member.name] = bucket_of(member.name)
            self._names[at][member.name] = None
        self._changed[member.name] = member

    def drop(self, name: str) -> None:
        self._changed.pop(name, None)
        at = self._at.pop(name)
        del self._names[at][name]
        self._buckets[at] ^= self._entries.pop(name, 0)
        self._folded.clear()

    def _reckon(self) -> None:
        for name, member in self._changed.items():
            before = self._entries.pop(name, 0)
            entry = 0
            if member.state not in ("dead", "left"):
                self._entries[name] = entry = _digest(member)
            if entry != before:
                self._buckets[self._at[name]] ^= before ^ entry
                self._folded.clear()
        self._changed.clear()

    def names(self, bucket: int, of: int) -> list[str]:
        """Return the names of all entries, tombstones included, in one of ``of`` buckets."""
        return [name for at in range(bucket, MOST_BUCKETS, of) for name in self._names[at]]

    def fold(self, of: int) -> bytes:
        """Return ``of`` fingerprints, a power of two, of 4 bytes each, big-endian."""
        self._reckon()
        if of not in self._folded:
            folded = self._buckets
            while len(folded) > of:
                half = len(folded) // 2
                folded = [a ^ b for a, b in zip(folded[:half], folded[half:], strict=True)]
            self._folded[of] = b"".join([value.to_bytes(4, "big") for value in folded])
        return self._folded[of]

    def digest(self) -> bytes:
        """Return fingerprints of as many buckets as suit the number of entries."""
        self._reckon()
        of = 1
        while of < MOST_BUCKETS and of * BUCKET_MEMBERS < len(self._entries):
            of *= 2
        return self.fold(of)

    def differing(self, other: bytes) -> list[int]:
        """Return the buckets that differ from these fingerprints, whose number must be a power of two up to 256."""
        own = self.fold(len(other) // 4)
        if own == other:
            return []
        return [at // 4 for at in range(0, len(other), 4) if own[at : at + 4] != other[at : at + 4]]


def well_formed(fingerprints: bytes) -> bool:
    """Return whether they have a valid number of buckets."""
    of, rest = divmod(len(fingerprints), 4)
    return rest == 0 and 1 <= of <= MOST_BUCKETS and of & (of - 1) == 0


def _digest(member: Member) -> int:
    state = "alive" if member.state == "suspect" else member.state
    entry = f"{member.name}|{member.incarnation}|{state}|{member.coordinate_version}"
    return int.from_bytes(blake2b(entry.encode(), digest_size=4).digest(), "big")
