"""A command whose help shows its options in named groups."""

from collections.abc import Mapping, Sequence
from typing import Any

import click


class GroupedOptions(click.Command):
    """Command with options in ``groups``: titles with names of options, in order; the last also takes unnamed options."""

    def __init__(self, *args: Any, groups: Mapping[str, Sequence[str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = {str(option.name): option for option in self.get_params(ctx) if isinstance(option, click.Option)}
        in_groups = [name for names in self._groups.values() for name in names]
        unnamed = [name for name in options if name not in in_groups]
        last = list(self._groups)[-1]
        for title, names in self._groups.items():
            options_listed = [options[name] for name in (*names, *(unnamed if title == last else ())) if name in options]
            records = [record for option in options_listed if (record := option.get_help_record(ctx)) is not None]
            with formatter.section(title):
                formatter.write_dl(records, col_max=26)
