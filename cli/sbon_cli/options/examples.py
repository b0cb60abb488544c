"""Examples of every command, shown at the end of its help."""

from __future__ import annotations

import click

CREATE = 'sbon stream create trades --schema "ts timestamp, symbol string, price double, size bigint" --event-time ts'
LARGE = '"SELECT symbol, price FROM trades WHERE size > 100"'

EXAMPLES: dict[str, tuple[str, ...]] = {
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
    "doctor": (
        "sbon doctor",
        "sbon --node http://london.example.org:7480 doctor --json",
        "sbon doctor --config sbon.toml",
    ),
    "debug": ("sbon debug log-level debug", "sbon debug resources", "sbon debug dump"),
    "debug log-level": (
        "sbon debug log-level",
        "sbon debug log-level debug --logger sbon_node.membership --logger sbon_node.net",
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
    "bench": ("sbon bench engine --quick",),
    "bench engine": ("sbon bench engine --quick", "sbon bench engine --json > engine.json"),
    "bench chaos": ("sbon bench chaos --minutes 2 --seed 7", "sbon bench chaos --minutes 10 --json --out chaos"),
    "bench control": ("sbon bench control --json",),
    "bench endurance": ("sbon bench endurance --queries 500 --json",),
    "bench memory": ("sbon bench memory", "sbon bench memory --json > memory.json"),
    "bench query": ("sbon bench query", "sbon bench query --turns 20 --json > query.json"),
    "bench durability": ("sbon bench durability --kind filter --turns 1", "sbon bench durability --json"),
    "bench recovery": ("sbon bench recovery --kind filter --losses 1", "sbon bench recovery --json"),
    "bench migration": ("sbon bench migration --kind left-join --state-mb 0", "sbon bench migration --kills 30 --json"),
    "bench path": ("sbon bench path --quick", "sbon bench path --json > path.json"),
    "bench planning": ("sbon bench planning",),
    "bench schedules": ("sbon bench schedules --first 0 --count 1000 --json",),
    "bench restarts": ("sbon bench restarts", "sbon bench restarts --operators 20 --json > restarts.json"),
    "bench readers": ("sbon bench readers --frames 100", "sbon bench readers --json"),
    "bench usage": ("sbon bench usage",),
    "simulate": (
        "sbon simulate tests/scenarios/random_faults.toml --seeds 1..20",
        "cat scenario.toml | sbon simulate - --seed 7 --trace",
    ),
    "experiment": ("sbon experiment sbon-table1", "sbon experiment coordinates --made access:200"),
    "experiment coordinates": ("sbon experiment coordinates --made access:200 --seed 3",),
    "experiment membership": ("sbon experiment membership --nodes 100 --scenario partition",),
    "experiment overlay": ("sbon experiment overlay --data latencies.npz --nodes 24",),
    "experiment estimates": ("sbon experiment estimates --query join_weather --operators",),
    "experiment sbon-table1": ("sbon experiment sbon-table1 --seeds 1-2 --out table1",),
    "experiment penalty": ("sbon experiment penalty --operators 3 --operators 7",),
    "experiment sand": ("sbon experiment sand --figure 6 --out sand",),
    "experiment opb-table1": ("sbon experiment opb-table1",),
    "experiment nes": ("sbon experiment nes --sources 8",),
    "experiment scale": ("sbon experiment scale --operators 20 --sequence 0",),
    "experiment ants": ("sbon experiment ants --part 2a",),
    "experiment adaptation": ("sbon experiment adaptation --data latencies.npz --nodes 20 --json",),
    "experiment strategies-live": (
        "sbon experiment strategies-live --data latencies.npz --strategy hybrid --strategy ants --json",
    ),
    "experiment reuse": (
        "sbon experiment reuse --json",
        "sbon experiment reuse --part zipf --nodes 50 --queries 50 --exponent 1.2",
    ),
    "experiment sbon-live": (
        "sbon experiment sbon-live --figure 10 --data latencies.npz --out figure10",
        "sbon experiment sbon-live --figure 12 --live --data latencies.npz --nodes 9 --hosts 4 --queries 4",
    ),
    "experiment ants-live": (
        "sbon experiment ants-live --topology ts208 --queries 5 --loss 0.1",
        "sbon experiment ants-live --figure 3a --figure table1 --seeds 1-3 --json",
    ),
    "experiment live": ("sbon experiment live --data latencies.npz --nodes 12",),
    "completion": (
        "echo 'eval \"$(sbon completion bash)\"' >> ~/.bashrc",
        "echo 'eval \"$(sbon completion zsh)\"' >> ~/.zshrc",
        "sbon completion fish > ~/.config/fish/completions/sbon.fish",
    ),
}


def with_examples(command: click.Command, name: str) -> click.Command:
    """Add the examples of the table to the help of the command, and of those under it."""
    lines = EXAMPLES.get(name, ())
    if lines:
        command.epilog = "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
    for below, subcommand in command.commands.items() if isinstance(command, click.Group) else ():
        with_examples(subcommand, f"{name} {below}")
    return command
