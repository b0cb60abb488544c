"""Push conditions and columns towards the sources, to send only needed rows and columns.

``pushed(relation, conditions, names_read)`` is the relation with exactly the columns ``names_read``, restricted to the rows that
satisfy the conditions. It is a SELECT over a stream, an aggregate or a join, or a union of such.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace

from sqlglot import exp

from sbon_node.planning.sql.relations.logical import (
    LEFT,
    PRESERVED,
    RIGHT,
    Aggregate,
    Join,
    Output,
    Relation,
    Scan,
    Select,
    Union,
    as_they_are,
    column,
    in_place_of,
    named,
    put,
    replaced,
)
from sbon_node.planning.sql.rewrite.canonical import canonical_expression
from sbon_node.planning.sql.rewrite.error_free import is_error_free
from sbon_node.planning.sql.rewrite.event_time import lag_of, lags_ms, truncated_ms, truncations
from sbon_node.planning.sql.syntax.durations import sql_interval

Conditions = tuple[exp.Expr, ...]


def push_down(relation: Relation) -> Select | Union:
    """Push every condition and column selection of the query to its place."""
    return pushed(relation, (), relation.names)


def pushed(relation: Relation, conditions: Conditions, names_read: Sequence[str]) -> Select | Union:
    match relation:
        case Scan():
            return Select(relation, as_they_are(names_read), _distinct(conditions))
        case Select(child, outputs, own):
            made_of = {output.name: output.expression for output in outputs}
            all_conditions = (*own, *(replaced(condition, made_of) for condition in conditions))
            chosen = tuple(Output(name, made_of[name]) for name in names_read)
            return _projected(child, chosen, all_conditions)
        case Union(children):
            return _flat([pushed(child, conditions, names_read) for child in children])
        case Aggregate():
            return _into_aggregate(relation, conditions, names_read)
        case Join():
            return _into_join(relation, conditions, names_read)
    raise TypeError(f"no relation to push into: {relation!r}")


def _projected(child: Relation, outputs: tuple[Output, ...], conditions: Conditions) -> Select | Union:
    below = pushed(child, conditions, _read_by(child, (output.expression for output in outputs)))
    return _flat([_over(child, outputs) for child in below.children]) if isinstance(below, Union) else _over(below, outputs)


def _over(below: Select | Relation, outputs: tuple[Output, ...]) -> Select:
    """Merge two SELECTs."""
    assert isinstance(below, Select)
    made_of = {output.name: output.expression for output in below.outputs}
    return Select(below.child, tuple(Output(o.name, replaced(o.expression, made_of)) for o in outputs), below.conditions)


def _into_aggregate(relation: Aggregate, conditions: Conditions, names_read: Sequence[str]) -> Select:
    relation = _with_columns_for_keys(relation)
    keys = {key.name: key.expression for key in relation.keys}
    below = tuple(replaced(condition, keys) for condition in conditions if named(condition) and named(condition) <= keys.keys())
    above = tuple(condition for condition in conditions if not (named(condition) and named(condition) <= keys.keys()))
    read = {*names_read, *(name for condition in above for name in named(condition))}
    aggregates = tuple(output for output in relation.aggregates if output.name in read)
    expressions = [output.expression for output in (*relation.keys, *aggregates)]
    if relation.window is not None:
        expressions.append(column(relation.window.time))
    child = pushed(relation.child, below, _read_by(relation.child, expressions))
    return Select(replace(relation, child=child, aggregates=aggregates), as_they_are(names_read), _distinct(above))


def _with_columns_for_keys(relation: Aggregate) -> Aggregate:
    """Add a child column for each key that follows the event time. The child's watermark closes the groups."""
    lags = lags_ms(relation.child)
    computed = [
        key for key in relation.keys if not isinstance(key.expression, exp.Column) and lag_of(key.expression, lags) is not None
    ]
    if relation.window is not None or not computed:
        return relation
    child, names = with_columns(relation.child, [key.expression for key in computed])
    moved = {key.name: column(name) for key, name in zip(computed, names, strict=True)}
    keys = tuple(Output(key.name, moved.get(key.name, key.expression)) for key in relation.keys)
    return replace(relation, child=child, keys=keys)


def with_columns(relation: Relation, expressions: Sequence[exp.Expr], stem: str = "time") -> tuple[Select, list[str]]:
    """Return the relation with further columns, and their names."""
    outputs = list(as_they_are(relation.names))
    used = {name.lower() for name in relation.names}
    free = (name for n in itertools.count(1) if (name := f"{stem}_{n}") not in used)
    names = list(itertools.islice(free, len(expressions)))
    outputs += [Output(name, expression.copy()) for name, expression in zip(names, expressions, strict=True)]
    return Select(relation, tuple(outputs)), names


# -- joins --------------------------------------------------------------------------------------------------------------


def _into_join(join: Join, conditions: Conditions, names_read: Sequence[str]) -> Select:
    join, conditions = _with_conditions_of_both(join, conditions)
    join = _with_columns_for_truncations(_with_columns_for_conditions(join))
    at_sides = join.at_sides
    above: list[exp.Expr] = []
    to: dict[str, list[exp.Expr]] = {LEFT: [], RIGHT: []}
    of_both: list[exp.Expr] = []
    for condition in join.conditions:
        if (side := _side_of(condition)) in _FILTERED_BY_ON[join.kind]:
            to[side].append(condition)
        else:
            of_both.append(condition)
    for condition in conditions:
        qualified = put(condition, at_sides)
        if (side := _side_of(qualified)) in PRESERVED[join.kind]:
            to[side].append(qualified)
        else:
            above.append(condition)
    _infer(join, of_both, to)
    read_above = {*names_read, *(name for condition in above for name in named(condition))}
    columns = tuple(entry for entry in join.columns if entry[0] in read_above)
    implied = (*_implied(join, of_both, {(side, at) for _, side, at in columns}), *_by_starts(join, of_both))
    conjuncts = _distinct([*of_both, *implied])
    left = _side(join.left, LEFT, to[LEFT], columns, conjuncts)
    right = _side(join.right, RIGHT, to[RIGHT], columns, conjuncts)
    joined = replace(join, left=left, right=right, conditions=conjuncts, columns=columns)
    return Select(joined, as_they_are(names_read), _distinct(above))


def _with_conditions_of_both(join: Join, conditions: Conditions) -> tuple[Join, Conditions]:
    """Move conditions on both sides into the join, unless rows without a partner must stay."""
    if join.kind not in ("inner", "semi"):
        return join, conditions
    at_sides = join.at_sides
    own = [condition for condition in conditions if len(_sides_of(put(condition, at_sides))) == 2]
    rest = tuple(condition for condition in conditions if condition not in own)
    return replace(join, conditions=(*join.conditions, *(put(condition, at_sides) for condition in own))), rest


_FILTERED_BY_ON = {"inner": (LEFT, RIGHT), "semi": (LEFT, RIGHT), "left": (RIGHT,), "right": (LEFT,), "full": ()}
"""Sides whose rows disappear where ON does not hold."""


def _side(
    relation: Relation, side: str, conditions: Iterable[exp.Expr], columns: Iterable[tuple[str, str, str]], of_both: Conditions
) -> Select | Union:
    read = {at for _, of, at in columns if of == side}
    read |= {reference.name for condition in of_both for reference in condition.find_all(exp.Column) if reference.table == side}
    bare = tuple(condition.transform(_without_table) for condition in conditions)
    return pushed(relation, bare, [name for name in relation.names if name in read])


def _infer(join: Join, of_both: Sequence[exp.Expr], to: dict[str, list[exp.Expr]]) -> None:
    """Infer conditions across equalities: ``a.k = b.k AND a.k % 4 = 0`` also filters ``b.k``.

    Both types must be the same, and equal values must not differ (as 0.0 and -0.0 do).
    """
    types = {LEFT: types_of(join.left), RIGHT: types_of(join.right)}
    equal: list[tuple[exp.Column, exp.Column, str]] = []
    for condition in of_both:
        bare = condition.unnest()
        if isinstance(bare, exp.EQ) and isinstance(bare.this, exp.Column) and isinstance(bare.expression, exp.Column):
            a, b = bare.this, bare.expression
            type_ = types[a.table].get(a.name)
            if a.table != b.table and type_ == types[b.table].get(b.name) and type_ not in (None, "float", "double"):
                equal += [(a, b, type_), (b, a, type_)]
    of_side = {side: list(conditions) for side, conditions in to.items()}
    for a, b, type_ in equal:
        if b.table not in _FILTERED_BY_ON[join.kind]:
            continue
        for condition in of_side[a.table]:
            if {read.name for read in condition.find_all(exp.Column)} == {a.name} and is_error_free(condition, {a.name: type_}):
                to[b.table].append(condition.transform(lambda node, b=b: b.copy() if isinstance(node, exp.Column) else node))


def _with_columns_for_truncations(join: Join) -> Join:
    """Add columns for truncations.

    ``date_trunc('hour', a.ts) = b.ts`` bounds the join in time once its left side is a column that follows.
    """
    lags = {LEFT: lags_ms(join.left), RIGHT: lags_ms(join.right)}
    calls = [call for condition in join.conditions for call in truncations(condition)]
    sided = [(call, side) for call in calls if (side := _side_of(call))]
    following = [call for call, side in sided if lag_of(call.transform(_without_table), lags[side]) is not None]
    return _computed_below(join, following, "time")


def _with_columns_for_conditions(join: Join) -> Join:
    """Compute ON conditions of a single side that must stay as columns of that side.

    In a join, Spark takes the number of ``a.distance > 1000`` for an event-time bound, and never outputs the rows without a
    partner.
    """
    alone = [one for one in join.conditions if (side := _side_of(one)) and side not in _FILTERED_BY_ON[join.kind]]
    return _computed_below(join, [one for one in alone if not isinstance(one.unnest(), exp.Column)], "holds")


def _computed_below(join: Join, parts: Iterable[exp.Expr], stem: str) -> Join:
    """Return the join with these one-sided parts of its conditions as columns of their sides."""
    sides = {LEFT: join.left, RIGHT: join.right}
    by_text: dict[tuple[str, str], exp.Expr] = {(_side_of(part), canonical_expression(part)): part for part in parts}
    types = {type(part) for part in by_text.values()}
    names: dict[tuple[str, str], exp.Column] = {}
    for side in sides:
        of_side = [(text, part.transform(_without_table)) for (at, text), part in by_text.items() if at == side]
        if of_side:
            sides[side], names_made = with_columns(sides[side], [part for _, part in of_side], stem)
            names |= {(side, text): column(name, side) for (text, _), name in zip(of_side, names_made, strict=True)}

    def by_name(node: exp.Expr) -> exp.Expr:
        return names.get((_side_of(node), canonical_expression(node)), node) if type(node) in types else node

    conditions = tuple(condition.transform(by_name) for condition in join.conditions)
    return replace(join, left=sides[LEFT], right=sides[RIGHT], conditions=conditions) if names else join


def _implied(join: Join, conditions: Sequence[exp.Expr], read: set[tuple[str, str]]) -> list[exp.Expr]:
    """Add implied bounds: ``date_trunc('hour', a.ts) = b.h`` bounds ``a.ts`` too.

    They are needed where the result has ``a.ts``, which then follows.
    """
    truncated = {
        (side, output.name): output.expression
        for side, relation in ((LEFT, join.left), (RIGHT, join.right))
        if isinstance(relation, Select)
        for output in relation.outputs
        if isinstance(output.expression, exp.Anonymous)
    }
    conditions_of_time: list[exp.Expr] = []
    for condition in conditions:
        bare = condition.unnest()
        if not isinstance(bare, exp.EQ):
            continue
        for cut, other in ((bare.this, bare.expression), (bare.expression, bare.this)):
            call = truncated.get((cut.table, cut.name)) if isinstance(cut, exp.Column) else None
            width, time = (truncated_ms(call), call.expressions[-1]) if call is not None else (None, None)
            if width is None or not isinstance(time, exp.Column) or (cut.table, time.name) not in read:
                continue
            later = exp.Add(this=other.copy(), expression=sql_interval(width))
            conditions_of_time.append(exp.Between(this=column(time.name, cut.table), low=other.copy(), high=later))
    return conditions_of_time


def _by_starts(join: Join, conditions: Sequence[exp.Expr]) -> list[exp.Expr]:
    """Restate ``a.ts < b.end`` as ``a.ts < b.start + length`` too.

    Where another condition reads the start as well, both together bound the column.
    """
    copies: list[exp.Expr] = []
    for side, relation in ((LEFT, join.left), (RIGHT, join.right)):
        for start, end, size_ms in _windows_of(relation):
            later = exp.Paren(this=exp.Add(this=column(start, side), expression=sql_interval(size_ms)))
            if not any(f"{side}.{start}" in named(condition) for condition in conditions):
                continue
            for condition in conditions:
                if f"{side}.{end}" in named(condition) and not isinstance(condition.unnest(), exp.EQ):
                    copies.append(condition.transform(_in_place_of, f"{side}.{end}", later))
    return copies


def _in_place_of(node: exp.Expr, qualified: str, other: exp.Expr) -> exp.Expr:
    return other.copy() if isinstance(node, exp.Column) and named(node) == {qualified} else node


def _windows_of(relation: Relation) -> list[tuple[str, str, int]]:
    """Return start column, end column and length of the relation's fixed-length windows."""
    match relation:
        case Aggregate(_, window) if window is not None and window.kind == "window":
            return [(window.start, window.end, window.size_ms)]
        case Select(child, outputs):
            new = {o.expression.name: o.name for o in outputs if isinstance(o.expression, exp.Column)}
            return [(new[start], new[end], size) for start, end, size in _windows_of(child) if start in new and end in new]
    return []


def types_of(relation: Relation) -> dict[str, str]:
    """Return the types of the columns that come unchanged from a stream."""
    match relation:
        case Scan(entry):
            return {field.name: field.type for field in entry.declaration.schema}
        case Select(child, outputs) | Aggregate(child, _, outputs):
            below = types_of(child)
            bare = {o.name: o.expression.name for o in outputs if isinstance(o.expression, exp.Column)}
            return {name: below[at] for name, at in bare.items() if at in below}
        case Union(children):
            first, *rest = (types_of(child) for child in children)
            return {name: type_ for name, type_ in first.items() if all(other.get(name) == type_ for other in rest)}
        case Join():
            of = {LEFT: types_of(relation.left), RIGHT: types_of(relation.right)}
            return {name: of[side][at] for name, side, at in relation.columns if at in of[side]}
    raise TypeError(f"no relation: {relation!r}")


def _side_of(expression: exp.Expr) -> str:
    """Return the single side whose columns the expression reads, or an empty text."""
    read = _sides_of(expression)
    return read.pop() if len(read) == 1 else ""


def _sides_of(expression: exp.Expr) -> set[str]:
    return {reference.table for reference in expression.find_all(exp.Column)}


def _without_table(node: exp.Expr) -> exp.Expr:
    return in_place_of(node, column(node.name)) if isinstance(node, exp.Column) else node


def _read_by(child: Relation, expressions: Iterable[exp.Expr]) -> list[str]:
    """Return the columns of ``child`` that are read, in its order. At least one, since a row needs a column."""
    read = {name for expression in expressions for name in named(expression)}
    return [name for name in child.names if name in read] or [child.names[0]]


def _distinct(conditions: Iterable[exp.Expr]) -> Conditions:
    return tuple({canonical_expression(condition): condition for condition in conditions}.values())


def _flat(children: Iterable[Relation]) -> Union:
    flat: list[Relation] = []
    for child in children:
        flat += child.children if isinstance(child, Union) else (child,)
    return Union(tuple(flat))
