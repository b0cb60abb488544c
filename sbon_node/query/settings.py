"""Knobs of planning: bounds on what a user or a peer may send, and when an operator reads in partitions."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class QuerySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long and deep a query may be, and where the fast reader begins."""

    max_text: Annotated[
        int, Meta(ge=100, le=65_000, description="characters of a query; longer ones are refused before they are parsed")
    ] = 20_000
    partitioned_rows_s: Annotated[
        float,
        Meta(
            gt=0, le=1e9, description="input rate from which an operator reads in partitions; rows a second; latency rises there"
        ),
    ] = 15_000.0
    ahead_slack_s: Annotated[
        float,
        Meta(
            ge=0,
            le=1e9,
            description="seconds of event time an input of a join or union may be ahead of the others, beyond what their windows "
            "and delays make of it; lower it where operators are short of memory, raise it where rows wait for quiet streams",
        ),
    ] = 600.0
    max_relations: Annotated[
        int, Meta(ge=1, le=64, description="streams and sub-queries one query may read, each counted as often as it is written")
    ] = 16
    decompose_below: Annotated[
        float,
        Meta(
            gt=0,
            le=1,
            description="an aggregate is split into partial ones where the links then carry less than this share of the bytes",
        ),
    ] = 0.8
