"""Redaction in dumps: hidden secrets and visible values."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sbon_node.base.logging.output import tailed
from sbon_node.base.redaction import REDACTED, redacted, without_passwords
from sbon_node.config.config import Config, keys
from sbon_node.operations.debug_dump import collect_debug_dump

CASES: list[tuple[Any, Any]] = [
    ({"password": "x"}, {"password": REDACTED}),
    ({"options": {"api_key": "x", "path": "/srv/a.csv"}}, {"options": {"api_key": REDACTED, "path": "/srv/a.csv"}}),
    ({"db_passwd": ["a", "b"]}, {"db_passwd": [REDACTED, REDACTED]}),
    ({"password": ""}, {"password": ""}),
    ({"url": "postgresql://ann:geheim@db:5432/x"}, {"url": f"postgresql://ann:{REDACTED}@db:5432/x"}),
    ([{"join": ["a:7400"]}, 3, None, True], [{"join": ["a:7400"]}, 3, None, True]),
    ({"monkey": "b", "keys": 3}, {"monkey": "b", "keys": 3}),
]


@pytest.mark.parametrize("value, expected", CASES)
def test_secrets_are_hidden_and_nothing_else(value: Any, expected: Any) -> None:
    assert redacted(value) == expected


@pytest.mark.parametrize(
    "text, secret",
    [
        ("connecting to mqtt://u:p4ss@h/x failed", "p4ss"),
        ("host=db password=p4ss user=ann", "p4ss"),
        ("password: 'p4 ss' and more", "p4 ss"),
        ('{"token":"p4ss"}', "p4ss"),
    ],
)
def test_lines_of_a_log_lose_their_passwords(text: str, secret: str) -> None:
    assert secret not in without_passwords(text)
    assert REDACTED in without_passwords(text)


def test_no_setting_of_a_node_is_hidden_by_mistake() -> None:
    """No setting is a secret yet; a new secret must be listed here."""
    shown = redacted(msgspec.to_builtins(Config()))
    assert [str(key) for key in keys().values() if shown[key.section][key.name] == REDACTED] == []


def test_a_dump_hides_secrets_of_the_configuration_and_the_logs(tmp_path: Path) -> None:
    class Settings(msgspec.Struct):
        password: str = "p4ss"
        url: str = "postgresql://u:p4ss@h/x"

    (tmp_path / "engine.log").write_text("connecting to postgresql://u:p4ss@h/x\n")
    tailed(io.StringIO()).write("host=db password=p4ss user=ann\n")
    dump = collect_debug_dump(Settings(), tmp_path)
    assert (len(dump.engine_log), dump.log[-1].startswith("host=db")) == (1, True)
    assert "p4ss" not in msgspec.json.encode((dump.config, dump.log, dump.engine_log)).decode()
