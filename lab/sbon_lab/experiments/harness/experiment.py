"""An experiment as data: measurements at a point, rows, and pictures; and the loop over points."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from sbon_lab.experiments.harness.network import Network, measured
from sbon_lab.experiments.harness.pictures import Picture, draw
from sbon_lab.experiments.harness.topologies import topology_named
from sbon_lab.experiments.harness.trials import Dump

Row = dict[str, Any]
Notify = Callable[[str], None]
Found = Callable[[Row], None]
"""Called with each row once it is there."""


class Key(Protocol):
    """Key of a row: a named tuple, whose fields the row has too."""

    def _asdict(self) -> dict[str, Any]: ...


X = TypeVar("X")
K = TypeVar("K", bound=Key)
O = TypeVar("O")  # noqa: E741
P = TypeVar("P")


def ignore(progress: object) -> None:
    """Show no progress, or no row before the end."""


@dataclass(frozen=True, kw_only=True)
class Experiment(Generic[X, K, O]):
    """``measure`` yields outcomes of a point by the key of their row; ``rows`` makes rows from all outcomes of a key, by seed.

    ``order`` sorts the keys; without it rows come as measured. :mod:`~sbon_lab.experiments.harness.columns` makes ``rows``.
    """

    name: str
    measure: Callable[[X], Iterable[tuple[K, O]]]
    rows: Callable[[K, Sequence[Sequence[O]]], Iterable[Row]]
    order: Callable[[K], Any] | None = None
    pictures: tuple[Picture, ...] = ()

    def collect(self, points: Iterable[tuple[int, X]]) -> dict[K, list[list[O]]]:
        """Measure all points, each given with the position of its seed."""
        trials: dict[K, list[list[O]]] = {}
        for position, point in points:
            for key, outcome in self.measure(point):
                by_seed = trials.setdefault(key, [])
                by_seed.extend([] for _ in range(position + 1 - len(by_seed)))
                by_seed[position].append(outcome)
        return trials

    def result(self, trials: Mapping[K, Sequence[Sequence[O]]]) -> dict[str, Any]:
        """Return ``{"name", "rows"}``."""
        keys = list(trials) if self.order is None else sorted(trials, key=self.order)
        return {"name": self.name, "rows": [row for key in keys for row in self.rows(key, trials[key])]}

    def draw(self, result: dict[str, Any], trials: Mapping[K, Sequence[Sequence[O]]], folder: Path) -> list[Path]:
        """Write the pictures and the result's JSON; return the files.

        Raises :class:`SbonError` ``input-missing`` where matplotlib is not installed.
        """
        return draw(self.pictures, result, trials, folder)


class Point(NamedTuple, Generic[P]):
    """A network with a seed, at which so many queries are placed.

    ``named`` says that the user chose the network, ``first`` that it is the first of its seed.
    """

    network: Network
    seed: int
    queries: int
    parameters: P
    lines: Dump
    notify: Notify
    named: bool
    first: bool


@dataclass(frozen=True, kw_only=True)
class PlacementExperiment(Experiment[Point[P], K, O], Generic[P, K, O]):
    """An experiment over networks x seeds; the fields are defaults.

    ``parameters`` are those of the experiment alone: a named tuple with their defaults.
    """

    parameters: P
    topologies: Callable[[P], Sequence[str]]
    queries: int
    seeds: Sequence[int]

    def run(
        self,
        data: Sequence[Path] = (),
        topologies: Sequence[str] = (),
        *,
        queries: int | None = None,
        seeds: Sequence[int] | None = None,
        dump: Path | None = None,
        notify: Notify = ignore,
        **parameters: Any,
    ) -> tuple[dict[str, Any], dict[K, list[list[O]]]]:
        """Return ``{"name", "rows"}``, and all outcomes by key and seed.

        Raises :class:`SbonError` ``bad-matrix``, ``unknown-topology`` or what ``measure`` raises.
        """
        lines = Dump(dump, self.name)
        chosen: Any = self.parameters
        own: P = chosen._replace(**parameters)
        is_named = bool(data or topologies)
        names = topologies if is_named else self.topologies(own)
        queries_wanted = self.queries if queries is None else queries

        def points() -> Iterator[tuple[int, Point[P]]]:
            for position, seed in enumerate(self.seeds if seeds is None else seeds):
                for number, network in enumerate(networks_of(data, names, seed)):
                    shown = _about(f"{network.name}, seed {seed}: ", notify)
                    yield position, Point(network, seed, queries_wanted, own, lines, shown, is_named, number == 0)

        trials = self.collect(points())
        lines.close()
        return self.result(trials), trials


def _about(prefix: str, notify: Notify) -> Notify:
    return lambda text: notify(prefix + text)


# -- Choice of an experiment's networks: files of measured RTTs, and generated networks by name -----------------------


def networks_of(data: Sequence[Path], topologies: Sequence[str], seed: int) -> Iterator[Network]:
    """Yield the networks; a seed makes other networks of the same topology.

    Names are unique, because they identify rows, pictures and dumps: the second of several files ``plane.npz`` is
    ``plane-2``.

    Raises :class:`SbonError` ``bad-matrix`` or ``unknown-topology``.
    """
    names_used: set[str] = set()
    for network in itertools.chain((measured(path) for path in data), (topology_named(name, seed) for name in topologies)):
        others = (f"{network.name}-{number}" for number in itertools.count(2))
        name = next(name for name in itertools.chain([network.name], others) if name not in names_used)
        names_used.add(name)
        yield network._replace(name=name)
