"""Files as sources: every good row once, every bad row with its line, from any restart position."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbon_node.connectors.interface import BadRow, Chunk
from sbon_node.connectors.options import read_options
from sbon_node.connectors.settings import ConnectorSettings
from sbon_node.connectors.sources.file import FileOptions, FileSource
from sbon_node.model.schema import parse_schema, to_arrow
from sbon_protocol.errors import SbonError
from tests.connectors.source_context import context_of
from tests.examples_drawn import examples

US = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("ts", US), ("n", pa.int64()), ("text", pa.string())])
SMALL = ConnectorSettings(block_bytes=1024, max_record_bytes=2048)


def source(path: Path, schema: pa.Schema = SCHEMA, limits: ConnectorSettings = SMALL, **options: Any) -> FileSource:
    read = read_options(FileOptions, {"path": str(path), **options}, "file")
    return FileSource(context_of(schema, limits), read)


async def take(one: FileSource, position: bytes | None = None) -> list[Chunk]:
    await one.open(position)
    chunks = []
    while (chunk := await one.read()) is not None:
        chunks.append(chunk)
    await one.close()
    return chunks


def read(one: FileSource, position: bytes | None = None) -> tuple[list[dict[str, Any]], list[BadRow], list[Chunk]]:
    chunks = asyncio.run(take(one, position))
    return [row for c in chunks for row in c.rows.to_pylist()], [bad for c in chunks for bad in c.bad], chunks


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def resumes_everywhere(one: FileSource) -> None:
    rows, bad, chunks = read(one)
    seen_rows = seen_bad = 0
    assert len(chunks) > 2
    for number, chunk in enumerate(chunks):
        seen_rows += chunk.rows.num_rows
        seen_bad += len(chunk.bad)
        if number % (1 + len(chunks) // 100):
            continue
        again_rows, again_bad, _ = read(one, chunk.position)
        assert (again_rows, again_bad) == (rows[seen_rows:], bad[seen_bad:])
    assert (seen_rows, seen_bad) == (len(rows), len(bad))


CSV = "ts,extra,n,text\n" + "".join(
    f'2013-01-01T00:{i // 60:02d}:{i % 60:02d}Z,x,{i},"say ""{i}"", twice\nand on"\n'
    if i % 3
    else f"2013-01-01 00:00:{i % 60:02d},,NA,{i}\n"
    for i in range(300)
)


def test_csv_is_what_duckdb_reads(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", CSV)
    rows, bad, _ = read(source(path, null="NA"))
    assert not bad
    types = "types={'ts': 'TIMESTAMP', 'n': 'BIGINT', 'text': 'VARCHAR'}"
    query = f"SELECT epoch_us(ts), n, text FROM read_csv('{path}', nullstr='NA', {types})"
    expected = duckdb.sql(query).fetchall()
    assert [(round(r["ts"].timestamp() * 1e6), r["n"], r["text"]) for r in rows] == expected


@pytest.mark.parametrize("replay", [0, 3600])
def test_csv_resumes_at_every_chunk(tmp_path: Path, replay: float) -> None:
    lines = CSV.replace("2013-01-01T00:01:01Z", "yesterday").replace(",NA,30\n", ",NA\n")
    resumes_everywhere(source(write(tmp_path / "a.csv", lines), null="NA", replay=replay))


@pytest.mark.one_part_per_commit("files that are read on from every place", parts=3)
def test_a_position_survives_other_block_sizes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", CSV.replace(",NA,30\n", ",NA\n"))
    small = ConnectorSettings(block_bytes=1024, max_record_bytes=4096, linger_s=0.001)
    large = ConnectorSettings(block_bytes=4096, max_record_bytes=4096, linger_s=0.001)
    rows, bad, _ = read(source(path, null="NA", replay=1))
    for first, second in ((small, large), (large, small)):
        seen_rows = seen_bad = 0
        for number, chunk in enumerate(read(source(path, limits=first, null="NA", replay=1))[2]):
            seen_rows, seen_bad = seen_rows + chunk.rows.num_rows, seen_bad + len(chunk.bad)
            if number % 5:
                continue
            again = read(source(path, limits=second, null="NA", replay=1), chunk.position)
            assert again[:2] == (rows[seen_rows:], bad[seen_bad:])


BAD_CSV = [
    ("1,1,a", None),
    ("1,x,a", "n is no bigint: 'x'"),
    ("1,1", "2 columns, not 3"),
    ("1,1,a,b", "4 columns, not 3"),
    ("", ...),
    ("1,99999999999999999999,a", "n is no bigint"),
    ("later,1,a", "ts is no timestamp"),
    ("1,1,\udcff", "text is no string"),
    ('1,1,5"', None),
    ('1,1,"a\nb"', None),
    (' 1 , 7 ," c"', None),
    ("1,,", None),
]


def test_csv_bad_rows_have_their_line_and_reason(tmp_path: Path) -> None:
    text = "ts,n,text\n" + "\n".join(line for line, _ in BAD_CSV)
    path = write(tmp_path / "a.csv", text.encode("utf-8", "surrogateescape"))
    one = source(path, timestamp_format="epoch_s")
    rows, bad, chunks = read(one)
    line, expected = 2, []
    for record, reason in BAD_CSV:
        if isinstance(reason, str):
            expected.append((line, record, reason))
        line += record.count("\n") + 1
    assert [(b.line, b.text) for b in bad] == [
        (e[0], e[1].encode("utf-8", "surrogateescape").decode("utf-8", "replace")) for e in expected
    ]
    assert all(b.reason.startswith(e[2]) for b, e in zip(bad, expected, strict=True))
    assert [(r["n"], r["text"]) for r in rows] == [(1, "a"), (1, '5"'), (1, "a\nb"), (7, " c"), (None, None)]
    assert [chunks[0].origin(i)[0] for i in range(5)] == [2, 10, 11, 13, 14]


@pytest.mark.parametrize(
    "text, lines, left",
    [
        ('1,1,"open\n2,2,b\n3,3,c\n', [(2, "a quote is opened and not closed")], [2, 3]),
        ('1,1,"open', [(2, "a quote is opened and not closed")], []),
        (f"1,1,{'x' * 5000}\n2,2,b", [(2, "a line longer than 2,048 bytes")], [2]),
        (f"1,1,{'x' * 5000}", [(2, "a line longer than 2,048 bytes")], []),
        (f'1,1,a\n2,2,"{"x" * 1000}\n4,4,d\n' + "5,5,e\n" * 400, [(3, "a quote is opened")], [1, 4] + [5] * 400),
        (f'1,1,a\n2,2,"{"x" * 1500}\ny"\n4,4,d\n', [], [1, 2, 4]),
    ],
)
def test_csv_records_that_do_not_end_cost_one_line(
    tmp_path: Path, text: str, lines: list[tuple[int, str]], left: list[int]
) -> None:
    one = source(write(tmp_path / "a.csv", "ts,n,text\n" + text), timestamp_format="epoch_s")
    rows, bad, chunks = read(one)
    assert [r["n"] for r in rows] == left
    assert [b.line for b in bad] == [line for line, _ in lines]
    assert all(b.reason.startswith(reason) for b, (_, reason) in zip(bad, lines, strict=True))
    for chunk in chunks:
        read(one, chunk.position)


def test_csv_without_header_tabs_and_windows_ends(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", b'\xef\xbb\xbf2013-01-01\t1\ta\r\n2013-01-02T00:00:00+02:00\t2\t"b\tc"\r\n')
    rows, bad, _ = read(source(path, header="false"))
    assert [(r["ts"].isoformat(), r["n"], r["text"]) for r in rows] == [
        ("2013-01-01T00:00:00+00:00", 1, "a"),
        ("2013-01-01T22:00:00+00:00", 2, "b\tc"),
    ]
    assert not bad


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf"])
def test_an_empty_csv_is_called_empty_and_not_headless(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(SbonError) as refused:
        asyncio.run(take(source(write(tmp_path / "a.csv", content))))
    assert (refused.value.code, refused.value.where) == ("bad-header", "options.path")
    assert "empty" in refused.value.message
    assert "header=false" not in str(refused.value.hint)


def test_a_csv_that_begins_with_a_row_is_refused_with_the_option_for_it(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "2013-01-01T00:00:00Z,1.50,a\n")
    with pytest.raises(SbonError) as refused:
        source(path).check()
    assert refused.value.code == "missing-columns"
    assert "2013-01-01T00:00:00Z, 1.50, a" in str(refused.value.hint)
    assert "header=false (for sbon stream push: --no-header;" in str(refused.value.hint)
    write(path, "ts,1.50,a\n")
    with pytest.raises(SbonError) as refused:
        source(path).check()
    assert "header=false" not in str(refused.value.hint)


def test_column_names_that_look_like_values_stay_as_they_are(tmp_path: Path) -> None:
    schema = to_arrow(parse_schema("ts timestamp, true boolean, nan double"))
    rows, bad, _ = read(source(write(tmp_path / "a.csv", b"nan,007,ts,true,\xe4\n1.5,x,2013-01-01,true,y\n"), schema))
    assert [(row["true"], row["nan"]) for row in rows] == [(True, 1.5)]
    assert not bad


def test_columns_may_have_letters_of_any_script(tmp_path: Path) -> None:
    schema = to_arrow(parse_schema("ts timestamp, größe bigint, ä string"))
    path = write(tmp_path / "a.csv", "größe,ts,ä\n7,2013-01-01T00:00:00Z,ö\n")
    rows, bad, _ = read(source(path, schema))
    assert ([(row["größe"], row["ä"]) for row in rows], list(bad)) == ([(7, "ö")], [])


@pytest.mark.parametrize(
    "pattern, text, iso",
    [
        ("%d/%m/%Y %H:%M", "31/12/2013 23:59", "2013-12-31T23:59:00+00:00"),
        ("%Y%m%d %H:%M:%S.%f", "20131231 23:59:01.25", "2013-12-31T23:59:01.250000+00:00"),
        ("%Y-%m-%d %H:%M %z", "2013-12-31 23:59 +0100", "2013-12-31T22:59:00+00:00"),
        ("epoch_ms", "1500", "1970-01-01T00:00:01.500000+00:00"),
        ("epoch_s", "1.5", "1970-01-01T00:00:01.500000+00:00"),
    ],
)
def test_timestamp_formats(tmp_path: Path, pattern: str, text: str, iso: str) -> None:
    path = write(tmp_path / "a.csv", f"ts,n,text\n{text},1,a\nnever,1,a\n")
    rows, bad, _ = read(source(path, timestamp_format=pattern))
    assert [r["ts"].isoformat() for r in rows] == [iso]
    assert [b.line for b in bad] == [3]


@pytest.mark.parametrize("name, header", [("a.csv", "ts,n,text\n"), ("a.ndjson", "")])
def test_a_hole_before_the_text_is_no_text(tmp_path: Path, name: str, header: str) -> None:
    rows = "".join(f"2026-03-02T09:00:00Z,{i},a\n" if header else f'{{"n":{i}}}\n' for i in range(200))
    with open(tmp_path / name, "wb") as file:
        file.seek(1_000_000)
        file.write((header + rows).encode())
    one = source(tmp_path / name)
    one.check()
    found, bad, chunks = read(one)
    assert ([row["n"] for row in found], bad) == (list(range(200)), [])
    again, _, _ = read(one, chunks[0].position)
    assert again == found[chunks[0].rows.num_rows :]


FIELD = st.one_of(st.text(alphabet='ab",\n\r é', max_size=6), st.integers(0, 10**7).map(str))
LINE = st.one_of(
    st.tuples(st.integers(0, 10**6), FIELD).map(lambda x: ("good", x)),
    st.sampled_from(["1,2", "1,x,y", "?,1,y", "1,2,3,4", '1,1.5,"a,b"']).map(lambda x: ("bad", x)),
)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(LINE, max_size=60), st.integers(1024, 1100), st.booleans())
def test_csv_with_bad_lines_anywhere(tmp_path_factory: pytest.TempPathFactory, lines: list[Any], block: int, end: bool) -> None:
    out = io.StringIO()
    out.write("ts,n,text\n")
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    good, bad, line = [], [], 2
    for kind, value in lines:
        before = out.tell()
        if kind == "good":
            writer.writerow([str(value[0]), value[0], value[1]])
            good.append((value[0], value[1]))
        else:
            out.write(value + "\n")
            bad.append((line, value))
        line += out.getvalue()[before:].count("\n")
    content = out.getvalue()
    path = write(tmp_path_factory.mktemp("csv") / "a.csv", content if end else content[:-1])
    one = source(
        path, limits=ConnectorSettings(block_bytes=block, max_record_bytes=1024), timestamp_format="epoch_s", null="NULL"
    )
    rows, found, chunks = read(one)
    assert [(r["n"], r["text"]) for r in rows] == good
    assert [(b.line, b.text) for b in found] == bad
    if chunks:
        middle = chunks[len(chunks) // 2]
        seen = sum(c.rows.num_rows for c in chunks[: len(chunks) // 2 + 1])
        assert read(one, middle.position)[0] == rows[seen:]


@settings(max_examples=examples(150), deadline=None)
@given(st.binary(max_size=3000), st.sampled_from(["a.csv", "a.ndjson"]))
def test_arbitrary_bytes_are_rows_or_letters_and_never_an_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, name: str
) -> None:
    path = write(tmp_path_factory.mktemp("any") / name, b"ts,n,text\n" + content)
    one = source(path)
    rows, bad, chunks = read(one)
    seen_rows = seen_bad = 0
    for chunk in chunks:
        seen_rows, seen_bad = seen_rows + chunk.rows.num_rows, seen_bad + len(chunk.bad)
        again_rows, again_bad, _ = read(one, chunk.position)
        assert (again_rows, again_bad) == (rows[seen_rows:], bad[seen_bad:])


def test_ndjson_rows_and_letters(tmp_path: Path) -> None:
    lines: list[tuple[str, bool]] = [
        ('{"ts":"2013-01-01T10:00:00Z","n":1,"text":"a","more":[1]}', True),
        ("null", False),
        ("", True),
        ('{"n":2}', True),
        ('{"n":1}{"n":2}', False),
        ('{"n":"3"}', False),
        ('{"n":1.5}', False),
        ('{"n":true}', False),
        ('{"text":4}', False),
        ('{"ts":5}', False),
        ('{"n":', False),
        ('"x"}', False),
        ("[" * 100_000, False),
        ('{"n":3.0,"text":"é\\n"}', True),
    ]
    path = write(tmp_path / "a.ndjson", "\n".join(line for line, _ in lines))
    limits = ConnectorSettings()
    rows, bad, _ = read(source(path, limits=limits))
    assert [(r["n"], r["text"]) for r in rows] == [(1, "a"), (2, None), (3, "é\n")]
    assert [b.line for b in bad] == [i for i, (line, good) in enumerate(lines, 1) if not good]


@pytest.mark.one_part_per_commit("files that are read on from every place", parts=3)
def test_ndjson_resumes_at_every_chunk(tmp_path: Path) -> None:
    lines = [json.dumps({"ts": f"2013-01-01T00:{i // 60:02d}:{i % 60:02d}Z", "n": i, "text": "x" * (i % 40)}) for i in range(300)]
    lines[50] = lines[200] = "{"
    for replay in (0, 60):
        resumes_everywhere(source(write(tmp_path / "a.ndjson", "\n".join(lines)), replay=replay))


def parquet(path: Path, rows: int = 1000) -> Path:
    table = pa.table(
        {
            "ts": pa.array([i * 10**9 + 7 for i in range(rows)], pa.timestamp("ns")),
            "n": pa.array([2**63 + 5 if i % 400 == 7 else i for i in range(rows)], pa.uint64()),
            "text": [f"row {i}" for i in range(rows)],
            "more": list(range(rows)),
        }
    )
    pq.write_table(table, path, row_group_size=300)
    return path


@pytest.mark.one_part_per_commit("files that are read on from every place", parts=3)
def test_parquet_resumes_at_every_chunk(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet")
    rows, bad, _ = read(source(path))
    assert [r["n"] for r in rows] == [i for i in range(1000) if i % 400 != 7]
    assert [b.line for b in bad] == [8, 408, 808]
    for replay in (0, 60):
        resumes_everywhere(source(path, replay=replay))


@pytest.mark.parametrize("name", ["a.csv", "a.ndjson", "a.parquet"])
def test_a_file_that_was_replaced_or_cut_is_not_read_on(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "a.parquet":
        parquet(path)
    elif name == "a.csv":
        write(path, CSV)
    else:
        write(path, '{"n":1}\n' * 2000)
    one = source(path, null="NA") if name == "a.csv" else source(path)
    position = read(one)[2][1].position
    content = path.read_bytes()
    if name == "a.parquet":
        parquet(path, 900)
        changed = [path.read_bytes()]
        pq.write_table(pa.table({"other": [1]}), path)
        changed.append(path.read_bytes())
    else:
        changed = [content[:1000], content[:1500] + b"x" + content[1501:], content[:30] + b"7" + content[31:]]
        changed += [b"", b"ts,other\n" + content]
    for other in changed:
        write(path, other)
        with pytest.raises(SbonError) as caught:
            read(one, position)
        assert caught.value.code == "source-changed"
    write(path, content if name == "a.parquet" else content + content[-8:])
    assert read(one, position)[0]


@pytest.mark.parametrize(
    "name, content, options, code, where",
    [
        ("none.csv", None, {}, "file-not-found", "options.path"),
        ("a.csv", "ts,n\n", {}, "missing-columns", "options.path"),
        ("a.csv", "", {}, "bad-header", "options.path"),
        ("a.csv", "ts,n,n,text\n", {}, "bad-header", "options.path"),
        ("a.parquet", "nonsense", {}, "file-unreadable", "options.path"),
        ("a.xlsx", "", {}, "bad-option", "options.format"),
        ("a.csv", "ts,n,text\n", {"replay": -1}, "bad-option", "options.replay"),
        ("a.csv", "ts,n,text\n", {"delimiter": ";;"}, "bad-option", "options.delimiter"),
        ("a.csv", "ts,n,text\n", {"delimter": ";"}, "unknown-option", "options.delimter"),
        ("a.csv", "ts,n,text\n", {"timestamp_format": "iso"}, "bad-option", "options.timestamp_format"),
    ],
)
def test_invalid_sources_are_refused_when_attached(
    tmp_path: Path, name: str, content: str | None, options: dict[str, Any], code: str, where: str
) -> None:
    if content is not None:
        write(tmp_path / name, content)
    with pytest.raises(SbonError) as caught:
        source(tmp_path / name, **options).check()
    assert (caught.value.code, caught.value.where) == (code, where)
    assert code != "file-not-found" or "on the source's node" in caught.value.hint


def test_parquet_of_other_types_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"ts": [True], "n": [1], "text": ["a"]}), tmp_path / "a.parquet")
    with pytest.raises(SbonError) as caught:
        source(tmp_path / "a.parquet").check()
    assert caught.value.code == "type-mismatch"


def test_replay_keeps_the_pace_of_event_time(tmp_path: Path) -> None:
    chunks = read(source(parquet(tmp_path / "a.parquet"), replay=10))[2]
    due = [c.due_s for c in chunks if c.due_s is not None]
    assert due == sorted(due)
    assert due[-1] - due[0] == pytest.approx(99.9, abs=0.1)
    assert all(c.rows.num_rows <= 1 for c in chunks)
