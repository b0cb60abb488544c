"""A command whose help shows its options in named groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click


class GroupedOptions(click.Command):
    """Command with options in ``groups``: titles with names of options, in order; the last also takes unnamed options."""

    def __init__(self, *args: Any, groups: Mapping[str, Sequence[str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = {str(one.name): one for one in self.get_params(ctx) if isinstance(one, click.Option)}
        named = [name for names in self._groups.values() for name in names]
        unnamed = [name for name in options if name not in named]
        last = list(self._groups)[-1]
        for title, names in self._groups.items():
            listed = [options[name] for name in (*names, *(unnamed if title == last else ())) if name in options]
            records = [record for one in listed if (record := one.get_help_record(ctx)) is not None]
            with formatter.section(title):
                formatter.write_dl(records, col_max=26)
