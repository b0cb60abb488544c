"""Queries that survive errors in expressions: the changed plan of a fragment returns NULL or skips the row.

Spark's ``TryEval`` is NULL where its child raises, and only there: around a struct, which is never NULL itself, it
distinguishes an error from a NULL. With ``null`` every part that may raise is wrapped in a ``TryEval``. With ``skip`` the parts
of a plan node that may raise are computed below it, in one struct; rows for which it raises are counted, the first of them
collected (``CollectMetrics``), and none goes further, so that no stateful node ever sees them. Nothing below the views is
changed: markers pass as before.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from sbon_node.engine.spark.analysis.expressions import FLOATS, TIME_PIECES, Expressions, each, kind_of, walk
from sbon_node.engine.spark.operators.failure_reports import brief, marked
from sbon_node.streams.skipped import SkippedRow, SkippedRows
from sbon_protocol.api.operators import OnError
from sbon_protocol.errors import SbonError

SHARED_EXPRESSIONS = "spark.sql.subexpressionElimination.enabled"
"""Must be off for such a plan: Spark computes a shared part of two expressions before both, where no error is caught."""


@dataclass(frozen=True)
class Guard:
    """Skips rows for which one of ``tried`` raises; with ``reason``, groups whose aggregate of that text does."""

    name: str
    columns: Any
    tried: tuple[Any, ...]
    reason: str = ""


def tolerant(session: SparkSession, rows: DataFrame, on_error: OnError, most: int = 1) -> tuple[DataFrame, tuple[Guard, ...]]:
    """Return the same rows by a plan that survives errors, and its guards, which skip rows.

    Each guard counts all skipped rows of a batch and collects at most ``most``, the first in the order of their values.
    Raises :class:`SbonError` ``unsupported-on-error`` where a row cannot be skipped.
    """
    if on_error == "fail":
        return rows, ()
    rewriting: _Rewriting = _Nulls(session) if on_error == "null" else _Skips(session, most)
    plan = rows._jdf.queryExecution().analyzed()
    changed = rewriting.plan(plan)
    dataset = session._jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, changed)
    return DataFrame(dataset, session), tuple(rewriting.guards)


class _Rewriting(ABC):
    """Rewrites one plan from its views up."""

    def __init__(self, session: SparkSession) -> None:
        self.session = session
        self.expressions = Expressions(session)
        self.plans = self.expressions.jvm.org.apache.spark.sql.catalyst.plans.logical
        self.guards: list[Guard] = []

    def plan(self, plan: Any) -> Any:
        if kind_of(plan) == "View":
            return plan
        plan = self.over(plan, self.plan)
        rewrites = {"Project": self.project, "Filter": self.filter, "Aggregate": self.aggregate, "Join": self.join}
        rewrite = rewrites.get(kind_of(plan))
        return plan if rewrite is None else rewrite(plan)

    @abstractmethod
    def project(self, plan: Any) -> Any: ...

    @abstractmethod
    def filter(self, plan: Any) -> Any: ...

    @abstractmethod
    def aggregate(self, plan: Any) -> Any: ...

    @abstractmethod
    def join(self, plan: Any) -> Any: ...

    def fallible(self, root: Any) -> Any | None:
        """Return the expression as it runs, if it may raise. Windows are Spark's own arithmetic."""
        if kind_of(root) in ("AttributeReference", "Literal"):
            return None
        plain = self.expressions.plain(root)
        if any(kind_of(node) in TIME_PIECES for node in walk(plain)):
            return None
        return plain if self.expressions.may_raise(plain) else None

    def over(self, node: Any, made: Callable[[Any], Any]) -> Any:
        """Return the node over its children as ``made``, or the node itself if they are unchanged."""
        own = list(each(node.children()))
        instead = [made(child) for child in own]
        return self.expressions.with_children(node, instead) if _differ(own, instead) else node

    def total(self, aggregate: Any) -> Any | None:
        """Return a sum or average that is NULL on overflow, for one that would raise."""
        function = aggregate.aggregateFunction()
        if kind_of(function) not in ("Sum", "Average"):
            return None
        type_ = function.dataType().simpleString()
        context = function.evalContext() if kind_of(function) == "Sum" else None
        mode = function.evalMode() if context is None else context.evalMode()
        if type_ in FLOATS or str(mode.toString()) != "ANSI":
            return None
        tried = self.expressions.catalyst.EvalMode.TRY()
        if context is not None:
            tried = context.copy(tried, context.productElement(1))
        copied = function.copy(function.child(), tried)
        return aggregate.copy(copied, aggregate.mode(), aggregate.isDistinct(), aggregate.filter(), aggregate.resultId())


class _Nulls(_Rewriting):
    """Replaces an error by NULL, at its place."""

    def project(self, plan: Any) -> Any:
        own = list(each(plan.projectList()))
        instead = [self.tried(expression) for expression in own]
        return self.plans.Project(self.expressions.seq(instead), plan.child()) if _differ(own, instead) else plan

    def filter(self, plan: Any) -> Any:
        own = plan.condition()
        condition = self.tried(own)
        return plan if condition is own else self.plans.Filter(condition, plan.child())

    def aggregate(self, plan: Any) -> Any:
        own = [*each(plan.groupingExpressions())], [*each(plan.aggregateExpressions())]
        keys, outputs = [[self.tried(expression) for expression in some] for some in own]
        if not _differ(own[0], keys) and not _differ(own[1], outputs):
            return plan
        seq = self.expressions.seq
        return self.plans.Aggregate(seq(keys), seq(outputs), plan.child(), plan.hint())

    def join(self, plan: Any) -> Any:
        if plan.condition().isEmpty():
            return plan
        condition = self.expressions.jvm.scala.Some(self.tried(plan.condition().get()))
        return self.plans.Join(plan.left(), plan.right(), plan.joinType(), condition, plan.hint())

    def tried(self, root: Any) -> Any:
        """Return the expression with each part that may raise in a ``TryEval``."""
        if kind_of(root) == "Alias":
            return self.over(root, self.tried)
        if any(kind_of(node) == "AggregateExpression" for node in walk(root)):
            return self.of_groups(root)
        plain = self.fallible(root)
        return root if plain is None else self.caught(plain)

    def caught(self, node: Any) -> Any:
        if node.foldable():
            return self.expressions.literal(None, node.dataType()) if self.expressions.fault(node) is not None else node
        raises = self.expressions.raises(node)
        inner = self.over(node, self.caught)
        return self.expressions.try_eval(inner) if raises else inner

    def of_groups(self, root: Any) -> Any:
        """Return an aggregate's output with tried arguments of its functions, and sums that do not raise."""
        if kind_of(root) == "AggregateExpression":
            total = self.total(root)
            return self.over(root if total is None else total, lambda function: self.over(function, self.tried))
        return self.over(root, self.of_groups)


class _Skips(_Rewriting):
    """Skips a row for which an expression raises."""

    def __init__(self, session: SparkSession, most: int) -> None:
        super().__init__(session)
        self.most = max(1, most)

    def project(self, plan: Any) -> Any:
        own = list(each(plan.projectList()))
        below, instead = self.guarded(plan.child(), own)
        return self.plans.Project(self.expressions.seq(instead), below) if _differ(own, instead) else plan

    def filter(self, plan: Any) -> Any:
        own = plan.condition()
        below, (condition,) = self.guarded(plan.child(), [own])
        if condition is own:
            return plan
        return self.plans.Project(plan.output(), self.plans.Filter(condition, below))

    def aggregate(self, plan: Any) -> Any:
        keys, outputs = list(each(plan.groupingExpressions())), list(each(plan.aggregateExpressions()))
        calls = {id_of(call): call for output in outputs for call in walk(output) if kind_of(call) == "AggregateExpression"}
        arguments = [argument for call in calls.values() for argument in each(call.aggregateFunction().children())]
        roots = [*keys, *arguments]
        below, instead = self.guarded(plan.child(), roots)
        new_arguments = iter(instead[len(keys) :])
        of_calls = {name: self.called(call, new_arguments) for name, call in calls.items()}
        of_keys = {key.canonicalized().toString(): new for key, new in zip(keys, instead, strict=False) if new is not key}
        outputs = [self.regrouped(output, of_keys, of_calls) for output in outputs]
        totals = [(of_calls[name], self.total(of_calls[name])) for name in calls]
        summed = [(call, total) for call, total in totals if total is not None]
        if not _differ(roots, instead) and not summed:
            return plan
        seq = self.expressions.seq
        if not summed:
            return self.plans.Aggregate(seq(instead[: len(keys)]), seq(outputs), below, plan.hint())
        return self.without_overflow(plan, instead[: len(keys)], outputs, below, summed)

    def without_overflow(self, plan: Any, keys: list[Any], outputs: list[Any], below: Any, summed: list[tuple[Any, Any]]) -> Any:
        """Return the groups without an overflowing sum, which is NULL although there are values to sum."""
        x = self.expressions
        instead = {id_of(call): total for call, total in summed}
        outputs = [self.regrouped(output, {}, instead) for output in outputs]
        pairs = []
        for number, (call, total) in enumerate(summed):
            some = x.aggregate("max", self.session, x.catalyst.IsNotNull(call.aggregateFunction().child()))
            pairs.append((x.alias(total, f"sbon total {number}"), x.alias(some, f"sbon some {number}")))
        hidden = [name for pair in pairs for name in pair]
        grouped = self.plans.Aggregate(x.seq(keys), x.seq([*outputs, *hidden]), below, plan.hint())
        node = grouped
        for (call, _), (total, some) in zip(summed, pairs, strict=True):
            failed = x.catalyst.And(x.catalyst.IsNull(total.toAttribute()), some.toAttribute())
            text = str(call.sql())
            node = self.kept(node, failed, plan.output(), (), f"{text} is beyond {call.dataType().simpleString()}")
        return self.plans.Project(plan.output(), node)

    def regrouped(self, node: Any, keys: dict[str, Any], calls: dict[str, Any]) -> Any:
        """Return an output over groups whose keys and aggregates have been replaced."""
        if kind_of(node) == "AggregateExpression":
            return calls.get(id_of(node), node)
        if keys and (output := keys.get(node.canonicalized().toString())) is not None:
            return output
        return self.over(node, lambda child: self.regrouped(child, keys, calls))

    def called(self, call: Any, arguments: Iterator[Any]) -> Any:
        """Return the aggregate of the next of these arguments."""
        function = call.aggregateFunction()
        instead = [next(arguments) for _ in each(function.children())]
        return self.over(call, lambda _: self.expressions.with_children(function, instead)) if instead else call

    def join(self, plan: Any) -> Any:
        if plan.condition().isEmpty() or self.fallible(plan.condition().get()) is None:
            return plan
        sides = {"left": plan.left(), "right": plan.right()}
        conditions = conjuncts(plan.condition().get())
        for side in sides:
            parts = [part for condition in conditions for part in self.of_side(condition, sides[side])]
            sides[side], instead = self.guarded(sides[side], parts)
            by_text = {condition.canonicalized().toString(): new for condition, new in zip(parts, instead, strict=True)}
            conditions = [self.regrouped(condition, by_text, {}) for condition in conditions]
        of_both = [condition for condition in conditions if self.fallible(condition) is not None]
        if of_both and plan.joinType().toString() != "Inner":
            raise SbonError(
                "unsupported-on-error",
                "a condition of an outer or semi-join that may fail, and reads both sides, has no row to skip",
                where="fragment",
                hint="compute it of one side, write it with try_ functions, or choose null on an error (--on-error, on_error)",
            )
        rest = self.all_of([condition for condition in conditions if condition not in of_both])
        joined = self.plans.Join(sides["left"], sides["right"], plan.joinType(), rest, plan.hint())
        if of_both:
            joined = self.filter(self.plans.Filter(self.all_of(of_both).get(), joined))
        return self.plans.Project(plan.output(), joined)

    def all_of(self, conditions: list[Any]) -> Any:
        """Return all of them, as an Option."""
        if not conditions:
            return self.expressions.jvm.scala.Option.empty()
        conjunction = conditions[0]
        for condition in conditions[1:]:
            conjunction = self.expressions.catalyst.And(conjunction, condition)
        return self.expressions.jvm.scala.Some(conjunction)

    def of_side(self, condition: Any, side: Any) -> list[Any]:
        """Return the parts of a condition that may raise and run for every row of one side: the condition, or a compared key."""
        known = side.outputSet()
        if condition.references().subsetOf(known):
            parts = [condition]
        else:
            parts = list(each(condition.children())) if kind_of(condition) in ("EqualTo", "EqualNullSafe") else []
        return [part for part in parts if part.references().subsetOf(known) and self.fallible(part) is not None]

    def guarded(self, child: Any, roots: list[Any]) -> tuple[Any, list[Any]]:
        """Return ``child`` without rows for which ``roots`` raise, and ``roots`` in terms of its columns.

        ``child`` also computes the parts of ``roots`` that may raise.
        """
        x = self.expressions
        bare = [root.child() if kind_of(root) == "Alias" else root for root in roots]
        tried = [(position, plain) for position, one in enumerate(bare) if (plain := self.fallible(one)) is not None]
        if not tried:
            return child, roots
        columns = child.output()
        struct = x.struct((f"e{number}", plain) for number, (_, plain) in enumerate(tried))
        tries = x.alias(x.try_eval(struct), "sbon tried")
        known = [*each(columns)]
        computed = self.plans.Project(x.seq([*known, tries]), child)
        reference = tries.toAttribute()
        rows = self.kept(computed, x.catalyst.IsNull(reference), columns, tuple(plain for _, plain in tried))
        value_columns = [x.alias(x.field(reference, number), f"sbon value {number}") for number in range(len(tried))]
        instead = list(roots)
        for value, (position, _) in zip(value_columns, tried, strict=True):
            attribute = value.toAttribute()
            aliased = kind_of(roots[position]) == "Alias"
            instead[position] = x.with_children(roots[position], [attribute]) if aliased else attribute
        return self.plans.Project(x.seq([*known, *value_columns]), rows), instead

    def kept(self, node: Any, failed: Any, columns: Any, tried: tuple[Any, ...], reason: str = "") -> Any:
        """Return the rows that have not ``failed``; the others are counted, and the first collected with these columns."""
        x = self.expressions
        name = f"sbon skipped {len(self.guards)}"
        row = x.struct((str(column.name()), column) for column in each(columns))
        nothing = x.literal(None, row.dataType())
        skipped = x.catalyst.If(failed, row, nothing)
        count, rows = x.aggregate("count", self.session, skipped), x.smallest(skipped, self.most)
        metrics = x.seq([x.alias(count, "count"), x.alias(rows, "rows")])
        self.guards.append(Guard(name, columns, tried, reason))
        collected = self.plans.CollectMetrics(name, metrics, node, len(self.guards))
        return self.plans.Filter(x.catalyst.Not(failed), collected)


def id_of(call: Any) -> str:
    """Return the identity of an aggregate in a plan."""
    return str(call.resultId().toString())


def conjuncts(condition: Any) -> list[Any]:
    """Return the parts of a conjunction."""
    if kind_of(condition) == "And":
        return [*conjuncts(condition.left()), *conjuncts(condition.right())]
    return [condition]


def _differ(left: list[Any], other: list[Any]) -> bool:
    return any(a is not b for a, b in zip(left, other, strict=True))


# -- Skipped rows of a batch, each with the expression that raised an error and Spark's reason -------------------------


logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
"""Disables PySpark's own log line for each error: these are expected."""


class SkippedReader:
    """Reads one operator's skipped rows: at most ``most`` of a batch are kept; the others are only counted."""

    def __init__(self, session: SparkSession, guards: Sequence[Guard], most: int) -> None:
        self.guards = tuple(guards)
        self._most = most
        if guards:
            self._expressions = Expressions(session)

    def of(self, execution: Any) -> SkippedRows | None:
        """Return the skipped rows of an executed batch, or None."""
        metrics = execution.observedMetrics()
        count = 0
        letters: list[SkippedRow] = []
        for guard in self.guards:
            if not metrics.contains(guard.name):
                continue
            metric = metrics.apply(guard.name)
            rows = metric.getSeq(1)
            if rows.isEmpty():
                continue
            count += metric.getLong(0)
            convert = self._expressions.jvm.org.apache.spark.sql.catalyst.CatalystTypeConverters.createToCatalystConverter(
                rows.apply(0).schema()
            )
            for position in range(min(rows.size(), self._most - len(letters))):
                letters.append(self._letter(guard, rows.apply(position), convert))
        return SkippedRows(rows=count, kept=tuple(letters)) if count else None

    def _letter(self, guard: Guard, row: Any, convert: Any) -> SkippedRow:
        """Return a skipped row with its reason, by running the row's expressions again, one after another."""
        expression, reason = guard.name, guard.reason
        if guard.tried:
            internal, seq = convert.apply(row), self._expressions.seq
            projection = self._expressions.catalyst.InterpretedMutableProjection
            for tried in guard.tried:
                try:
                    projection(seq([tried]), guard.columns).apply(internal)
                except Exception as error:  # noqa: BLE001 - whatever it raises is the reason
                    expression, reason = marked(str(error)) or str(tried.sql()), brief(error)
                    break
        else:
            expression = reason.split(" is beyond")[0]
        return SkippedRow(expression=expression, reason=reason, row=str(row.json()))
