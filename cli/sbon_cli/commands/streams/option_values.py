"""``--option KEY=VALUE``: options of a connector."""

from __future__ import annotations

from typing import Any

import click
import msgspec


def options_of(texts: tuple[str, ...]) -> dict[str, Any]:
    """Raise a usage error for an option that is not KEY=VALUE, and for a repeated key."""
    chosen: dict[str, Any] = {}
    for option in texts:
        key, separator, value = option.partition("=")
        if not separator:
            raise click.UsageError(f"--option: {option!r} is not KEY=VALUE")
        if key.strip() in chosen:
            raise click.UsageError(f"--option: {key.strip()} is given twice")
        chosen[key.strip()] = _value(value)
    return chosen


def _value(text: str) -> Any:
    """Return a number, true, false or JSON as a value, anything else as text."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
