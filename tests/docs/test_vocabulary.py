"""Retired words stay retired: docs/glossary.md has the words that replace them."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from sbon_cli.main import sbon
from tests.docs.reading import ROOT, text_of

CODE = sorted(file for folder in ("sbon_node", "protocol", "cli", "lab") for file in (ROOT / folder).rglob("*.py"))
DASHBOARD = sorted(file for file in (ROOT / "sbon_node/api/dashboard").iterdir() if file.suffix in (".html", ".js"))
TESTS = sorted({*(ROOT / "tests").rglob("*.py"), *(ROOT / "tests").rglob("*.toml")} - {Path(__file__).resolve()})
PROSE = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

IDENTIFIERS = {
    "acquaint": "warm_start",
    "admission": "validation",
    "announcements": "coordinate_throttle",
    "asked_to_attach": "handle_attach",
    "asked_to_describe": "handle_describe",
    "asked_to_keep": "handle_keep",
    "asked_to_recall": "handle_recall",
    "bill": "query_usage",
    "bills": "query_usages",
    "blame": "error_location",
    "blocking": "executor",
    "face": "interface",
    "faces": "interfaces",
    "Finding": "StateUpdate",
    "ground": "network_model",
    "grounds": "network_models",
    "happening": "event",
    "happenings": "events",
    "harmless": "error_free",
    "HeldFolder": "OpenFolder",
    "is_telling": "is_usable",
    "LISTED_BYTES": "SUMMARY_BYTES",
    "make_place": "drop_earlier",
    "MAX_TOLD": "MAX_REPORTED",
    "plain_words": "validation_messages",
    "programme": "milp",
    "query_holder": "leader",
    "QueryHolder": "QueryLeader",
    "questions": "probes",
    "ride": "piggyback",
    "rooms": "packages",
    "Stated": "DeliveryPosition",
    "strikes": "fault_injector",
    "tell_unanswered": "print_unanswered",
    "told_by_itself": "seen_itself",
    "traits": "meta",
    "UnderWay": "Running",
    "unstarted": "preflight",
    "untold": "unreported",
    "untold_source": "unreported_source",
    "ways": "latency_matrix",
    "WHOLE_POINTS": "OLDEST_POINTS",
    "why_silent": "silence_reason",
    "wish": "option",
    "wishes": "options",
}
"""Retired identifier -> standard one. A capital matches classes alone; small letters match every case and leading underscores."""

WORDS = {
    "bill": "network usage",
    "bills": "network usage",
    "happening": "event",
    "happenings": "events",
    "programme": "program",
    "programmes": "programs",
    "questions": "probes",
    "virtual place": "virtual coordinate",
    "wishes": "options",
}
"""Retired word of texts that users read -> standard one."""

PROSE_WORDS = {**WORDS, "room": "capacity", "rooms": "packages"}
"""Retired in documents, where they have been replaced throughout."""

EVERYWHERE = {
    "foundation": "base",
    "foundations": "base",
    "query holder": "leader, or acceptor",
    "query holders": "leaders, or acceptors",
    "workflow": "submission, move, call",
    "workflows": "submissions, moves, calls",
}
"""Retired in all texts, with comments and tests, and in the names of files. Measured figures name files of their time."""


def retired_in(text: str, words: dict[str, str]) -> list[str]:
    found = re.findall(rf"\b(?:{'|'.join(words)})\b", " ".join(text.split()), re.IGNORECASE)
    return [f"{word} -> {words[word.lower()]}" for word in found]


def retired_identifiers(source: str) -> list[str]:
    names = {token.string for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type == tokenize.NAME}
    found = {name: IDENTIFIERS.get(name.strip("_")) or IDENTIFIERS.get(name.strip("_").lower()) for name in sorted(names)}
    return [f"{name} -> {standard}" for name, standard in found.items() if standard]


def messages(source: str) -> Iterator[str]:
    """String constants without docstrings."""
    tree = ast.parse(source)
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare:
            yield node.value


def help_texts(command: click.Command, path: str = "sbon") -> Iterator[tuple[str, str]]:
    options = [param.help or "" for param in command.params if isinstance(param, click.Option)]
    yield path, "\n".join([command.help or "", *options])
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from help_texts(below, f"{path} {name}")


def dashboard_texts(source: str) -> str:
    """Without comments of JavaScript."""
    return re.sub(r"/\*.*?\*/|(?<![:\"'])//[^\n]*", "", source, flags=re.DOTALL)


WRITTEN = re.compile(rf"\b_*(?:{'|'.join(IDENTIFIERS)})_*\b", re.IGNORECASE)
"""Matches a file that may have a retired identifier; others need not be read token by token."""
BEGUN = re.compile("|".join(word.split()[0] for word in WORDS), re.IGNORECASE)
"""Matches a file that may have a message with a retired word."""


def failures(found: dict[str, list[str]]) -> dict[str, list[str]]:
    return {where: words for where, words in found.items() if words}


def relative(file: Path) -> str:
    return str(file.relative_to(ROOT))


def test_code_uses_no_retired_identifier() -> None:
    texts = {relative(file): text for file in CODE if WRITTEN.search(text := text_of(file))}
    assert failures({name: retired_identifiers(text) for name, text in texts.items()}) == {}
    assert failures({relative(file): [file.stem] if file.stem in IDENTIFIERS else [] for file in CODE}) == {}


def test_messages_use_no_retired_word() -> None:
    texts = {relative(file): text for file in CODE if BEGUN.search(text := text_of(file))}
    assert failures({name: retired_in("\n".join(messages(text)), WORDS) for name, text in texts.items()}) == {}


def test_help_texts_use_no_retired_word() -> None:
    assert failures({path: retired_in(text, WORDS) for path, text in help_texts(sbon)}) == {}


def test_the_dashboard_uses_no_retired_word() -> None:
    assert failures({relative(file): retired_in(dashboard_texts(text_of(file)), WORDS) for file in DASHBOARD}) == {}


def test_no_text_uses_a_word_that_is_retired_everywhere() -> None:
    texts = {relative(file): text_of(file) for file in (*CODE, *DASHBOARD, *TESTS, *PROSE)}
    assert failures({name: retired_in(text, EVERYWHERE) for name, text in texts.items() if "figures/" not in name}) == {}


def test_no_file_has_a_retired_name() -> None:
    names = {relative(file): re.sub(r"[\W_]", " ", relative(file)) for file in (*CODE, *DASHBOARD, *TESTS, *PROSE)}
    assert failures({name: retired_in(words, EVERYWHERE) for name, words in names.items()}) == {}


@pytest.mark.parametrize("document", PROSE, ids=relative)
def test_documents_use_no_retired_word(document: Path) -> None:
    assert retired_in(text_of(document), PROSE_WORDS) == []


def test_the_readme_is_short() -> None:
    assert len(text_of(ROOT / "README.md").splitlines()) <= 150


def test_the_check_finds_what_it_forbids() -> None:
    assert retired_identifiers("class Stated: _ways = bill(1)") == [
        "Stated -> DeliveryPosition",
        "_ways -> latency_matrix",
        "bill -> query_usage",
    ]
    assert retired_identifiers("stated = billed") == []
    assert list(messages('"""The bill."""\nprint(f"no {1} bill")')) == ["no ", " bill"]
    assert retired_in("The Bill, and a\nvirtual place", WORDS) == ["Bill -> network usage", "virtual place -> virtual coordinate"]
    assert dashboard_texts("say('bill') // a bill\n/* bill */").split() == ["say('bill')"]
