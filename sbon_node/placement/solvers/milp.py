"""The exact optimum as an integer program, solved by HiGHS (Huangfu, Hall, 2018).

It serves capacities, bounds on delay, objectives with delay, and queries that are not trees.

x[o, h] says that operator o is at host h, y[l, h, g] that link l runs from h to g; the objective is a sum over both. For each
link sum_g y[l, h, g] = x[source, h] and sum_h y[l, h, g] = x[target, g]: then y is integral wherever x is. A host's capacity
bounds the sum of the needs of its operators. t[v] is the longest delay to vertex v: t[target] >= t[source] + the latency of the
link between.
"""

from typing import Any, NamedTuple

import numpy as np

from sbon_node.base.extras import highspy
from sbon_node.placement.model.instance import RESOURCES, Floats, Instance, Ints
from sbon_protocol.errors import SbonError

MAX_VARIABLES = 2_000_000
GAP = 1e-9
EXACT_S = 300.0
"""Default time limit for HiGHS, after which it gives up."""


class Optimum(NamedTuple):
    """An optimal placement. ``hosts`` [operators] are node numbers."""

    hosts: Ints
    cost: float


class _Milp:
    """A program: columns with costs and bounds, rows with bounds, and entries by row."""

    def __init__(self) -> None:
        self.costs: list[Floats] = []
        self.upper: list[Floats] = []
        self.integral: list[np.ndarray[Any, Any]] = []
        self.columns = 0
        self.rows: list[tuple[Floats, Floats]] = []
        self.entries: list[tuple[Ints, Ints, Floats]] = []
        self.height = 0

    def add_columns(self, costs: Floats, upper: float, *, integral: bool) -> Ints:
        many = len(costs)
        if self.columns + many > MAX_VARIABLES:
            message = f"the integer program has more than {MAX_VARIABLES} variables"
            raise SbonError("too-large", message, where="optimal", hint="take another strategy, or allow fewer hosts")
        self.costs.append(costs)
        self.upper.append(np.full(many, upper))
        self.integral.append(np.full(many, integral))
        self.columns += many
        return np.arange(self.columns - many, self.columns)

    def add_rows(self, lower: Floats, upper: Floats, *entries: tuple[Ints, Ints, Floats]) -> None:
        """Add rows. ``entries`` are rows (from 0), columns and values."""
        self.rows.append((lower, upper))
        self.entries += [(rows + self.height, columns, values) for rows, columns, values in entries]
        self.height += len(lower)

    def solve(self, limit_s: float) -> Floats | None:
        """Return the columns' values, None if infeasible. Raises :class:`SbonError` ``too-large`` where HiGHS gives up."""
        package = highspy()
        rows, columns, values = (np.concatenate(arrays) for arrays in zip(*self.entries, strict=True))
        order = np.lexsort((columns, rows))
        model = package.HighsLp()
        model.num_col_, model.num_row_ = self.columns, self.height
        model.col_cost_ = np.concatenate(self.costs)
        model.col_lower_, model.col_upper_ = np.zeros(self.columns), np.concatenate(self.upper)
        model.row_lower_ = np.concatenate([lower for lower, _ in self.rows])
        model.row_upper_ = np.concatenate([upper for _, upper in self.rows])
        model.a_matrix_.format_ = package.MatrixFormat.kRowwise
        model.a_matrix_.start_ = np.searchsorted(rows[order], np.arange(self.height + 1)).astype(np.int32)
        model.a_matrix_.index_, model.a_matrix_.value_ = columns[order].astype(np.int32), values[order]
        kinds = (package.HighsVarType.kContinuous, package.HighsVarType.kInteger)
        model.integrality_ = [kinds[int(kind)] for kind in np.concatenate(self.integral)]
        solver = package.Highs()
        gaps = (("mip_rel_gap", GAP), ("mip_abs_gap", 0.0))
        for option, value in (("output_flag", False), ("threads", 1), ("time_limit", limit_s), *gaps):
            solver.setOptionValue(option, value)
        solver.passModel(model)
        solver.run()
        status = solver.getModelStatus()
        if status == package.HighsModelStatus.kInfeasible:
            return None
        if status != package.HighsModelStatus.kOptimal:
            late = status == package.HighsModelStatus.kTimeLimit
            why = f"within {limit_s:g} s" if late else f"({status})"
            message = f"the integer program for bounds and capacity was not solved {why}"
            hint = "take hybrid, which needs no integer program, or raise placement.exact_s"
            raise SbonError("too-large", message, where="optimal", hint=hint)
        solution: Floats = np.array(solver.getSolution().col_value)
        return solution


def integer_optimum(instance: Instance, limit_s: float = EXACT_S) -> Optimum | None:
    """Return the best placement that keeps all bounds; None if there is none.

    Raises :class:`SbonError` ``too-large``, ``unsupported-objective`` where latency by queueing is requested, or
    ``input-missing`` where highspy is not installed.
    """
    weights, bound = instance.problem.objective, instance.problem.bounds.max_delay_ms
    if weights.latency:
        hint = "take hybrid, centralized or ants"
        raise SbonError(
            "unsupported-objective", "latency by queueing is not linear: no optimum is known", where="optimal", hint=hint
        )
    unary, _ = instance.factors()
    scale = 1.0 / max(max(float(costs.max()) for costs in unary), 1e-12)
    milp = _Milp()
    at = [milp.add_columns(costs * scale, 1.0, integral=True) for costs in unary]
    for columns in at:
        milp.add_rows(np.ones(1), np.ones(1), (np.zeros_like(columns), columns, np.ones(len(columns))))
    _add_capacity(milp, instance, at)
    links = _add_links(milp, instance, at, scale)
    if bound is not None or weights.delay:
        _add_delays(milp, instance, at, links, scale)
    values = milp.solve(limit_s)
    if values is None:
        return None
    chosen = [candidates[int(values[columns].argmax())] for candidates, columns in zip(instance.candidates, at, strict=True)]
    hosts = np.array(chosen, dtype=int)
    cost = instance.evaluate(hosts[None])
    return Optimum(hosts, float(cost.additive[0] + weights.delay * cost.delay_ms[0]))


def _add_capacity(milp: _Milp, instance: Instance, at: list[Ints]) -> None:
    operators = np.concatenate([np.full(len(columns), number) for number, columns in enumerate(at)])
    hosts, columns = np.concatenate(instance.candidates), np.concatenate(at)
    for resource in range(RESOURCES):
        bounded = np.unique(hosts[np.isfinite(instance.free[hosts, resource])])
        for host in bounded.tolist():
            at_host = hosts == host
            needs = instance.needs[operators[at_host], resource]
            free = max(float(instance.free[host, resource]), 0.0)
            milp.add_rows(
                np.full(1, -np.inf), np.full(1, free + 1e-9), (np.zeros(len(needs), dtype=int), columns[at_host], needs)
            )


def _add_links(milp: _Milp, instance: Instance, at: list[Ints], scale: float) -> dict[tuple[int, int], Ints]:
    """Return the columns [k, m] of each pair of linked operators, the lower number first."""
    _, pairwise = instance.factors()
    links = {}
    for (operator, other), costs in pairwise.items():
        k, m = costs.shape
        columns = milp.add_columns(costs.ravel() * scale, 1.0, integral=False).reshape(k, m)
        links[operator, other] = columns
        ones = np.ones(k * m)
        for side, count, rows in ((operator, k, np.repeat(np.arange(k), m)), (other, m, np.tile(np.arange(m), k))):
            own = (np.arange(count), at[side], -np.ones(count))
            milp.add_rows(np.zeros(count), np.zeros(count), (rows, columns.ravel(), ones), own)
    return links


def _add_delays(milp: _Milp, instance: Instance, at: list[Ints], links: dict[tuple[int, int], Ints], scale: float) -> None:
    """Add the delay t of every operator, 0 for pinned vertices that read nothing; bound and charge the longest."""
    count = len(instance.operators)
    bound = instance.problem.bounds.max_delay_ms
    upper = np.inf if bound is None else bound
    reached = milp.add_columns(np.zeros(count), upper, integral=False)
    longest = milp.add_columns(np.full(1, instance.problem.objective.delay * scale), upper, integral=False)
    ms = instance.latency_ms
    for source, target in zip(instance.sources.tolist(), instance.targets.tolist(), strict=True):
        end = reached[target] if target < count else longest[0]
        zero, unit = np.zeros(1, dtype=int), np.ones(1)
        entries = [(zero, np.array([end]), unit)]
        offset = 0.0
        if source < count:
            entries.append((zero, reached[source, None], -unit))
        if source < count and target < count:
            columns = links[min(source, target), max(source, target)]
            hosts = instance.candidates[source], instance.candidates[target]
            latency = ms[np.ix_(*hosts)] if source < target else ms[np.ix_(*hosts)].T
            entries.append((np.zeros(columns.size, dtype=int), columns.ravel(), -latency.ravel()))
        elif source < count or target < count:
            operator = source if source < count else target
            pinned = instance.pinned_node(target if source < count else source)
            hosts_of = instance.candidates[operator]
            latency = ms[hosts_of, pinned] if source < count else ms[pinned, hosts_of]
            entries.append((np.zeros(len(hosts_of), dtype=int), at[operator], -latency))
        else:
            offset = float(ms[instance.pinned_node(source), instance.pinned_node(target)])
        milp.add_rows(np.full(1, offset), np.full(1, np.inf), *entries)
    for column in reached.tolist():
        unit = np.ones(1)
        zero = np.zeros(1, dtype=int)
        milp.add_rows(np.zeros(1), np.full(1, np.inf), (zero, longest, unit), (zero, np.array([column]), -unit))
