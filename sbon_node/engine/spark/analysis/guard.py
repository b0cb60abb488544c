"""Check of Spark's own parse of a fragment against an allowlist; nothing is run.

The second of two checks; the planner and every host make the first on the SQL text (``query.allowlist``).
"""

import re
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sbon_node.engine.spark.analysis.expressions import each, kind_of
from sbon_node.planning.sql.checks import functions
from sbon_protocol.errors import SbonError

PLAN_NODES = frozenset({"Project", "Filter", "UnresolvedRelation", "SubqueryAlias", "Aggregate", "Join"})
JOINS = frozenset({"Inner", "LeftOuter", "RightOuter", "FullOuter", "LeftSemi"})
_EXPRESSIONS = """
Add Alias And Between BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CaseWhen Cast Concat DateAdd Divide Elt EqualNullSafe
EqualTo Extract GreaterThan GreaterThanOrEqual ILike In IntegralDivide IsNotNull IsNull LessThan LessThanOrEqual Like LikeAll
LikeAny Literal Multiply Not NotLikeAll NotLikeAny Or Overlay Position RLike Remainder StringLocate StringTrim StringTrimLeft
StringTrimRight Substring Subtract TimestampAdd TimestampAddInterval TimestampDiff Trim
UnaryMinus UnaryPositive UnresolvedAlias UnresolvedAttribute
UnresolvedExtractValue UnresolvedFunction UnresolvedStar
"""
EXPRESSIONS = frozenset(_EXPRESSIONS.split())
_GRAMMAR = "between cast decimal div extract mod overlay position substring timestampadd timestampdiff trim try_cast"
GRAMMAR = frozenset(_GRAMMAR.split())
"""Functions that Spark's parser produces from the SQL grammar itself."""
FUNCTIONS = frozenset(
    (*functions.ALLOWED, *GRAMMAR, *functions.ALLOWED_AGGREGATES, *functions.SKETCH_AGGREGATES, *functions.WINDOW_COLUMNS)
)
REFLECTIVE = ("reflect", "java_method", "try_reflect")
MAX_NODES = 20_000
MAX_ALLOWED = 500
_allowed: dict[tuple[str, int], None] = {}
"""Fragments that this process has allowed, with the numbers of their views, the oldest first; Spark parses them all alike."""


def fenced_session(session: SparkSession) -> SparkSession:
    """Return a session with views of its own and without the functions that call into Java."""
    own = session.newSession()
    registry = own._jsparkSession.sessionState().functionRegistry()
    some = own._jvm.scala.Some
    for name in REFLECTIVE:
        identifier = own._jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name, some("builtin"), some("system"))
        registry.dropFunction(identifier)
    return own


def check(session: SparkSession, fragment: str, inputs: int) -> None:
    """Check a fragment; raises :class:`SbonError` ``forbidden-sql``, ``unsupported-pattern`` or ``bad-sql``."""
    if (fragment, inputs) in _allowed:
        return
    try:
        plan = session._jsparkSession.sessionState().sqlParser().parsePlan(fragment)
    except Exception as error:
        raise sql_error(error) from error
    views = {f"in{i}" for i in range(inputs)}
    _check_plan(plan, views, [MAX_NODES])
    _allowed[fragment, inputs] = None
    if len(_allowed) > MAX_ALLOWED:
        del _allowed[next(iter(_allowed))]


def _check_plan(plan: Any, views: set[str], budget: list[int]) -> None:
    name = plan.nodeName()
    _spend(budget)
    kind = kind_of(plan)
    if kind not in PLAN_NODES:
        raise SbonError("forbidden-sql", f"{name} is not allowed in a fragment", where="fragment")
    if kind == "UnresolvedRelation" and plan.tableName() not in views:
        raise SbonError("forbidden-sql", f"the relation {plan.tableName()} is not an input", where="fragment")
    if kind == "Join" and plan.joinType().toString() not in JOINS:
        raise SbonError("forbidden-sql", f"a {plan.joinType().sql()} join is not allowed in a fragment", where="fragment")
    for expression in each(plan.expressions()):
        _check_expression(expression, budget)
    for child in each(plan.children()):
        _check_plan(child, views, budget)


def _check_expression(expression: Any, budget: list[int]) -> None:
    _spend(budget)
    kind = kind_of(expression)
    if kind not in EXPRESSIONS:
        raise SbonError("forbidden-sql", f"{expression.prettyName()} is not allowed in a fragment", where="fragment")
    if kind == "UnresolvedFunction":
        function = expression.nameParts().mkString(".").lower()
        if function not in FUNCTIONS:
            raise SbonError("forbidden-sql", f"the function {function} is not allowed", where="fragment")
        if (position := functions.PATTERNS.get(function, MAX_NODES)) < expression.children().size():
            _check_pattern(expression.children().apply(position))
    elif kind == "RLike":
        _check_pattern(expression.right())
    for child in each(expression.children()):
        _check_expression(child, budget)


def _check_pattern(expression: Any) -> None:
    """Refuse what RE2 does not accept, in the value that Spark has read: it knows more escapes than the check of the text."""
    if kind_of(expression) != "Literal":
        raise SbonError(functions.BAD_PATTERN, functions.NO_LITERAL, where="fragment")
    value = expression.value()
    if value is not None and (fault := functions.fault_of(str(value))):
        raise SbonError(functions.BAD_PATTERN, fault, where="fragment", hint=functions.PATTERN_HINT)


def _spend(budget: list[int]) -> None:
    budget[0] -= 1
    if budget[0] < 0:
        raise SbonError("forbidden-sql", f"more than {MAX_NODES} parts", where="fragment")


def sql_error(error: Exception) -> SbonError:
    """Convert Spark's parse or analysis error: code, first line, and line and column if known."""
    if not isinstance(error, PySparkException):
        lines = [line.removeprefix(": ") for line in str(error).splitlines() if not line.startswith("An error occurred while")]
        return SbonError("bad-sql", (lines or [type(error).__name__])[0][:500], where="fragment")
    condition = (error.getCondition() or "bad-sql").split(".")[0].lower().replace("_", "-")
    message = re.sub(r"^\[[A-Z_.]+\]\s*", "", str(error).strip().split("\n")[0])
    message = re.sub(r"\s*SQLSTATE: \w+.*$", "", message)
    position = re.search(r"[lL]ine (\d+),? pos(?:ition)? (\d+)", str(error))
    where = f"line {position[1]}, column {int(position[2]) + 1}" if position else "fragment"
    return SbonError(condition, message[:500], where=where)
