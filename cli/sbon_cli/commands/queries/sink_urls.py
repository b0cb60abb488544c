"""Sinks by the value of ``--to``, a file by its path, any other sink by a URL; and options of any connector."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import click
import msgspec

from sbon.model import SinkSpec

_SCHEME = re.compile(r"^([a-z][a-z0-9_-]{0,62})(\+[a-z]+)?:")
_DATABASES = ("postgres", "postgresql")


def sink_of(to: str, format_: str | None, options: tuple[str, ...], *, failover: bool = False) -> SinkSpec:
    """Return the sink; a relative path is made absolute from here. Raises a usage error.

    ``postgres://HOST/DATABASE/TABLE``, ``http://HOST/PATH``, ``stream:NAME``, ``blackhole:``, ``file:PATH``, and ``NAME:...`` for
    any other sink, whose option ``url`` it becomes.
    """
    return msgspec.structs.replace(_sink_of(to, format_, options), failover=failover)


def _sink_of(to: str, format_: str | None, options: tuple[str, ...]) -> SinkSpec:
    chosen = options_of(options)
    if format_ is not None:
        chosen["format"] = format_
    match = _SCHEME.match(to)
    if match is None or match[1] == "file":
        path = unquote(urlsplit(to).path) if match is not None else to
        return SinkSpec(kind="file", options={"path": str(Path(path).absolute()), **chosen})
    scheme = match[1]
    if scheme in _DATABASES:
        return SinkSpec(kind="postgres", options={**_table(to), **chosen})
    if scheme in ("http", "https"):
        return SinkSpec(kind="http", options={"url": to, **chosen})
    rest = to[match.end() :]
    if scheme == "stream":
        return SinkSpec(kind="stream", options={"stream": rest, **chosen})
    return SinkSpec(kind=scheme, options={"url": to, **chosen} if rest else chosen)


def _table(to: str) -> dict[str, Any]:
    try:
        address = urlsplit(to)
    except ValueError as error:
        raise click.UsageError(f"--to: no URL: {error}") from error
    database, _, table = address.path.strip("/").partition("/")
    if not database or not table or "/" in table:
        raise click.UsageError("--to: a database and a table are to be named: postgres://USER@HOST:PORT/DATABASE/TABLE")
    return {"url": urlunsplit((address.scheme, address.netloc, f"/{database}", address.query, "")), "table": unquote(table)}


def options_of(texts: tuple[str, ...]) -> dict[str, Any]:
    """Return the options of a connector by ``KEY=VALUE``.

    Raises a usage error for an option that is not KEY=VALUE, and for a repeated key.
    """
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
