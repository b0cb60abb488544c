"""Examples of every command, shown at the end of its help."""

import click

from sbon_cli.verbs import sections

CREATE = 'sbon stream create trades --schema "ts timestamp, symbol string, price double, size bigint" --event-time ts'
LARGE = '"SELECT symbol, price FROM trades WHERE size > 100"'

OWN: dict[str, tuple[str, ...]] = {
    "node": (
        "sbon node --name london --data-dir /var/lib/sbon --bind 0.0.0.0 --advertise london.example.org",
        "sbon node --name paris --bind 0.0.0.0 --advertise paris.example.org --join london.example.org:7400",
        "sbon node --config sbon.toml --set log.level=debug",
    ),
    "cluster": ("sbon cluster up -n 3 --latency cities", "sbon cluster down"),
    "cluster up": ("sbon cluster up", "sbon cluster up -n 6 --latency cities --dir /tmp/six"),
    "cluster status": ("sbon cluster status", "sbon cluster status --dir /tmp/six --json"),
    "cluster start": ("sbon cluster start", "sbon cluster start london"),
    "cluster down": ("sbon cluster down", "sbon cluster down --purge"),
    "join": ("sbon join paris.example.org:7400",),
    "leave": ("sbon leave", "sbon --node http://paris.example.org:7480 leave --yes"),
    "node drain": ("sbon node drain paris", "sbon --node http://paris.example.org:7480 node drain --yes"),
    "drain": ("sbon drain paris --dry-run", "sbon --node http://paris.example.org:7480 drain --yes"),
    "doctor": ("sbon doctor", "sbon --node http://london.example.org:7480 doctor --json", "sbon doctor --config sbon.toml"),
    "debug": ("sbon debug log-level debug", "sbon debug resources", "sbon debug dump"),
    "debug log-level": (
        "sbon debug log-level",
        "sbon debug log-level debug --logger sbon_node.overlay.membership --logger sbon_node.net",
        "sbon debug log-level info --reset",
    ),
    "debug resources": ("sbon debug resources", "sbon debug resources --json | jq '.disk[0]'"),
    "debug dump": ("sbon debug dump", "sbon debug dump --out london.tar.gz"),
    "status": ("sbon status", "sbon status --json | jq .engine"),
    "members": (
        "sbon members",
        "sbon members --state dead --state away",
        "sbon members --near london --within 30ms",
        "sbon members --tag zone=eu --json | jq -r .name",
    ),
    "rtt": ("sbon rtt london", "sbon rtt london tokyo --measure", "sbon rtt london tokyo --cached"),
    "map": ("sbon map", "sbon map --out map.png"),
    "monitor": (
        "sbon monitor",
        "sbon monitor --events membership,placement",
        "sbon monitor --events logs --log-level debug",
        "sbon monitor --events queries | jq 'select(.state == \"failed\")'",
    ),
    "config": ("sbon config show --origin", "sbon config check sbon.toml"),
    "config show": (
        "sbon config show",
        "sbon config show --config sbon.toml --origin",
        "SBON_LOG_LEVEL=debug sbon config show --origin",
    ),
    "config reference": ("sbon config reference > docs/configuration.md",),
    "config check": ("sbon config check sbon.toml", "cat sbon.toml | sbon config check -"),
    "stream": (CREATE, "sbon stream attach trades --node london --file trades.csv", "sbon stream show trades"),
    "stream create": (CREATE, "cat schema.txt | sbon stream create trades --schema - --event-time ts --delay 10s"),
    "stream attach": (
        "sbon stream attach trades --file trades.csv",
        "sbon stream attach trades --node london --file /srv/trades.csv --replay 60",
        "sbon stream attach trades --generator --rate 100",
        "sbon stream attach machines --connector hostmetrics --option interval_s=5",
    ),
    "stream push": ("sbon stream push clicks clicks.csv", "tail -f clicks.ndjson | sbon stream push clicks -"),
    "stream detach": ("sbon stream detach trades --node london", "sbon stream detach trades --name archive"),
    "stream list": ("sbon stream list", "sbon stream list --json | jq -r .entry.declaration.name"),
    "streams": ("sbon streams",),
    "stream show": ("sbon stream show trades",),
    "stream drop": ("sbon stream drop trades",),
    "sql": (
        "sbon sql",
        "sbon sql -f report.sql",
        "sbon sql -c 'SHOW STREAMS; SHOW QUERIES'",
        "echo 'SELECT * FROM trades' | sbon sql > trades.ndjson",
    ),
    "submit": (
        f"sbon submit {LARGE}",
        f"sbon submit --name large --no-follow {LARGE}",
        "sbon submit @report.sql --to all.parquet",
        "sbon submit --to postgres://sbon@db.example.org/trades/large @report.sql",
        "cat report.sql | sbon submit - --strategy optimal --max-delay 80ms > rows.ndjson",
    ),
    "explain": (f"sbon explain {LARGE}", "sbon explain @report.sql", "sbon explain placement large"),
    "explain plan": (f"sbon explain plan {LARGE}", "sbon explain plan --query large", "cat report.sql | sbon explain -"),
    "explain placement": (f"sbon explain placement {LARGE}", "sbon explain placement large --out large.svg"),
    "query": ("sbon query list", "sbon query follow large", "sbon query stop large"),
    "query list": ("sbon query list", "sbon query list --state running --json | jq -r .id"),
    "queries": ("sbon queries",),
    "query show": ("sbon query show large",),
    "query migrate": (
        "sbon query migrate large b0 --to paris",
        "sbon query migrate large b0 --to paris --how stop",
        "sbon query migrate large b0 --cancel",
    ),
    "query stop": ("sbon query stop large",),
    "query usage": ("sbon query usage large",),
    "usage": ("sbon usage large", "sbon usage large --json | jq '.byte_ms / .baseline_byte_ms'"),
    "query sink": ("sbon query sink list large", "sbon query sink add large --to large.csv"),
    "query sink add": (
        "sbon query sink add large --to large.csv",
        "sbon query sink add large --to postgres://me@db.example.org/results/large --consumer paris --from now",
    ),
    "query sink remove": ("sbon query sink remove large sink2",),
    "query sink list": ("sbon query sink list large",),
    "query follow": ("sbon query follow large", "sbon query follow large --rm > rows.ndjson"),
    "demo": ("sbon demo",),
    "completion": (
        "echo 'eval \"$(sbon completion bash)\"' >> ~/.bashrc",
        "echo 'eval \"$(sbon completion zsh)\"' >> ~/.zshrc",
        "sbon completion fish > ~/.config/fish/completions/sbon.fish",
    ),
}


def examples() -> dict[str, tuple[str, ...]]:
    """Return the examples of every command by its path."""
    return {**OWN, **{path: lines for section in sections() for path, lines in section.examples.items()}}


def with_examples(command: click.Command, name: str) -> click.Command:
    """Add the examples of the table to the help of the command, and of those under it."""
    lines = OWN.get(name) or examples().get(name, ())
    if lines:
        command.epilog = "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
    for below, subcommand in command.commands.items() if isinstance(command, click.Group) else ():
        with_examples(subcommand, f"{name} {below}")
    return command
