"""How many examples Hypothesis draws."""

from __future__ import annotations

from hypothesis import settings


def examples(most: int) -> int:
    """Return ``most`` where all tests run, else a third: for tests that take seconds, and whose planted bugs a third finds."""
    return most if settings.get_current_profile_name() == "all" else most // 3
