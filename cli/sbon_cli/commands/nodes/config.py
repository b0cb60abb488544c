"""``sbon config``: shows settings with their origins and meanings, and checks files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
import msgspec

from sbon_cli.commands.nodes.settings_flags import flags_of, settings_options
from sbon_cli.options.suggestions import SuggestingGroup
from sbon_cli.terminal.output import json_option, print_json, print_table, reports_errors, say
from sbon_cli.terminal.reading import ReadablePath
from sbon_node.config.config import DEPENDING, keys, load
from sbon_node.config.values import allowed

REFERENCE_HEAD = """# Configuration

A node takes each setting from its default, then from the TOML file named with `--config`, then from the environment, then from
flags; `sbon config show --origin` shows which it was, `sbon config check FILE` whether a file is right. `streams.reconnect_s` is

| where | how |
| --- | --- |
| file | `[streams]` and below it `reconnect_s = 1.0` |
| environment | `SBON_STREAMS_RECONNECT_S=1.0` |
| flag | `--set streams.reconnect_s=1.0` |

This page is what `sbon config reference` prints."""


@click.group(cls=SuggestingGroup)
def config() -> None:
    """Shows and checks a node's configuration."""


@config.command()
@settings_options
@click.option("--origin", is_flag=True, help="Also show where each value comes from.")
@click.option("--help-text/--no-help-text", "explain", default=True, help="Explain each setting.")
@json_option
@reports_errors
def show(
    config_file: Path | None, settings: tuple[str, ...], origin: bool, explain: bool, json_: bool, **named: str | None
) -> None:
    """Shows every setting: defaults < file < SBON_* environment < flags."""
    loaded = load(config_file, environ=os.environ, flags=flags_of(settings, named))
    values = msgspec.to_builtins(loaded.config)
    rows: list[dict[str, Any]] = []
    for name, key in keys().items():
        row = {"setting": name, "value": values[key.section][key.name]}
        if origin:
            row["origin"] = loaded.origins[name]
        if explain:
            row["meaning"] = key.description
        rows.append(row)
    if json_:
        print_json(rows)
    else:
        print_table(list(rows[0]), [[_shown(v) for v in row.values()] for row in rows])


@config.command()
def reference() -> None:
    """Prints all settings, as in docs/configuration.md: name, default, allowed values, meaning."""
    click.echo(reference_text(), nl=False)


@config.command()
@click.argument("file", type=ReadablePath(), metavar="FILE|-")
@reports_errors
def check(file: Path) -> None:
    """Checks FILE alone, without environment and flags; exits with 2 and lists the errors, one line each."""
    load(file)
    say(f"{file}: ok")


def reference_text() -> str:
    """Return Markdown with a table for each section."""
    lines = [REFERENCE_HEAD]
    section = ""
    for name, key in keys().items():
        if key.section != section:
            section = key.section
            lines += ["", f"## {section}", "", "| setting | default | allowed | meaning |", "| --- | --- | --- | --- |"]
        default = DEPENDING.get(name) or _shown(key.default) or "empty"
        lines.append(f"| `{name}` | {_cell(default)} | {_cell(allowed(key.type))} | {_cell(key.description)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _shown(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(str(v) for v in value)
    return str(value).lower() if isinstance(value, bool) else str(value)
