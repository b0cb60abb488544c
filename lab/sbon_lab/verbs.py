"""The verbs that the laboratory adds to the command ``sbon``, each loaded when called."""

from sbon_cli.verbs import Section, Verb

SECTION = Section(
    "Measuring",
    {
        "bench": Verb("sbon_lab.commands.bench:bench", "Measures."),
        "simulate": Verb("sbon_lab.commands.simulate:simulate", "Runs whole daemons through a scenario in virtual time."),
        "experiment": Verb("sbon_lab.commands.experiment:experiment", "Repeats an experiment."),
    },
    {
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
        "experiment load": ("sbon experiment load --queries 100 --seeds 1-3",),
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
    },
)
