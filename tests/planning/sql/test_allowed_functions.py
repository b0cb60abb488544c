"""Every allowed function keeps its name and arguments from the user's text to the fragment, and the lists do not overlap."""

from __future__ import annotations

import pytest
from sqlglot import exp

from sbon_node.planning.sql.checks.allowlist import check_fragment
from sbon_node.planning.sql.checks.functions import (
    ALLOWED,
    LITERAL_BOUNDS,
    LITERAL_TEXTS,
    PATTERNS,
    REFUSED,
)
from sbon_node.planning.sql.syntax.dialect import call_name, parse, render
from sbon_protocol.errors import SbonError


def call(name: str) -> str:
    arguments = ["a", "b", "c"]
    if name in LITERAL_BOUNDS:
        arguments[LITERAL_BOUNDS[name][0]] = "2"
    if name in LITERAL_TEXTS:
        arguments[LITERAL_TEXTS[name][0]] = "'x'"
    if name in PATTERNS:
        arguments[PATTERNS[name]] = "'x.*'"
    return f"{name}({', '.join(arguments)})"


@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_a_function_survives_the_round_trip(name: str) -> None:
    fragment = f"SELECT {call(name)} AS x FROM in0 WHERE {call(name)} = b"
    check_fragment(fragment, 1)
    tree = parse(fragment)[0]
    assert render(tree) == fragment
    found = [call_name(node) for node in tree.find_all(exp.Anonymous)]
    assert found == [name, name]


@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_case_does_not_matter(name: str) -> None:
    check_fragment(f"SELECT {call(name).replace(name, name.upper())} AS x FROM in0", 1)


def test_nothing_forbidden_is_allowed() -> None:
    for refused in REFUSED.values():
        assert refused
        assert not ALLOWED & refused


@pytest.mark.parametrize(
    "written, kept",
    [
        ("a / b", "a / b"),
        ("a DIV b", "a DIV b"),
        ("a % b", "a % b"),
        ("a == b", "a = b"),
        ("a != b", "a <> b"),
        ("a <=> b", "a IS NOT DISTINCT FROM b"),
        ("!a", "NOT a"),
        ("a || 'x'", "a || 'x'"),
        ("a RLIKE '\\\\d+'", "a RLIKE '\\\\d+'"),
        ("a NOT LIKE 'x!%' ESCAPE '!'", "a NOT LIKE 'x!%' ESCAPE '!'"),
        ("a BETWEEN 1 AND 2", "a BETWEEN 1 AND 2"),
        ("a NOT IN (1, 2)", "NOT a IN (1, 2)"),
        ("a IS NOT NULL", "NOT a IS NULL"),
        ("CASE a WHEN 1 THEN 'x' ELSE 'y' END", "CASE a WHEN 1 THEN 'x' ELSE 'y' END"),
        ("if(a > 1, 2, 3)", "if(a > 1, 2, 3)"),
        ("CAST(a AS decimal(10,2))", "CAST(a AS DECIMAL(10, 2))"),
        ("try_cast(a AS int)", "TRY_CAST(a AS INT)"),
        ("a::double", "CAST(a AS DOUBLE)"),
        ("CAST(a AS timestamp)", "CAST(a AS TIMESTAMP)"),
        ("DATE '2013-01-01'", "CAST('2013-01-01' AS DATE)"),
        ("TIMESTAMP '2013-01-01 00:00:00'", "CAST('2013-01-01 00:00:00' AS TIMESTAMP)"),
        ("a + INTERVAL 1 DAY", "a + INTERVAL '1' DAY"),
        ("a - INTERVAL '1 02' DAY TO HOUR", "a - INTERVAL '1 02' DAY TO HOUR"),
        ("extract(hour FROM a)", "EXTRACT(HOUR FROM a)"),
        ("timestampdiff(hour, a, b)", "timestampdiff(HOUR, a, b)"),
        ("trim(BOTH 'x' FROM a)", "TRIM(BOTH 'x' FROM a)"),
        ("to_timestamp(a)", "to_timestamp(a)"),
        ("date_format(a, 'yyyy-MM-dd')", "date_format(a, 'yyyy-MM-dd')"),
        ("get_json_object(a, '$.x.y[0]')", "get_json_object(a, '$.x.y[0]')"),
        ("split(a, ',')[0]", "split(a, ',')[0]"),
        ("- -1", "- -1"),
        ("1.10", "1.10"),
        ("1e3", "1e3"),
        ("3L", "CAST(3 AS BIGINT)"),
        ("X'ab'", "X'ab'"),
        ('"a\'b"', "'a\\'b'"),
        ("r'\\d'", "'\\\\d'"),
        ("`limit` + `Some name`", "`limit` + `Some name`"),
    ],
)
def test_an_expression_is_rendered_in_one_spelling(written: str, kept: str) -> None:
    text = f"SELECT {written} AS x FROM in0"
    tree = parse(text)[0]
    fragment = render(tree)
    assert fragment == f"SELECT {kept} AS x FROM in0"
    check_fragment(fragment, 1)
    assert render(parse(fragment)[0]) == fragment


@pytest.mark.parametrize("name", sorted(PATTERNS))
@pytest.mark.parametrize(
    "pattern, reason",
    [
        (r"'(a)\\1'", r"invalid escape sequence: \1"),
        ("'a(?=b)'", "invalid perl operator: (?="),
        ("'(?<!a)b'", "invalid perl operator: (?<!"),
        ("'a++'", "bad repetition operator: ++"),
        ("'(('", "missing )"),
        ("zz", "a regular expression is a literal"),
        ("concat('a', zz)", "a regular expression is a literal"),
    ],
)
def test_a_regular_expression_is_a_literal_that_re2_accepts(name: str, pattern: str, reason: str) -> None:
    arguments = ["a", "c", "'x'"]
    arguments[PATTERNS[name]] = pattern
    spellings = [f"{name}({', '.join(arguments)})", f"{name.upper()}({', '.join(arguments)})"]
    if name in ("rlike", "regexp"):
        spellings += [f"a {name} {pattern}", f"NOT a {name} {pattern}"]
    for spelling in spellings:
        text = f"SELECT {spelling} AS x FROM in0"
        with pytest.raises(SbonError) as refused:
            check_fragment(text, 1)
        assert refused.value.code == "unsupported-pattern"
        assert reason in refused.value.message
        assert refused.value.where == f"line 1, column {text.index(pattern) + 1}"


@pytest.mark.parametrize("pattern", [r"'\\d{3}-[a-z]+'", "'(?i)error|warning'", "'^(a|b)*$'", "NULL"])
def test_other_regular_expressions_are_allowed(pattern: str) -> None:
    check_fragment(f"SELECT a FROM in0 WHERE a RLIKE {pattern} AND regexp_like(b, {pattern})", 1)
