"""``sbon config``: what is set, where it comes from, what it means; and whether a file is right."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
import msgspec

from sbon_cli.output import as_json, json_option, print_json, print_table, reports_errors, say
from sbon_cli.reading import ReadablePath
from sbon_cli.settings_flags import flags_of, settings_options
from sbon_node.config import keys, load


@click.group()
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
    if as_json(json_):
        print_json(rows)
    else:
        print_table(list(rows[0]), [[_shown(v) for v in row.values()] for row in rows])


@config.command()
@click.argument("file", type=ReadablePath(), metavar="FILE|-")
@reports_errors
def check(file: Path) -> None:
    """Checks FILE alone, without environment and flags; exits 2 and lists what is wrong, one line each."""
    load(file)
    say(f"{file}: ok")


def _shown(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(str(v) for v in value)
    return str(value).lower() if isinstance(value, bool) else str(value)
