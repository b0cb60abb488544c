"""``sbon config``: whose value wins, where it comes from, and what is wrong with a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def config(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SBON_")} | variables
    command = [sys.executable, "-m", "sbon_cli.main", "config", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


FILE = """\
[node]
name = "from-file"
port = 7001
api_port = 7002

[streams]
reconnect_s = 0.25
"""


def test_show_tells_each_value_and_its_origin(tmp_path: Path) -> None:
    file = tmp_path / "sbon.toml"
    file.write_text(FILE)
    flags = ("--config", str(file), "--name", "from-flag", "--set", "log.format=json")
    result = config("show", "--origin", "--json", *flags, SBON_NODE_PORT="7003", SBON_NODE_NAME="from-environment")
    assert (result.returncode, result.stderr) == (0, "")
    shown = {row["setting"]: row for row in map(json.loads, result.stdout.splitlines())}
    found = {name: (shown[name]["value"], shown[name]["origin"]) for name in ("node.name", "node.port", "node.api_port")}
    assert found == {
        "node.name": ("from-flag", "--name"),
        "node.port": (7003, "SBON_NODE_PORT"),
        "node.api_port": (7002, f"{file}:4"),
    }
    assert shown["streams.reconnect_s"]["value"] == 0.25
    assert shown["log.format"]["origin"] == "--set log.format"
    assert shown["node.bind"]["origin"] == "default"
    assert all(row["meaning"] for row in shown.values())


def test_show_says_that_the_node_named_is_not_asked() -> None:
    result = config("show", "--origin", "--json", SBON_API="http://127.0.0.1:9")
    assert (result.returncode, len(result.stderr.splitlines())) == (0, 1)
    assert "a node that would start here" in result.stderr
    assert "those of the node at http://127.0.0.1:9 are in: sbon debug dump" in result.stderr


def test_check_says_that_a_file_is_right(tmp_path: Path) -> None:
    (tmp_path / "sbon.toml").write_text(FILE)
    result = config("check", str(tmp_path / "sbon.toml"), SBON_NODE_PORT="not looked at")
    assert (result.returncode, result.stdout, result.stderr) == (0, f"{tmp_path}/sbon.toml: ok\n", "")


def test_check_lists_all_that_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "sbon.toml"
    file.write_text(FILE.replace("7001", "70010").replace("reconnect_s", "reconect_s"))
    result = config("check", str(file))
    assert (result.returncode, result.stdout) == (2, "")
    assert "node.port" in result.stderr
    assert "reconnect_s" in result.stderr, "the name that was meant"
    assert "Traceback" not in result.stderr


def test_check_of_no_file_is_one_line_and_a_hint(tmp_path: Path) -> None:
    result = config("check", str(tmp_path / "none.toml"))
    assert (result.returncode, result.stdout) == (2, "")
    error, hint = result.stderr.splitlines()
    assert error.startswith(f"error: {tmp_path}/none.toml: ")
    assert hint.startswith("  hint: ")


def test_the_documented_reference_is_what_there_is() -> None:
    documented = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert config("reference").stdout == documented, "run: sbon config reference > docs/configuration.md"
