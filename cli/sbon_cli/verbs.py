"""The verbs of the command ``sbon``, by sections of its help; other distributions add sections of their own."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import NamedTuple

ADDED = "sbon.verbs"
"""Entry points of this group are a :class:`Section` each."""


class Verb(NamedTuple):
    """A verb; ``help`` is the first sentence of its command's help, so that the list of verbs need not load them."""

    target: str
    help: str


class Section(NamedTuple):
    """Verbs under a title; ``examples`` are shown at the end of a command's help, by its path."""

    title: str
    verbs: Mapping[str, Verb]
    examples: Mapping[str, tuple[str, ...]] = {}


OWN = (
    Section(
        "Nodes",
        {
            "node": Verb("sbon_cli.commands.nodes.node:node", "Runs a node in the foreground."),
            "cluster": Verb("sbon_cli.commands.nodes.cluster:cluster", "Runs a cluster of nodes on this machine."),
            "join": Verb("sbon_cli.commands.nodes.members:join", "Joins the cluster of the nodes at these addresses."),
            "leave": Verb("sbon_cli.commands.nodes.members:leave", "Makes the node leave for good."),
            "drain": Verb(
                "sbon_cli.commands.nodes.members:drain",
                "Moves a node's operators to other nodes, while their queries run, and makes it leave for good.",
            ),
            "status": Verb("sbon_cli.commands.nodes.members:status", "Shows the node asked."),
            "members": Verb(
                "sbon_cli.commands.nodes.members:members", "Lists the nodes of the cluster as the node asked sees them."
            ),
            "rtt": Verb("sbon_cli.commands.nodes.members:rtt", "Shows the round-trip time between nodes A and B."),
            "map": Verb("sbon_cli.commands.nodes.map:map_", "Draws the cost space: distances between nodes."),
            "monitor": Verb("sbon_cli.commands.nodes.monitor:monitor", "Prints the events of the node asked."),
            "doctor": Verb("sbon_cli.commands.nodes.doctor:doctor", "Examines all nodes."),
            "debug": Verb("sbon_cli.commands.nodes.debug:debug", "Looks inside a running node."),
            "config": Verb("sbon_cli.commands.nodes.config:config", "Shows and checks a node's configuration."),
        },
    ),
    Section(
        "Streams and queries",
        {
            "stream": Verb("sbon_cli.commands.streams.stream:stream", "Creates, fills, lists and drops streams."),
            "streams": Verb("sbon_cli.commands.streams.stream:list_", "Lists the streams of the cluster."),
            "sql": Verb("sbon_cli.commands.queries.sql:sql", "A shell for queries."),
            "submit": Verb("sbon_cli.commands.queries.submit:submit", "Submits a query and prints its rows as they arrive."),
            "explain": Verb(
                "sbon_cli.commands.queries.explain:explain", "Explains a query that is not submitted, or one that is."
            ),
            "query": Verb("sbon_cli.commands.queries.query:query", "Lists, shows, follows and stops queries."),
            "queries": Verb("sbon_cli.commands.queries.query:list_", "Lists every query of the cluster, the oldest first."),
            "usage": Verb("sbon_cli.commands.queries.query:query_usage", "Shows what a query cost the network."),
        },
    ),
    Section("Trying", {"demo": Verb("sbon_cli.commands.demo.demo:demo", "Six nodes in six cities.")}),
)
LAST = Section(
    "This command", {"completion": Verb("sbon_cli.commands.completion:completion", "Prints the completion script of a shell.")}
)


@cache
def sections() -> tuple[Section, ...]:
    """Return all sections, in the order of the help."""
    return (*OWN, *(added.load() for added in entry_points(group=ADDED)), LAST)


def verb_named(name: str) -> Verb | None:
    """Return a verb; other distributions are looked at only for one that is not this one's."""
    own = next((section.verbs[name] for section in (*OWN, LAST) if name in section.verbs), None)
    return own or verbs().get(name)


def verbs() -> dict[str, Verb]:
    """Return every verb by its name."""
    return {name: verb for section in sections() for name, verb in section.verbs.items()}
