"""``sbon stream push``: rows from a file or a pipe to a stream, each once."""

import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

import click

from sbon import SbonError, follower
from sbon.follower import PATIENCE_S
from sbon.model import Pushed, RefusedRow
from sbon_cli.client import Client
from sbon_cli.options.names import STREAM
from sbon_cli.terminal.output import EXIT_REFUSED, asks_node, err, print_json
from sbon_protocol.api.streams import MAX_REPORTED

POST_BYTES = 1024 * 1024
"""Size of a post from a file. From a pipe, a post has the rows that are there when the post before has been answered."""
MAX_RECORD_BYTES = 4 * POST_BYTES
PAUSES_S = (*follower.PAUSES_S, 5.0)
"""Seconds between tries; longer at last than a follower's, since a full disk lasts."""
MEDIA_TYPES = {"csv": "text/csv", "ndjson": "application/x-ndjson"}
PASSING = frozenset(
    {"node-unreachable", "post-unknown", "source-behind", "source-busy", "source-paused", "source-stopped"}
    | {"starting", "stopping", "too-many-connections", "too-many-requests", "disk-full"}
)
MOVED = "source-elsewhere"
PACKED = (b"PAR1", b"\x1f\x8b", b"PK\x03\x04")
"""First bytes of Parquet, gzip and zip (also spreadsheets)."""


@click.command()
@click.argument("stream_name", type=STREAM, metavar="STREAM")
@click.argument("file", metavar="[FILE|-]", default="-")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["csv", "ndjson"]),
    help="Format; by default the file name's extension, or the first byte.",
)
@click.option("--no-header", is_flag=True, help="The first line of CSV is a row; the columns are the stream's, in order.")
@click.option("--source", default="", metavar="NAME", help="The source, if the stream has several that accept rows.")
@asks_node
def push(api: str, stream_name: str, file: str, format_: str | None, no_header: bool, source: str, json_: bool) -> None:
    """Posts the rows of FILE, or of standard input, to STREAM's http source, and returns when they are stored.

    Unreadable rows are listed with their lines, and the exit code is 1. If the node does not answer, or has no space, the post is
    repeated; no row counts twice.
    """
    from sbon_node.connectors.formats.text_format import TEXT_SUFFIXES  # with what reads rows, and so here alone

    asked = Client(api)
    client, source = _where(asked, stream_name, source)
    with ExitStack() as opened:
        input_ = sys.stdin.buffer if file == "-" else opened.enter_context(_opened(file))
        kind = format_ or TEXT_SUFFIXES.get(Path(file).suffix.lower())
        records = Records(input_, kind, tabs=file.endswith(".tsv"), header=not no_header)
        if no_header and records.kind == "ndjson":
            raise click.UsageError("--no-header: NDJSON has no line of column names")
        find = partial(_where, asked, stream_name, source)
        pushed = Pushing(client, stream_name, source, lambda text: err().print(f"[dim]{text}[/]"), find).all(records)
    if json_:
        print_json(pushed)
    else:
        stored = f"{pushed.rows:,} row{'s' if pushed.rows != 1 else ''} stored in {stream_name}"
        click.echo(f"{stored}, {pushed.late:,} late, {pushed.bad:,} bad")
    if pushed.ignored:
        err().print(f"not in the schema of {stream_name}, and not stored: {', '.join(pushed.ignored)}", markup=False)
    for row in pushed.refused:
        err().print(f"line {row.line}: {row.reason}", markup=False)
    if pushed.bad:
        sys.exit(EXIT_REFUSED)


def _opened(file: str) -> BinaryIO:
    try:
        return open(file, "rb")
    except OSError as error:
        raise click.UsageError(f"{file} cannot be read: {error.strerror}") from error


def _where(client: Client, stream: str, source: str) -> tuple[Client, str]:
    """Return a client of the source's node, and the source's name; raise ``unknown-source``."""
    own_node = client.status().name
    taking = [s for s in client.stream(stream).entry.sources if s.connector == "http" and source in ("", s.name)]
    near = [s for s in taking if s.node == own_node] or taking
    if not near:
        hint = f"sbon stream attach {stream} --connector http"
        raise SbonError("unknown-source", f"{stream} has no such source that accepts rows", where="--source", hint=hint)
    if len(near) > 1:
        names = ", ".join(f"{s.name} at {s.node}" for s in near)
        raise SbonError("ambiguous-source", f"{stream} has several sources that accept rows: {names}", where="--source")
    return client.at(near[0].node), near[0].name


class Records:
    """Yield complete records of a text as they come, with the line of the first. For CSV, each piece repeats the header line,
    which is sent even without rows, so that the node can refuse a bad one.
    """

    def __init__(self, file: BinaryIO, kind: str | None, *, tabs: bool = False, header: bool = True) -> None:
        import pyarrow as pa

        from sbon_node.connectors.formats.csv import CsvRows

        self._file, self._header = file, header
        self._first = self._more()
        if self._first.startswith(PACKED):
            message = "push takes CSV (.csv, .tsv) and NDJSON (.ndjson, .jsonl, .json), and no packed file"
            hint = "unpack it first; a Parquet file can be attached: sbon stream attach STREAM --file FILE"
            raise SbonError("unsupported-format", message, where="FILE", hint=hint)
        self.kind = kind or ("ndjson" if self._first.lstrip()[:1] == b"{" else "csv")
        self.media_type = "text/tab-separated-values" if tabs else MEDIA_TYPES[self.kind]
        self.media_type += "" if header else "; header=absent"
        self._csv = CsvRows(pa.schema([]), header=False, delimiter="\t" if tabs else ",", null="", timestamp_format="")

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Yield pieces, each with the offset from its line numbers to those of the whole text."""
        buffered, names, lines, has_ended = self._first, b"", 0, False
        more = buffered
        while more or buffered:
            ended = not more
            end = len(buffered) if ended else self._end(buffered)
            if not end and len(buffered) > MAX_RECORD_BYTES:
                raise SbonError("bad-request", f"a record of more than {MAX_RECORD_BYTES:,} bytes", where=f"line {lines + 1}")
            record, buffered = buffered[:end], buffered[end:]
            if self.kind == "csv" and self._header and not names and record:
                first = self._csv.first(record)
                names, record = record[:first], record[first:]
                lines = names.count(b"\n")
            if record:
                has_ended = True
                yield lines - names.count(b"\n"), names + record
                lines += record.count(b"\n")
            if not ended:
                more = self._more()
                buffered += more
        if names and not has_ended:
            yield 0, names

    def _end(self, text: bytes) -> int:
        return self._csv.split(text) if self.kind == "csv" else text.rfind(b"\n") + 1

    def _more(self) -> bytes:
        return os.read(self._file.fileno(), POST_BYTES)


@dataclass
class Pushing:
    """Posts with a key each, repeated until the node answers."""

    client: Client
    stream: str
    source: str
    notice: Callable[[str], None]
    find: Callable[[], tuple[Client, str]]
    """Returns a client of the source's present node: a replicated source may go on at another."""
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.monotonic

    def all(self, records: Records) -> Pushed:
        """Return the sum of all answers; raise errors that a repeated post would get again."""
        run = secrets.token_hex(8)
        rows = late = bad = 0
        refused: list[RefusedRow] = []
        ignored: dict[str, None] = {}
        for number, (before, body) in enumerate(records):
            answer = self._one(body, records.media_type, f"{run}-{number}")
            rows, late, bad = rows + answer.rows, late + answer.late, bad + answer.bad
            ignored |= dict.fromkeys(answer.ignored[: MAX_REPORTED - len(ignored)])
            refused += [RefusedRow(line=row.line + before, reason=row.reason) for row in answer.refused]
        reported = tuple(refused[:MAX_REPORTED])
        return Pushed(source=self.source, rows=rows, late=late, bad=bad, refused=reported, ignored=tuple(ignored))

    def _one(self, body: bytes, media_type: str, key: str) -> Pushed:
        since, tries = self.now(), 0
        while True:
            try:
                return self.client.push(self.stream, body, media_type, source=self.source, key=key)
            except SbonError as error:
                if error.code not in PASSING | {MOVED} or self.now() - since > PATIENCE_S:
                    raise
                if tries in (0, 5):
                    self.notice(f"trying again: {error.message}")
            self.sleep(PAUSES_S[min(tries, len(PAUSES_S) - 1)])
            tries += 1
            with suppress(SbonError):  # The node that was asked may know no better, or be away, too.
                self.client, _ = self.find()
