"""Groups of commands that suggest a real command for an unknown one."""

import click

from sbon_cli.options.examples import examples

OTHER_NAMES = {
    "move": "query migrate",
    "node list": "members",
    "node show": "status",
    "nodes": "members",
    "ps": "query list",
    "query cancel": "query stop",
    "query delete": "query stop",
    "query move": "query migrate",
    "query submit": "submit",
    "stream delete": "stream drop",
}
"""Commands by other names under which users look for them."""
UNAVAILABLE = {
    **dict.fromkeys(("bench", "experiment", "simulate"), "It comes with the package sbon-lab, which is not installed."),
    "query pause": "A query cannot be paused: 'sbon query stop' ends it.",
    "query resume": "A query cannot be paused, nor resumed.",
}
"""Commands that users look for, and there are none, with what to do."""
MOST = 3
"""Most commands in a suggestion."""


class SuggestingGroup(click.Group):
    """Group that suggests real commands for an unknown one: of this group, or of the same name elsewhere."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            group = ctx.command_path.split()[1:]
            near = suggestions(group, args[0]) if args else []
            if args and (instead := UNAVAILABLE.get(" ".join((*group, args[0])))):
                raise click.UsageError(f"{error.message} {instead}", ctx) from error
            hint = f" Did you mean {' or '.join(repr(f'sbon {path}') for path in near)}?" if near else ""
            raise click.UsageError(f"{error.message}{hint}", ctx) from error


def suggestions(group: list[str], word: str) -> list[str]:
    """Return paths of commands, without ``sbon``, that may be meant by ``word`` after the words of a group; the best first."""
    from difflib import get_close_matches

    known = examples()
    other = OTHER_NAMES.get(" ".join((*group, word)))
    if other is not None:
        return [other]
    own = {path.split()[-1]: path for path in known if path.split()[:-1] == group}
    near = get_close_matches(word, own, n=1)
    if near:
        return [own[near[0]]]
    return [word] if word in known else [path for path in known if path.split()[-1] == word][:MOST]
