"""Knobs of planning: bounds on texts of users and peers, and on the cost of planning them; when operators read in partitions."""

from typing import Annotated

import msgspec
from msgspec import Meta

from sbon_protocol.api.durability import Durability
from sbon_protocol.api.operators import StateChoice, StateProvider


class QuerySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits on the length and depth of a query, and the rate for the fast reader."""

    max_text: Annotated[int, Meta(ge=100, le=65_000)] = 20_000
    """characters of a query; longer ones are refused before they are parsed"""
    max_depth: Annotated[int, Meta(ge=10, le=200)] = 100
    """expressions inside one another, in queries and in fragments that peers send; a chain of AND or of OR counts once"""
    max_brackets: Annotated[int, Meta(ge=8, le=64)] = 32
    """brackets inside one another, of queries and of fragments that peers send"""
    plan_cpu_s: Annotated[float, Meta(gt=0, le=600)] = 3.0
    """seconds of processor time that planning one query, or checking one fragment, may take"""
    max_plan_bytes: Annotated[int, Meta(ge=10_000, le=2**26)] = 2 * 2**20
    """bytes of a plan; a query whose plan is larger is refused"""
    planner_memory_mb: Annotated[int, Meta(ge=64, le=65_536)] = 512
    """memory of the process that plans, in MB; a query that needs more is refused"""
    plans_per_client: Annotated[int, Meta(ge=1, le=1024)] = 16
    """queries and fragments that are planned or wait to be, of one client address or peer"""
    max_plans: Annotated[int, Meta(ge=1, le=4096)] = 128
    """queries and fragments that are planned or wait to be, in all"""
    planner_idle_s: Annotated[float, Meta(gt=0, le=1e6)] = 600.0
    """seconds without a query after which the process that plans is ended"""
    max_growth: Annotated[int, Meta(ge=1, le=1_000_000)] = 1000
    """largest factor by which functions such as repeat and concat may lengthen the values of a row, nested and over all
    columns; lower it if engines are short of memory"""
    partitioned_rows_s: Annotated[float, Meta(gt=0, le=1e9)] = 15_000.0
    """input rate from which an operator reads in partitions; rows a second; latency rises there; files at full speed are read
    so in any case"""
    ahead_slack_s: Annotated[float, Meta(ge=0, le=1e9)] = 600.0
    """seconds of event time an input of a join or union may be ahead of the others, beyond their windows and delays; lower it
    if operators are short of memory, raise it if rows wait for quiet streams"""
    max_relations: Annotated[int, Meta(ge=1, le=64)] = 16
    """streams and sub-queries one query may read, each counted at every occurrence"""
    state_provider: StateChoice = "auto"
    """where operators keep their state: hdfs is the engine's heap, and faster for small state; rocksdb is for state that does
    not fit there; auto decides for each operator; a query can say (--state-provider)"""
    rocksdb_from_mb: Annotated[float, Meta(ge=0, le=1e9)] = 128.0
    """expected state of an operator from which auto takes rocksdb; megabytes; raise it with engine.heap_mb"""
    durability: Durability = "local"
    """durability of queries that this node accepts and that name none: local keeps an operator's state at its host,
    replicated at a backup node, too, hot lets the backup run it, too; a query can say (--durability)"""
    decompose_below: Annotated[float, Meta(gt=0, le=1)] = 0.8
    """an aggregate is decomposed into partial ones if the links then carry less than this share of the bytes"""

    def provider_for(self, state_mb: float) -> StateProvider:
        """Return the state provider of an operator that is expected to keep so many megabytes."""
        if self.state_provider != "auto":
            return self.state_provider
        return "rocksdb" if state_mb >= self.rocksdb_from_mb else "hdfs"
