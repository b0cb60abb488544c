"""A placement: the host of each operator, and the reasons."""

from sbon_protocol.api.shown import Shown


class Candidate(Shown, frozen=True, kw_only=True):
    """A node considered for an operator: its answer, and its distance to the virtual coordinate (ms, load included).

    ``accepted`` unless it was asked for capacity and refused. ``predicted`` and ``measured`` are the least cost of the whole
    query with the operator there, by estimated and by measured latencies; None if a strategy uses neither.
    """

    node: str
    distance_ms: float
    accepted: bool
    reason: str = ""
    predicted: float | None = None
    measured: float | None = None


class Assignment(Shown, frozen=True, kw_only=True):
    """An operator's host with the reason.

    ``virtual`` is its virtual coordinate in the latency dimensions, if the strategy has it.
    """

    operator: str
    node: str
    reason: str
    virtual: tuple[float, ...] = ()
    candidates: tuple[Candidate, ...] = ()


class Placement(Shown, frozen=True, kw_only=True):
    """A placement with its predicted costs.

    ``usage`` is the predicted network usage, the sum over edges of rate x one-way latency, in bytes in transit; ``delay_ms`` the
    predicted longest path from a producer to a consumer; ``probes`` counts nodes asked and pairs measured.

    ``predicted`` is the usage by the estimates before any measurement for this placement, None if there was no measurement.
    ``discoveries`` counts searches for nodes with capacity. ``reason`` says why this strategy was chosen, if the user left that
    open.
    """

    strategy: str
    assignments: tuple[Assignment, ...]
    usage: float
    probes: int = 0
    delay_ms: float = 0.0
    predicted: float | None = None
    discoveries: int = 0
    reason: str = ""

    def hosts(self) -> dict[str, str]:
        return {a.operator: a.node for a in self.assignments}
