"""Times as users read them. Without the event loop, so that commands start quickly."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def utc_text(at_ms: int) -> str:
    """Return a time to the second; in milliseconds before the year 1 and after 9999, where a delay may lead."""
    try:
        return f"{_EPOCH + timedelta(milliseconds=at_ms):%Y-%m-%d %H:%M:%S} UTC"
    except OverflowError:
        return f"{at_ms} ms"
