"""Token buckets that limit each client's requests. Pure: the time is an argument."""

from __future__ import annotations


class Buckets:
    """One bucket for each client, of at most ``burst`` tokens, filled with ``rate_s`` tokens a second.

    At most ``most`` clients are remembered. The client with the oldest request is forgotten first; it then begins with a full
    bucket.
    """

    def __init__(self, rate_s: float, burst: int, most: int) -> None:
        self._rate_s, self._burst, self._most = rate_s, burst, most
        self._levels: dict[str, tuple[float, float]] = {}
        """Tokens and the time of their count; the newest callers are at the end."""

    def __len__(self) -> int:
        return len(self._levels)

    def take(self, client: str, now: float) -> float:
        """Take a token; return 0, or the seconds until there is a token."""
        level, then = self._levels.pop(client, (float(self._burst), now))
        level = min(float(self._burst), level + (now - then) * self._rate_s)
        wait_s = 0.0 if level >= 1 else (1 - level) / self._rate_s
        self._levels[client] = (level - 1 if level >= 1 else level, now)
        while len(self._levels) > self._most:
            del self._levels[next(iter(self._levels))]
        return wait_s
