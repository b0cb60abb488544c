"""Catalyst's expressions: the errors they may raise for a row, and the form that can run.

A node on no list may raise. The lists only save work: an expression that cannot fail is left as it is.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyspark.sql import SparkSession

from sbon_node.planning.sql.syntax.lexical import words

NEVER_RAISES = words("""
    Alias And ArrayContains Ascii AttributeReference BitLength BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CaseWhen Coalesce Concat
    ConcatWs Contains CreateArray CreateNamedStruct DayOfMonth DayOfWeek DayOfYear EndsWith EqualNullSafe EqualTo Exp
    GetStructField GreaterThan GreaterThanOrEqual Greatest Hour If In InSet InitCap IsNaN IsNotNull IsNull
    KnownFloatingPointNormalized
    KnownNotNull KnownNullable Least Length LessThan LessThanOrEqual Literal Lower Md5 Minute Month Murmur3Hash Not OctetLength Or
    PreciseTimestampConversion Quarter Second SessionWindow Sqrt StartsWith StringInstr StringReverse StringTrim StringTrimLeft
    StringTrimRight Substring TimeWindow TruncTimestamp TryEval Upper WeekDay WeekOfYear WindowTime XxHash64 Year""")
TIME_PIECES = frozenset({"PreciseTimestampConversion", "SessionWindow", "TimeWindow", "WindowTime"})
"""Spark's own arithmetic for windows of event time; it is no expression of the user's."""
CONDITIONAL = frozenset({"And", "CaseWhen", "Coalesce", "If", "Or"})
"""Nodes that do not always run all of their children."""
FLOATS = ("double", "float")
_SUMS = frozenset({"Abs", "Add", "Multiply", "Subtract", "UnaryMinus", "UnaryPositive"})
_QUOTIENTS = frozenset({"Divide", "Remainder", "Pmod"})
_PACKAGE = "org.apache.spark.sql.catalyst.expressions"


class Expressions:
    """The expressions of one session."""

    def __init__(self, session: SparkSession) -> None:
        assert session._jvm is not None
        self.jvm: Any = session._jvm
        self.catalyst = self.jvm.org.apache.spark.sql.catalyst.expressions
        self._replaceable = self.jvm.java.lang.Class.forName(
            f"{_PACKAGE}.RuntimeReplaceable", False, self.jvm.java.lang.Thread.currentThread().getContextClassLoader()
        )

    def seq(self, elements: Iterable[Any]) -> Any:
        """Return a Scala sequence."""
        return self.jvm.PythonUtils.toSeq(list(elements))

    def with_children(self, node: Any, children: list[Any]) -> Any:
        """Return the node with these children."""
        return node.withNewChildren(self.seq(children))

    def plain(self, expression: Any, known: Mapping[str, Any] | None = None) -> Any:
        """Return the expression as it runs.

        Expressions that Spark's optimiser would replace are replaced; common expressions, which it would compute in advance,
        where no error is caught, are inlined.
        """
        known = known or {}
        kind = kind_of(expression)
        if kind == "CommonExpressionRef":
            return known[expression.id().toString()]
        if kind == "With":
            for definition in each(expression.defs()):
                known = {**known, definition.id().toString(): self.plain(definition.child(), known)}
            return self.plain(expression.child(), known)
        if self._replaceable.isInstance(expression):
            return self.plain(expression.replacement(), known)
        children = list(each(expression.children()))
        plain = [self.plain(child, known) for child in children]
        changed = any(child is not other for child, other in zip(plain, children, strict=True))
        return self.with_children(expression, plain) if changed else expression

    def may_raise(self, expression: Any) -> bool:
        """Return whether any part of a :meth:`plain` expression may raise. For constants the answer is exact."""
        if expression.foldable():
            return self.fault(expression) is not None
        return self.raises(expression) or any(self.may_raise(child) for child in each(expression.children()))

    def fault(self, constant: Any) -> Exception | None:
        """Return the error that a :meth:`plain` constant raises, if any."""
        if kind_of(constant) == "Literal":
            return None
        try:
            constant.eval(None)
        except Exception as error:  # noqa: BLE001 - whatever it raises is the fault
            return None if "Cannot evaluate expression" in str(error) else error
        return None

    def raises(self, node: Any) -> bool:
        """Return whether the node itself may raise, regardless of its children."""
        kind = kind_of(node)
        if kind in NEVER_RAISES:
            return False
        if kind == "Cast":
            from_, to = node.child().dataType(), node.dataType()
            widens = to.simpleString() == "string" or self.catalyst.Cast.canUpCast(from_, to)
            return not widens and str(node.evalMode().toString()) == "ANSI"
        if kind in _SUMS:
            return node.dataType().simpleString() not in FLOATS
        if kind in _QUOTIENTS and node.dataType().simpleString() in FLOATS:
            divisor = node.right()
            return not (divisor.foldable() and divisor.eval(None) not in (None, 0.0))
        if kind in ("TimestampAddInterval", "TimeAdd"):
            return not node.children().apply(1).foldable()
        return True

    def try_eval(self, expression: Any) -> Any:
        """Return an expression that is NULL where ``expression`` raises."""
        return self.catalyst.TryEval(expression)

    def literal(self, value: Any, type_: Any) -> Any:
        return self.catalyst.Literal(value, type_)

    def text(self, value: str) -> Any:
        of_jvm = self.jvm.org.apache.spark.unsafe.types.UTF8String.fromString(value)
        return self.literal(of_jvm, self.jvm.org.apache.spark.sql.types.DataTypes.StringType)

    def struct(self, values: Iterable[tuple[str, Any]]) -> Any:
        """Return a named struct, which is never NULL itself."""
        return self.catalyst.CreateNamedStruct(
            self.seq(argument for name, value in values for argument in (self.text(name), value))
        )

    def field(self, struct: Any, position: int) -> Any:
        return self.catalyst.GetStructField(struct, position, self.jvm.scala.Option.empty())

    def alias(self, expression: Any, name: str) -> Any:
        none = self.jvm.scala.Option.empty()
        fresh = self.catalyst.NamedExpression.newExprId()
        return self.catalyst.Alias(expression, name, fresh, self.seq([]), none, self.seq([]))

    def aggregate(self, function: str, session: SparkSession, *arguments: Any) -> Any:
        """Return an aggregate of Spark's by its name."""
        some = self.jvm.scala.Some
        identifier = self.jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(function, some("builtin"), some("system"))
        registry = session._jsparkSession.sessionState().functionRegistry()
        return registry.lookupFunction(identifier, self.seq(arguments)).toAggregateExpression()

    def smallest(self, value: Any, most: int) -> Any:
        """Return an aggregate that collects the ``most`` smallest values, in order, and never more in memory."""
        return self.catalyst.aggregate.CollectTopK(value, most, True, 0, 0).toAggregateExpression()


def each(sequence: Any) -> Iterator[Any]:
    """Yield the elements of a Scala sequence."""
    for index in range(sequence.size()):
        yield sequence.apply(index)


def kind_of(node: Any) -> str:
    """Return the simple name of its class."""
    return str(node.getClass().getSimpleName())


def walk(node: Any) -> Iterator[Any]:
    """Yield the node and all below it, parents first."""
    yield node
    for child in each(node.children()):
        yield from walk(child)
