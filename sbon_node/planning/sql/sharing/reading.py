"""Relation of a fragment: the inverse of :func:`sbon_node.planning.sql.stages.fragments.fragment_of`.

A fragment may come from a peer, so it passes the allow-list first. Fragments that the planner's own generator would not write
are refused: the relation that was read must render to the same text again, up to spelling.
"""

from collections.abc import Iterator, Sequence

from sqlglot import exp

from sbon_node.planning.sql.checks.allowlist import check_fragment
from sbon_node.planning.sql.checks.functions import ALLOWED_AGGREGATES, SKETCH_AGGREGATES
from sbon_node.planning.sql.relations.logical import (
    LEFT,
    RIGHT,
    Aggregate,
    Input,
    Join,
    JoinKind,
    Output,
    Relation,
    Select,
    Window,
    column,
    conjuncts,
)
from sbon_node.planning.sql.rewrite.canonical import canonical_expression
from sbon_node.planning.sql.settings import QuerySettings
from sbon_node.planning.sql.stages.fragments import constant_keys, fragment_of, presence
from sbon_node.planning.sql.syntax.dialect import call_name, parse
from sbon_node.planning.sql.syntax.durations import parse_ms
from sbon_protocol.api.columns import Schema
from sbon_protocol.errors import SbonError

_KINDS: dict[tuple[str, str], JoinKind] = {
    ("", ""): "inner", ("LEFT", ""): "left", ("RIGHT", ""): "right", ("FULL", ""): "full", ("LEFT", "SEMI"): "semi",
}  # fmt: skip
_WINDOWS = {"window": 4, "session_window": 2}
"""Maps the kinds of windows to their numbers of arguments."""
_AGGREGATES = frozenset([*ALLOWED_AGGREGATES, *SKETCH_AGGREGATES])


class _NotReadable(Exception):
    """The fragment is none that the planner writes."""


def relation_of(fragment: str, schemas: Sequence[Schema], settings: QuerySettings | None = None) -> Select | None:
    """Return a fragment's relation over views with these schemas; None for other texts than the planner's.

    The inputs of the relation have no lags, which a fragment does not state.
    """
    try:
        check_fragment(fragment, len(schemas), settings)
        tree = parse(fragment)[0]
        relation = _Reading(schemas).select(tree)
        again = parse(fragment_of(relation))[0]
    except (SbonError, _NotReadable, RecursionError):
        return None
    return relation if canonical_expression(again) == canonical_expression(tree) else None


class _Reading:
    def __init__(self, schemas: Sequence[Schema]) -> None:
        self._schemas = schemas

    def select(self, tree: exp.Expr) -> Select:
        """Read a SELECT over a view, over groups, or over a join."""
        if not isinstance(tree, exp.Select) or tree.args.get("group"):
            raise _NotReadable
        source = tree.args["from_"].this
        if tree.args.get("joins"):
            return self._over_join(tree, source)
        child: Relation = self._view(source) if isinstance(source, exp.Table) else self._groups(source.this)
        return _checked(Select(child, _outputs(tree.expressions), _conditions(tree)))

    def _view(self, table: exp.Expr) -> Input:
        number = table.name.removeprefix("in")
        if not isinstance(table, exp.Table) or not number.isdigit() or int(number) >= len(self._schemas):
            raise _NotReadable
        return Input(int(number), tuple(field.name for field in self._schemas[int(number)]), {})

    def _groups(self, tree: exp.Expr) -> Aggregate:
        group = tree.args.get("group") if isinstance(tree, exp.Select) else None
        if group is None or tree.args.get("joins") or tree.args.get("where"):
            raise _NotReadable
        source = tree.args["from_"].this
        child: Relation = self._view(source) if isinstance(source, exp.Table) else self.select(source.this)
        keys, outputs, window = list(group.expressions), list(_outputs(tree.expressions)), None
        if keys and call_name(keys[0]) in _WINDOWS:
            call = keys.pop(0)
            ends = dict(_end(output, call_name(call)) for output in outputs[:2])
            outputs = outputs[2:]
            window = _window(call, ends)
            keys = _written(keys, window)
        if len(outputs) < len(keys) or any(
            canonical_expression(key) != canonical_expression(output.expression)
            for key, output in zip(keys, outputs, strict=False)
        ):
            raise _NotReadable
        aggregates = tuple(outputs[len(keys) :])
        if any(call_name(output.expression) not in _AGGREGATES for output in aggregates):
            raise _NotReadable
        if window is not None and window.time not in child.names:
            raise _NotReadable
        relation = Aggregate(child, window, tuple(outputs[: len(keys)]), aggregates)
        _check_names(relation, [output.expression for output in outputs], set(child.names))
        return relation

    def _over_join(self, tree: exp.Select, source: exp.Expr) -> Select:
        (joined,) = tree.args["joins"] if len(tree.args["joins"]) == 1 else (None,)
        kind = _KINDS.get((joined.side.upper(), joined.kind.upper())) if joined is not None else None
        if joined is None or kind is None:
            raise _NotReadable
        left, right = self._side(source, LEFT), self._side(joined.this, RIGHT)
        names = {LEFT: set(left.names), RIGHT: set(right.names)}
        on = conjuncts(joined.args["on"])
        read = {
            (reference.table, reference.name): None for root in (*tree.expressions, *_conditions(tree)) for reference in _of(root)
        }
        every = [*read, *((reference.table, reference.name) for condition in on for reference in _of(condition))]
        if any(at not in names.get(side, ()) for side, at in every):
            raise _NotReadable
        columns = tuple((f"{side}_{at}", side, at) for side, at in read)
        join = Join(kind, left, right, tuple(on), columns)
        join = Join(kind, left, right, tuple(_stated(join)), columns)

        def named(node: exp.Expr) -> exp.Expr:
            return column(f"{node.table}_{node.name}") if isinstance(node, exp.Column) else node

        outputs = tuple(Output(output.name, output.expression.transform(named)) for output in _outputs(tree.expressions))
        return _checked(Select(join, outputs, tuple(condition.transform(named) for condition in _conditions(tree))))

    def _side(self, source: exp.Expr, alias: str) -> Relation:
        if source.alias_or_name != alias:
            raise _NotReadable
        return self._view(source) if isinstance(source, exp.Table) else self.select(source.this)


def _stated(join: Join) -> Iterator[exp.Expr]:
    """Yield the join's conditions without those that the rendering adds."""
    added = {canonical_expression(condition) for condition in presence(join)}
    return (condition for condition in join.conditions if canonical_expression(condition) not in added)


def _written(keys: list[exp.Expr], window: Window) -> list[exp.Expr]:
    """Return the keys beside a window without the one that the rendering adds to sessions."""
    stated = tuple(Output(f"key_{number}", key) for number, key in enumerate(keys[:-1]))
    added = constant_keys(Aggregate(Input(0, (window.time,), {}), window, stated, ()))
    return keys[:-1] if [canonical_expression(key) for key in keys[-1:]] == [canonical_expression(key) for key in added] else keys


def _window(call: exp.Expr, ends: dict[str, str]) -> Window:
    kind = "window" if call_name(call) == "window" else "session_window"
    time, *lengths = call.expressions
    sizes = [parse_ms(length.name) if isinstance(length, exp.Literal) else None for length in lengths]
    size_ms, *more = (size for size in sizes if size is not None)
    slide_ms, offset_ms = more if more else (size_ms, 0)
    plain = isinstance(time, exp.Column) and not time.table and len(call.expressions) == _WINDOWS[kind]
    if not plain or None in sizes or not 0 < slide_ms <= size_ms or offset_ms < 0 or set(ends) != {"start", "end"}:
        raise _NotReadable
    return Window(
        "window" if kind == "window" else "session_window", time.name, size_ms, slide_ms, offset_ms, ends["start"], ends["end"]
    )


def _end(output: Output, kind: str) -> tuple[str, str]:
    end = output.expression
    if not isinstance(end, exp.Column) or end.table != kind:
        raise _NotReadable
    return end.name, output.name


def _outputs(expressions: Sequence[exp.Expr]) -> tuple[Output, ...]:
    outputs = tuple(Output(expression.alias_or_name, expression.unalias()) for expression in expressions)
    if any(not output.name or output.name == "*" for output in outputs):
        raise _NotReadable
    if len({output.name.lower() for output in outputs}) != len(outputs):
        raise _NotReadable
    return outputs


def _conditions(tree: exp.Select) -> tuple[exp.Expr, ...]:
    where = tree.args.get("where")
    return tuple(conjuncts(where.this)) if where is not None else ()


def _checked(select: Select) -> Select:
    roots = [*(output.expression for output in select.outputs), *select.conditions]
    _check_names(select, roots, set(select.child.names))
    return select


def _check_names(relation: Relation, roots: Sequence[exp.Expr], names: set[str]) -> None:
    if any(reference.table or reference.name not in names for root in roots for reference in _of(root)):
        raise _NotReadable
    if len({name.lower() for name in relation.names}) != len(relation.names):
        raise _NotReadable


def _of(root: exp.Expr) -> Iterator[exp.Column]:
    return root.find_all(exp.Column)
