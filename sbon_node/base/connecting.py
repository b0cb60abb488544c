"""Failures to connect, in the system's own words."""

import os
import re

_NUMBER = re.compile(r"\[Errno -?\d+\] ")


def reason_of(error: BaseException) -> str:
    """Return why a connection failed, without the addresses and numbers that libraries add; empty for a timeout."""
    text, number = str(getattr(error, "strerror", "") or error), getattr(error, "errno", None)
    return os.strerror(number) if number and text.startswith("Connect call failed") else _NUMBER.sub("", text)
