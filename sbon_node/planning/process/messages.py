"""Messages between a node and its planner process: one request, one reply.

Each message is MessagePack, preceded by its length.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import BinaryIO

import msgspec

from sbon_node.model.measurements import Measured
from sbon_node.model.running_computation import RunningComputation
from sbon_node.planning.sql.settings import QuerySettings
from sbon_protocol.api.catalogue import CatalogEntry
from sbon_protocol.api.columns import Schema
from sbon_protocol.api.operators import OnError, StateChoice
from sbon_protocol.api.plan import Decompose, ProposedPlan
from sbon_protocol.errors import SbonError

LENGTH_BYTES = 4


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """An :class:`SbonError` as a message; a ``broken`` process must be replaced."""

    code: str
    message: str
    where: str = ""
    hint: str = ""
    details: tuple[str, ...] = ()
    broken: bool = False

    @staticmethod
    def of(error: SbonError, *, broken: bool = False) -> Refused:
        code, message, details = error.code, error.message, tuple(error.details)
        return Refused(code=code, message=message, where=error.where, hint=error.hint, details=details, broken=broken)

    def error(self) -> SbonError:
        return SbonError(self.code, self.message, where=self.where, hint=self.hint, details=self.details)


class PlanRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A text to plan over a catalogue; as in :func:`sbon_node.planning.sql.planner.plan_query`."""

    text: str
    catalog: Mapping[str, CatalogEntry]
    query: str
    decompose: Decompose = "auto"
    join_window_ms: int | None = None
    on_error: OnError = "fail"
    state_provider: StateChoice | None = None
    since_ms: int | None = None
    offers: tuple[RunningComputation, ...] = ()


class PlanText(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Begin a plan. The catalogue of ``request`` has the streams that the text may name, ``others`` the names of the rest."""

    plan: int
    request: PlanRequest
    others: tuple[str, ...]
    settings: QuerySettings


class Continue(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Continue a plan with the answer to its request."""

    plan: int
    schema: Schema | None = None
    measured: Measured | None = None
    refused: Refused | None = None


class Forget(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Forget a plan that no caller waits for."""

    plan: int


class CheckFragment(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Check a fragment that a peer sent against the allow-list."""

    fragment: str
    inputs: int
    settings: QuerySettings


class AskSchema(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Request of a plan for the engine's analysis of a fragment."""

    fragment: str
    inputs: tuple[Schema, ...]


class AskMeasured(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Request of a plan for measurements of sources, with their nodes, and of operators by signature, and for samples of the
    sources' ``columns``.
    """

    sources: dict[str, str]
    signatures: tuple[str, ...]
    columns: dict[str, tuple[str, ...]] = {}


class Planned(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    plan: ProposedPlan


class Done(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The fragment is allowed, or the plan forgotten."""


Request = PlanText | Continue | Forget | CheckFragment
WorkerRequest = AskSchema | AskMeasured
Reply = AskSchema | AskMeasured | Planned | Refused | Done

_REQUEST = msgspec.msgpack.Decoder(Request)
_REPLY = msgspec.msgpack.Decoder(Reply)
_ENCODER = msgspec.msgpack.Encoder()


def framed(message: object) -> bytes:
    """Return the bytes of a message, preceded by its length."""
    body = _ENCODER.encode(message)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def read_request(stream: BinaryIO) -> Request | None:
    """Return the next request; None at the end of the stream."""
    head = stream.read(LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        return None
    body = stream.read(int.from_bytes(head, "big"))
    request: Request = _REQUEST.decode(body)
    return request


def decode_reply(body: bytes) -> Reply:
    reply: Reply = _REPLY.decode(body)
    return reply


# -- Refusals of texts that exceed a limit of planning; each names the setting -----------------------------------------

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
