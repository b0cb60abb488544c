"""Contents of the suite: readable queries, refused ones, and streams out of order but never late."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbon_lab.suite.cases import Case, cases, refusals
from sbon_lab.suite.reference import Reference, differences
from sbon_lab.suite.streams import SITES, SuiteStream, write_streams
from sbon_node.connectors.sources.event_time import EventTime
from sbon_node.connectors.sources.file import FileOptions, FileSource
from sbon_node.model.schema import to_arrow
from sbon_node.planning.sql.relations.reader import read_query
from sbon_node.planning.sql.rewrite.pushdown import push_down
from sbon_node.planning.sql.settings import QuerySettings
from sbon_node.planning.sql.stages.cut import Stage, cut
from sbon_protocol.api.catalogue import CatalogEntry
from sbon_protocol.errors import SbonError
from tests.connectors.source_context import context_of
from tests.suite.shapes import KINDS, SAMPLE, shapes
from tests.suite.virtual import planned


def stages(case: Case, streams: dict[str, SuiteStream]) -> tuple[Stage, ...]:
    catalog = {name: CatalogEntry(declaration=of.declaration, sources=of.sources()) for name, of in streams.items()}
    return cut(push_down(read_query(case.sql, catalog, QuerySettings())), case.sql)


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_a_query_is_cut_into_stages(case: Case, streams: dict[str, SuiteStream]) -> None:
    assert stages(case, streams)


@pytest.mark.parametrize("case", refusals(), ids=lambda case: case.name)
def test_a_query_without_end_is_refused_with_its_reason(case: Case, streams: dict[str, SuiteStream]) -> None:
    with pytest.raises(SbonError) as refused:
        stages(case, streams)
    assert refused.value.code == case.refused
    assert refused.value.where.startswith("line ")
    assert refused.value.hint


def test_there_are_queries_enough() -> None:
    known = {case.name for case in (*cases(), *refusals())}
    assert {f"nexmark_q{number}" for number in (0, 1, 2, 3, 4, 5, 7, 8)} <= known
    assert len({case.sql for case in cases()}) == len(cases()) >= 80


def test_the_sample_has_every_shape_of_a_stage(streams: dict[str, SuiteStream]) -> None:
    of = {case.name: shapes(stages(case, streams)) for case in cases()}
    every, sampled = set().union(*of.values()), set().union(*(of[name] for name in SAMPLE))
    assert len(every) >= 20
    assert {shape: [name for name in of if shape in of[name]] for shape in every - sampled} == {}


@pytest.mark.parametrize(
    "kind", ["rows of a stream", "tumbling", "sliding", "session", "keys", "inner join", "left join", "a union of"]
)
def test_every_kind_of_operator_runs_on_spark(streams: dict[str, SuiteStream], kind: str) -> None:
    of = {case.name: shapes(stages(case, streams)) for case in cases() if case.name in KINDS}
    assert [name for name in of if any(kind in shape for shape in of[name])]


def test_partial_aggregates_run_on_spark(streams: dict[str, SuiteStream]) -> None:
    plans = [planned(case, streams) for case in cases() if case.name in KINDS]
    assert any(operator.groups_per_batch for plan in plans for operator in plan.operators)


async def test_rows_come_out_of_order_and_none_is_late(streams: dict[str, SuiteStream]) -> None:
    disordered = set()
    for name, stream in streams.items():
        assert set(stream.files) == set(SITES)
        for source in stream.sources():
            schema = to_arrow(stream.declaration.schema)
            reader = FileSource(context_of(schema, event_time=stream.declaration.event_time), FileOptions(**source.options))
            time = EventTime(stream.declaration.event_time, stream.declaration.delay_ms)
            rows, greatest = 0, -1
            await reader.open(None)
            while (chunk := await reader.read()) is not None:
                assert chunk.bad == ()
                sorted_ = time.sort(chunk.rows)
                assert (sorted_.late, sorted_.refused) == (0, ())
                time.advance(sorted_)
                rows += chunk.rows.num_rows
                for value in chunk.rows.column(stream.declaration.event_time).cast("int64").to_pylist():
                    disordered |= {name} if value < greatest else set()
                    greatest = max(greatest, value)
            await reader.close()
            assert rows == stream.rows[source.name]
    assert disordered == set(streams) - {"deploys"}


@pytest.mark.one_part_per_commit("suite queries beside faults", parts=6)
def test_the_same_seed_makes_the_same_input(streams: dict[str, SuiteStream], tmp_path: Path) -> None:
    for name, stream in write_streams(tmp_path).items():
        for site, file in stream.files.items():
            assert file.read_bytes() == streams[name].files[site].read_bytes()


@pytest.mark.one_part_per_commit("suite queries beside faults", parts=6)
def test_differences_between_two_results_are_listed(streams: dict[str, SuiteStream]) -> None:
    reference = Reference(streams)
    rows = reference.answer(next(case for case in cases() if case.name == "nexmark_q2"))
    assert differences(reversed(rows), rows) == []
    assert differences(rows[1:], rows)[0] == f"{len(rows) - 1} rows, {len(rows)} expected"
    assert differences([*rows[1:], rows[1]], rows)
    assert differences([(auction, price * (1 + 1e-7)) for auction, price in rows], rows)
