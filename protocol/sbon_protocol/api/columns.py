"""Columns of a stream, and a schema as a row of them."""

from sbon_protocol.api.shown import Shown


class Column(Shown, frozen=True):
    """A column; ``type`` is a Spark SQL type in lower case, as in DDL.

    Examples: ``bigint``, ``timestamp``, ``decimal(10,2)``.
    """

    name: str
    type: str


Schema = tuple[Column, ...]
