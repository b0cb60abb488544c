"""Checks of callers that need round trips: a bounded number at once, and a share of that for each caller."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from sbon_protocol.errors import SbonError

SHARE = 4
"""A caller may have one of so many checks under way, so that it cannot keep the others from theirs."""
CODES = {"control.checks": "too-many-checks", "migration.checks": "too-many-moves"}
"""Codes of refusals, by setting."""


class CallerChecks:
    """The checks under way: at most ``most``, which is the setting of that name."""

    def __init__(self, most: int, setting: str) -> None:
        self._most, self._setting = most, setting
        self._of: Counter[str] = Counter()

    @contextmanager
    def one(self, caller: str, where: str) -> Iterator[None]:
        """Count a check until the end of the block. Raises the setting's code: the caller tries again."""
        share = max(1, self._most // SHARE)
        if self._of.total() >= self._most or self._of[caller] >= share:
            message = f"{self._of.total()} registers are being read, {self._of[caller]} of them for {caller}"
            code = CODES.get(self._setting, "too-many-checks")
            raise SbonError(code, message, where=where, hint=f"try again later, or raise {self._setting}")
        self._of[caller] += 1
        try:
            yield
        finally:
            self._of[caller] -= 1
            if not self._of[caller]:
                del self._of[caller]
