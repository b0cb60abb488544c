"""Which stages can be computed from another query's operator, and how: a file of both kinds."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_node.model.running_computation import RunningComputation
from sbon_node.planning.sql.sharing.containment import Residual, read_offer, residual
from sbon_node.planning.sql.stages.fragments import fragment_of
from tests.planning.sql.duck import Duck
from tests.planning.sql.random_queries import CATALOG, table
from tests.planning.sql.sharing.duck_schemas import schemas_of
from tests.planning.sql.sharing.shared_stages import offer_of, shared, signed, stages_of, wanted_of

TEXT = (Path(__file__).parent / "containment.sql").read_text(encoding="utf-8")
BLOCK = re.compile(r"^-- (?P<kind>shared|alone): (?P<what>.*)\n(?P<lines>(?:(?!--).*\n)+)", re.MULTILINE)
CASES = {one["what"]: (one["kind"], one["lines"].splitlines()) for one in BLOCK.finditer(TEXT)}

DUCK = Duck()
DUCK.holds({name: table(random.Random(name)) for name in CATALOG})
SCHEMAS = schemas_of(DUCK)


def of_results(wanted: str, offered: str) -> Residual | None:
    """How the result of one query is computed from that of the other."""
    last = signed(stages_of(wanted, CATALOG)[-1]), signed(stages_of(offered, CATALOG)[-1])
    ways = shared(wanted, offered, CATALOG, SCHEMAS)
    return next((one.residual for one in ways if (signed(one.stage), signed(one.offered)) == last), None)


@pytest.mark.parametrize("what", CASES)
def test_stages_are_shared_as_the_file_says(what: str) -> None:
    kind, (wanted, offered, *fragment) = CASES[what]
    found = of_results(wanted, offered)
    assert ([fragment_of(found.relation)] if found is not None else []) == fragment
    assert bool(fragment) == (kind == "shared")


def test_the_file_is_read() -> None:
    assert len(CASES) == len(re.findall(r"^-- (?:shared|alone): ", TEXT, re.MULTILINE)) >= 50


FINE = "SELECT window.start AS w, window.end AS e, count(*) AS n FROM u GROUP BY window(ts, '15 minutes')"
COARSE = "SELECT window.start AS w, window.end AS e, count(*) AS n FROM u GROUP BY window(ts, '1 hour')"
JOIN = "SELECT x.ts, x.a, y.ts AS t FROM u x JOIN v y ON x.a = y.a AND y.ts BETWEEN x.ts - INTERVAL '{}' HOUR AND x.ts"


def found_of(wanted: str, offered: str) -> Residual:
    found = of_results(wanted, offered)
    assert found is not None
    return found


def test_ends_of_windows_close_the_coarser_window_at_once() -> None:
    """The window of ends is a millisecond later, and so are its readers; a minute of a start would be a minute of waiting."""
    found = found_of(COARSE, FINE)
    assert (found.event_time, found.lag_ms, found.later_ms) == ("e", 0, 1)


def test_starts_of_windows_lag_by_their_length() -> None:
    found = found_of(COARSE, FINE.replace("window.end AS e, ", ""))
    assert (found.event_time, found.lag_ms, found.later_ms) == ("w", 15 * 60_000, 0)


def test_a_longer_join_makes_its_readers_wait() -> None:
    found = found_of(JOIN.format(1), JOIN.format(3))
    assert (found.event_time, found.later_ms, found.width_ms) == ("", 2 * 3_600_000, 3 * 3_600_000 + 1)


def test_event_time_that_must_follow_is_not_lost() -> None:
    """The second query reads its windows by another time, whose lag the host does not know to be less."""
    (_, stage), (_, other) = stages_of(COARSE, CATALOG), stages_of(FINE, CATALOG)
    offer = offer_of(other, SCHEMAS)
    spec = offer.computation.inputs[0]
    wanted = wanted_of(stage, SCHEMAS)
    assert residual(wanted, _read(offer)) is not None
    changed = msgspec.structs.replace(spec, event_time="b")
    assert residual(wanted, _read(_changed(offer, inputs=(changed,)))) is None


def test_groups_without_state_are_of_single_batches() -> None:
    """Without the time of its groups an operator keeps no state; a host may say otherwise."""
    (_, other) = stages_of(FINE, CATALOG)
    offer = offer_of(other, SCHEMAS)
    (spec,) = offer.computation.inputs
    assert read_offer(_changed(offer, inputs=(msgspec.structs.replace(spec, event_time=""),))) is None


def _read(offer: RunningComputation) -> Any:
    read = read_offer(offer)
    assert read is not None
    return read


def _changed(offer: RunningComputation, **fields: Any) -> RunningComputation:
    return msgspec.structs.replace(offer, computation=msgspec.structs.replace(offer.computation, **fields))


PLAIN = "SELECT ts, a, b FROM u WHERE a > 5"


@pytest.mark.parametrize("fields", [{"on_error": "skip"}, {"on_error": "null"}, {"groups_per_batch": True}], ids=str)
def test_rows_that_hang_on_more_than_the_relation_are_not_offered(fields: dict[str, Any]) -> None:
    offer = offer_of(stages_of(PLAIN, CATALOG)[-1], SCHEMAS)
    assert read_offer(offer) is not None
    assert read_offer(_changed(offer, **fields)) is None


def test_a_query_that_skips_rows_shares_equal_stages_only() -> None:
    stage = stages_of(PLAIN, CATALOG)[-1]
    read = _read(offer_of(stage, SCHEMAS))
    assert residual(wanted_of(stage, SCHEMAS), read) is not None
    assert residual(wanted_of(stage, SCHEMAS, "skip"), read) is None


@pytest.mark.parametrize(
    "fragment",
    [
        "SELECT ts, a, b FROM in0 WHERE a > 5 ORDER BY a",
        "SELECT ts, a, b FROM in0 WHERE a > rand()",
        "SELECT ts, a, reflect('java.lang.System', 'exit', b) AS b FROM in0",
        "SELECT ts, a, b FROM in1",
        "SELECT ts, a, b FROM in0; SELECT 1",
        "SELECT ts, a, c FROM in0",
        "SELECT ts, a, in0.b FROM in0",
        "SELECT * FROM in0",
        "SELECT ts, a, b, a AS A FROM in0",
        "SELECT ts, a, b FROM (SELECT * FROM in0) AS x",
        "SELECT ts, a, count(*) AS b FROM in0 GROUP BY ts, a",
        "SELECT ts, a, b FROM in0 WHERE " + "(" * 200 + "a" + ")" * 200 + " > 5",
        "SELECT ts, a, b FROM in0 WHERE a" + " + a" * 500 + " > 5",
        "SELECT ts, a, b FROM in0 WHERE s = '" + "x" * 200_000 + "'",
        "",
    ],
    ids=lambda fragment: fragment[:60],
)
def test_a_fragment_that_no_planner_writes_is_not_read(fragment: str) -> None:
    offer = offer_of(stages_of(PLAIN, CATALOG)[-1], SCHEMAS)
    assert read_offer(_changed(offer, fragment=fragment)) is None


def test_inputs_and_their_signatures_belong_together() -> None:
    offer = offer_of(stages_of(PLAIN, CATALOG)[-1], SCHEMAS)
    spec = offer.computation.inputs[0]
    assert read_offer(msgspec.structs.replace(offer, inputs=())) is None
    assert read_offer(_changed(offer, inputs=(msgspec.structs.replace(spec, view=1),))) is None
    assert read_offer(_changed(offer, schema=offer.computation.schema[1:])) is None


def test_streams_of_other_types_are_not_the_same() -> None:
    stage = stages_of(PLAIN, CATALOG)[-1]
    offer = offer_of(stage, SCHEMAS)
    spec = offer.computation.inputs[0]
    longer = tuple(msgspec.structs.replace(one, type="bigint" if one.name == "a" else one.type) for one in spec.schema)
    other = _read(_changed(offer, inputs=(msgspec.structs.replace(spec, schema=longer),)))
    assert residual(wanted_of(stage, SCHEMAS), other) is None


def test_names_of_inputs_do_not_matter() -> None:
    """The same columns under other names, as they come from another query's stage."""
    offer = offer_of(stages_of(PLAIN, CATALOG)[-1], SCHEMAS)
    spec = offer.computation.inputs[0]
    renamed = tuple(msgspec.structs.replace(one, name=f"o_{one.name}") for one in spec.schema)
    fields = {"fragment": "SELECT o_ts AS ts, o_a AS a, o_b AS b FROM in0 WHERE o_a > 5"}
    other = _read(_changed(offer, inputs=(msgspec.structs.replace(spec, schema=renamed),), **fields))
    found = residual(wanted_of(stages_of("SELECT a AS x FROM u WHERE a > 7", CATALOG)[-1], SCHEMAS), other)
    assert found is not None
    assert fragment_of(found.relation) == "SELECT a AS x FROM in0 WHERE a > 7"
