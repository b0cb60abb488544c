"""Refusals of texts that exceed a limit of planning; each names the setting."""

from __future__ import annotations

from sbon_node.planning.sql.settings import QuerySettings
from sbon_protocol.errors import SbonError

_SPLIT = "split the query into smaller ones, or have"


def too_long(settings: QuerySettings) -> SbonError:
    message = f"planning takes more than {settings.plan_cpu_s:g} s of processor time"
    return SbonError("planning-too-long", message, where="sql", hint=f"{_SPLIT} query.plan_cpu_s raised on this node")


def too_large(settings: QuerySettings) -> SbonError:
    message = f"planning takes more than {settings.planner_memory_mb} MB of memory"
    return SbonError("planning-too-large", message, where="sql", hint=f"{_SPLIT} query.planner_memory_mb raised on this node")


def plan_too_large(size: int, settings: QuerySettings) -> SbonError:
    message = f"the plan takes {size} bytes, {settings.max_plan_bytes} are allowed"
    return SbonError("planning-too-large", message, where="sql", hint=f"{_SPLIT} query.max_plan_bytes raised on this node")


def too_deep(settings: QuerySettings) -> SbonError:
    message = f"it is nested too deeply to be planned; query.max_depth allows {settings.max_depth} expressions inside one another"
    return SbonError("too-deep", message, where="sql", hint="simplify it")


def process_lost() -> SbonError:
    message = "the planner process ended twice while it worked on this text"
    return SbonError("planner-lost", message, where="sql", hint="simplify it; the node's log says how the process ended")


def too_many(client: str, settings: QuerySettings) -> SbonError:
    message = f"{settings.plans_per_client} texts of {client or 'this client'} are being planned already"
    return SbonError("too-many-plans", message, hint="wait for them; query.plans_per_client sets the limit")


def too_starved(spent_s: float, within_s: float) -> SbonError:
    message = f"the planner process got {spent_s:.1f} s of processor time in {within_s:g} s: this machine is overloaded"
    return SbonError("planner-busy", message, hint="try again later, or submit to another node")


def too_busy(settings: QuerySettings) -> SbonError:
    message = f"{settings.max_plans} texts are being planned already"
    return SbonError("planner-busy", message, hint="try again later; query.max_plans sets the limit")
