"""Times in text: what is a time and which one, compared with Python and DuckDB over right and wrong texts."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sbon_node.connectors.formats.columns import fitting, text_converter
from sbon_node.connectors.formats.times import check_timestamp_format
from sbon_protocol.errors import SbonError
from tests.examples_drawn import examples

TIMES = pa.timestamp("us", "UTC")
START = datetime(1970, 1, 1, tzinfo=UTC)


def read(texts: list[str], timestamp_format: str = "") -> list[Any]:
    """Return the time of each text in microseconds since 1970, ``bad`` for those that are refused."""
    convert = text_converter(TIMES, timestamp_format)
    times, misfits = fitting(pa.array([text.encode() for text in texts], pa.binary()), convert)
    found = iter(times.cast(pa.int64()).to_pylist())
    return ["bad" if i in misfits else next(found) for i in range(len(texts))]


def micros(time: datetime | None) -> Any:
    if time is None:
        return "bad"
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - START) // timedelta(microseconds=1)


DIGITS = st.one_of(
    st.just(""), st.integers(1, 12).flatmap(lambda size: st.text("0123456789", min_size=size, max_size=size)).map(".".__add__)
)
NEARLY = st.tuples(
    st.sampled_from(["2026", "0001", "9999", "1969", "2024", "0000", "26"]),
    st.sampled_from(["-", "-", "-", "/", ""]),
    st.sampled_from(["01", "02", "04", "12", "13", "00", "3"]),
    st.sampled_from(["01", "28", "29", "30", "31", "32", "00", "2"]),
    st.sampled_from(["T", "t", " ", "_", "", "  "]),
    st.sampled_from(["", "09", "23:59", "09:00:00", "23:59:59", "24:00:00", "23:60:00", "09:00:60", "9:00:00", "090000"]),
    DIGITS,
    st.sampled_from(["", "Z", "z", "+01", "+0130", "-12:30", "+24:00", "+01:60", " +01:00", "UTC", "+1"]),
).map(lambda p: f"{p[0]}{p[1]}{p[2]}{p[1]}{p[3]}{p[4]}{p[5]}{p[6]}{p[7]}")
ISO = re.compile(r"\d{4}-\d\d-\d\d([Tt ]\d\d(:\d\d(:\d\d(\.\d+)?)?)?([Zz]|[+-]\d\d(:?[0-5]\d)?)?)?")


def iso(text: str) -> Any:
    if ISO.fullmatch(text) is None:
        return "bad"
    year_0 = text.startswith("0000")  # which Python lacks; the calendar repeats every 400 years
    try:
        time: int = micros(datetime.fromisoformat(text.upper().replace("0000", "0400", 1) if year_0 else text.upper()))
        return time - year_0 * 146_097 * 86_400 * 10**6
    except ValueError:
        return "bad"


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(NEARLY, min_size=1, max_size=8))
@example(["2026-03-02T09:00:00.123456789Z", "2026-03-02T09:00:00.1234567", "1969-12-31T23:59:59.9999999Z"])
@example(["2026-03-02T09:00:00z", "2026-03-02t09:00:00Z", "2026-03-02 09:00:00"])
def test_times_in_iso_8601_are_those_of_python_and_duckdb(texts: list[str]) -> None:
    found = read(texts)
    assert found == [iso(text.strip()) for text in texts]  # space around a value does not count
    for text, time in zip(texts, found, strict=True):
        if time != "bad" and re.search(r"[Tt ]\d\d:\d\d", text):  # an hour alone is no time of DuckDB's
            assert duckdb.execute("SELECT epoch_us(CAST(? AS TIMESTAMPTZ))", [text.upper()]).fetchone() == (time,)


PATTERNS = [
    "%d/%m/%Y",
    "%Y%m%d",
    "%d.%m.%Y %H:%M:%S",
    "[%Y-%m-%dT%H:%M:%S.%f]",
    "%Y-%m-%d %H:%M:%S%z",
    "%m/%d/%y %I:%M:%S %p",
    "%d/%b/%Y:%H:%M:%S %z",
    "%a, %d %B %Y",
    "%A %d. %m. %Y",
    "%Y-%j",
    "%Y %U %w",
    "%Y week %W %a",
    "%G-W%V-%u",
    "%c",
    "%x %X",
    "%H:%M %d %m %Y %%",
]


@st.composite
def written(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A pattern and texts: times in its form, some with digits or letters changed so that they may be no times."""
    pattern = draw(st.sampled_from(PATTERNS))
    texts = []
    for time in draw(st.lists(st.datetimes(datetime(1000, 1, 1), timezones=st.just(UTC)), min_size=1, max_size=6)):
        text = time.strftime(pattern)
        if draw(st.booleans()):
            at = draw(st.integers(0, len(text) - 1))
            text = text[:at] + draw(st.sampled_from("0123459 /:.-+aZ")) + text[at + 1 :]
        if draw(st.integers(0, 4)) == 0:
            text = re.sub(r"\d\d", lambda match: draw(st.sampled_from(["29", "30", "31", "60", match[0]])), text, count=1)
        texts.append(text)
    return pattern, texts


def by_python(text: str, pattern: str) -> Any:
    try:
        return micros(datetime.strptime(text.strip(), pattern))
    except ValueError:
        return "bad"


@settings(max_examples=examples(300), deadline=None)
@given(written())
@example(("%d/%m/%Y", ["31/02/2026", "29/02/2025", "31/04/2026", "28/02/2026", "29/02/2024"]))
@example(("%d.%m.%Y %H:%M:%S", ["1.2.2026 03:04:05", "01.02.2026 03:04:60", "01.02.2026  03:04:05"]))
@example(("%Y-%j", ["2026-366", "2024-366"]))
def test_times_by_a_pattern_are_those_of_python(case: tuple[str, list[str]]) -> None:
    pattern, texts = case
    check_timestamp_format(pattern)
    expected = [by_python(text, pattern) for text in texts]
    assert read(texts, pattern) == expected
    if re.sub("%[dmYHMS]", "", pattern).strip("./ :-") == "":
        known = duckdb.execute(
            "SELECT epoch_us(try_strptime(unnest(?), ?))", [[text.strip() for text in texts], pattern]
        ).fetchall()
        # DuckDB takes fewer digits than Python in some places; what both take is the same time.
        assert [t for t, (k,) in zip(expected, known, strict=True) if k is not None and t != "bad"] == [
            k for t, (k,) in zip(expected, known, strict=True) if k is not None and t != "bad"
        ]


EPOCHS = st.from_regex(r"-?[0-9]{1,13}(\.[0-9]{1,12})?(e-?[0-9])?", fullmatch=True)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(EPOCHS, min_size=1, max_size=5), st.sampled_from([("epoch_s", 10**6), ("epoch_ms", 10**3)]))
@example(["253402300799.999999", "-0.0000001", "nan", "0x1", "1e999999999", "0e999999999", "+5", "1" * 500], ("epoch_s", 10**6))
def test_seconds_and_milliseconds_since_1970_are_exact(texts: list[str], unit: tuple[str, int]) -> None:
    expected: list[Any] = []
    for text in texts:
        is_number = re.fullmatch(r"[+-]?\d+(\.\d+)?(e-?\d)?", text)
        time = math.floor(Fraction(text) * unit[1]) if is_number and len(text) < 400 else 2**63
        time = 0 if re.fullmatch(r"[+-]?0+(\.0+)?e\d+", text) else time  # of any exponent
        expected.append(time if -(2**63) <= time < 2**63 else "bad")
    assert read(texts, unit[0]) == expected


@pytest.mark.parametrize("directive", "aAwdbBmyYHIpMSfzjUWcxXGuV%TRFDehnt")
def test_each_directive_is_read_or_refused_when_attached(directive: str) -> None:
    pattern = (
        f"%Y-%m-%d %{directive}"
        if directive not in "dmYcxFDeGuV"
        else {"G": "%G %V %u", "u": "%G %V %u", "V": "%G %V %u"}.get(directive, f"%{directive}")
    )
    check_timestamp_format(pattern)
    time = datetime(2026, 3, 2, 15, 4, 5, tzinfo=UTC)
    (found,) = read([time.strftime(pattern)], pattern)
    assert found != "bad"


@pytest.mark.parametrize("pattern", ["%Y-%m-%d %Z", "%s", "%Y %Y", "%d/%m/%", "%Q", "%G-%m-%d", "%C%y"])
def test_patterns_that_would_ignore_or_never_read_a_text_are_refused(pattern: str) -> None:
    with pytest.raises(SbonError) as refused:
        check_timestamp_format(pattern)
    assert (refused.value.code, refused.value.where) == ("bad-option", "options.timestamp_format")
