"""Injection and repair of faults on the nodes of a local cluster."""

import resource
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress

import psutil

from sbon import SbonError
from sbon.local.cluster import LocalCluster
from sbon.local.node import LocalNode
from sbon.model import QueryInfo
from sbon_lab.bench.path.costs import kind_of
from sbon_lab.chaos.asking import Asking, Gate
from sbon_lab.chaos.faults import BETWEEN_TWO, LOSES_DISK, Action, Fault, Stage
from sbon_lab.chaos.network import Network
from sbon_lab.chaos.timeline import Timeline
from sbon_lab.chaos.users import User
from sbon_lab.migration.kills import kill
from sbon_protocol.api.states.operator_states import RUNNING

AT_A_TIME = 2
"""Faults that may last at the same time."""
POSSIBLE_S = 240.0
"""For how long a fault waits until the queries can survive it."""
LOOK_S = 0.5
READY_S = 300.0
"""Longest time until a restarted node is ready."""
REST_S = 20.0
"""Pause after the loss of a disk, in which the registers get other acceptors."""
LEAST_COPIES = 3
"""Copies of a record, of which one may be lost."""
UNLIMITED = resource.RLIM_INFINITY
VICTIMS: dict[Action, str] = {"kill": "daemon", "kill-engine": "host", "kill-jvm": "jvm", "wipe": "all", "kill-all": "all"}


class Injector:
    """Strikes with one fault after another, each in a thread of its own, and repairs each."""

    def __init__(self, cluster: LocalCluster, stage: Stage, network: Network, timeline: Timeline, gate: Gate) -> None:
        self._cluster, self._network, self._timeline, self._gate = cluster, network, timeline, gate
        self._names = [node.name for node in cluster.nodes]
        self._busy: set[str] = set()
        self._lock = threading.Lock()
        self._disk_lost_s = 0.0
        self._wants_quiet: Fault | None = None
        self.asking = Asking(cluster, self._names, lambda: frozenset(self._busy))
        self._user = User(cluster, stage.pinned, self.asking)
        self.struck: Counter[str] = Counter()
        self.given_up: list[str] = []
        """Drains and restarts that have not come to their end."""

    def run(self, faults: Sequence[Fault], is_over: Callable[[], bool] = lambda: False) -> None:
        """Let each fault strike at its time, or as soon as it can after it; return when all are repaired."""
        began_s = time.monotonic()
        with ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="fault") as pool:
            suffered = []
            for fault in faults:
                while (wait_s := began_s + fault.at_s - time.monotonic()) > 0 and not is_over():
                    time.sleep(min(wait_s, LOOK_S))
                suffered.append(pool.submit(self._suffer, fault))
            for one in suffered:
                one.result()

    # -- whom a fault strikes -----------------------------------------------------------------------------------------

    def _suffer(self, fault: Fault) -> None:
        deadline_s, why = time.monotonic() + POSSIBLE_S, ""
        while time.monotonic() < deadline_s:
            try:
                self._check_rest(fault)
                with self._gate.closed() if fault.action in LOSES_DISK else nullcontext(), self._claimed(fault) as nodes:
                    self._strike(fault, nodes)
                    self.struck[fault.action] += 1
                    return
            except NotPossibleError as error:
                why = str(error)
            except SbonError as error:
                self.given_up.append(f"{fault.action}: {error}")
                return
            time.sleep(LOOK_S)
        with self._lock:
            self._wants_quiet = None if self._wants_quiet is fault else self._wants_quiet
        self._timeline.note("fault", fault.action, "", f"not possible: {why}", struck=False)

    def _check_rest(self, fault: Fault) -> None:
        if fault.action in LOSES_DISK and time.monotonic() < self._disk_lost_s + REST_S:
            raise NotPossibleError("a disk was lost a short time ago")

    @contextmanager
    def _claimed(self, fault: Fault) -> Iterator[list[LocalNode]]:
        """Keep other faults from the nodes that this one strikes; raise :class:`NotPossibleError`."""
        with self._lock:
            chosen = self._choose(fault)
            self._busy |= set(chosen)
        try:
            yield [self._cluster[name] for name in chosen]
        finally:
            with self._lock:
                self._busy -= set(chosen)

    def _choose(self, fault: Fault) -> tuple[str, ...]:
        if fault.action in LOSES_DISK or fault.action == "kill-all":
            if self._busy or self._wants_quiet not in (None, fault):
                self._wants_quiet = self._wants_quiet or fault
                raise NotPossibleError("another fault lasts")
            self._wants_quiet = None
            return tuple(self._names)
        if self._wants_quiet is not None:
            raise NotPossibleError("another fault waits until none lasts")
        idle = [name for name in fault.nodes if name not in self._busy]
        if fault.action in ("kill-engine", "kill-jvm", "kill-worker"):
            idle = [name for name in idle if victims(self._cluster[name], fault.action)]
        needed = 2 if fault.action in BETWEEN_TWO else 1
        if len(idle) < needed:
            raise NotPossibleError("no node has such a process, or all suffer from other faults")
        return tuple(idle[:needed])

    # -- what happens to it -------------------------------------------------------------------------------------------

    def _strike(self, fault: Fault, nodes: list[LocalNode]) -> None:
        action, names = fault.action, " ".join(node.name for node in nodes)
        if action in LOSES_DISK:
            self._lose(fault)
        elif action == "move":
            self._move(fault, nodes[0])
        elif action in BETWEEN_TWO:
            with self._timeline.during(action, names, "healed"), self._network.struck(fault, nodes[0].name, nodes[1].name):
                time.sleep(fault.down_s)
        elif action == "pause":
            with self._timeline.during(action, names, "goes on"), stopped(nodes[0]):
                time.sleep(fault.down_s)
        elif action == "disk-full":
            with self._timeline.during(action, names, "has room"), full(nodes[0]):
                time.sleep(fault.down_s)
        elif action in ("kill", "kill-all"):
            with self._timeline.during(action, "" if action == "kill-all" else names, "back"):
                for node in nodes:
                    kill(node, VICTIMS[action])
                time.sleep(fault.down_s)
                self._start(nodes)
        else:
            for process in victims(nodes[0], action):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            self._timeline.note("fault", action, names, "killed")

    def _start(self, nodes: Sequence[LocalNode]) -> None:
        for node in nodes:
            node.start()
        for node in nodes:
            node.wait_ready(READY_S)

    def _lose(self, fault: Fault) -> None:
        """Let a node lose its disk, or leave, while no query is submitted and no other fault lasts."""
        node = self._cluster[self._may_be_lost(fault)]
        with self._timeline.during(fault.action, node.name, "joined again"):
            if fault.action == "wipe":
                kill(node, "all")
            else:
                self._user.let_leave(node, drain=fault.action == "drain")
            node.lose_data()
            time.sleep(fault.down_s)
            node.start()
            node.wait_ready(READY_S)
        self._disk_lost_s = time.monotonic()

    def _may_be_lost(self, fault: Fault) -> str:
        """Return the first of the fault's nodes that the queries can lose now."""
        whys = []
        try:
            live = self.asking.live()
            for name in fault.nodes:
                why = why_not_lost(live, name) if fault.action == "wipe" else ""
                if not why:
                    return name
                whys.append(f"{name}: {why}")
        except SbonError as error:
            whys.append(str(error))
        raise NotPossibleError("; ".join(whys))

    def _move(self, fault: Fault, target: LocalNode) -> None:
        try:
            query, operator, origin = self._user.choose_move(target.name, fault.lot)
        except SbonError as error:
            raise NotPossibleError(str(error)) from error
        with self._timeline.during("move", f"{operator} from {origin} to {target.name}") as entry:
            try:
                self._user.move(query, operator, target.name)
                entry.outcome = "moved"
                return
            except SbonError as error:
                entry.outcome, entry.struck = f"stays: {error.message}", False
        raise NotPossibleError(entry.outcome)


class NotPossibleError(Exception):
    """A fault finds no node at which it may strike now."""


def victims(node: LocalNode, action: Action) -> list[psutil.Process]:
    """Return the processes of a node that an action kills."""
    found = []
    for process in family(node)[1:]:
        with suppress(psutil.Error):
            kind = kind_of(process.cmdline(), top=False)
            if action != "kill-worker":
                if kind == VICTIMS[action]:
                    found.append(process)
            elif kind == "python" and (parent := process.parent()) and kind_of(parent.cmdline(), top=False) == "python":
                found.append(process)
    return found


def family(node: LocalNode) -> list[psutil.Process]:
    """Return the daemon and all of its descendants; nothing if it does not run."""
    try:
        daemon = psutil.Process(node.pid)
        return [daemon, *daemon.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


@contextmanager
def stopped(node: LocalNode) -> Iterator[None]:
    """Stop all processes of the node within the block."""
    processes = family(node)
    try:
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGSTOP)
        yield
    finally:
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)


@contextmanager
def full(node: LocalNode) -> Iterator[None]:
    """Let all processes of the node write nothing more to files within the block, by their limit of a file's size."""
    try:
        _limit(node, 0)
        yield
    finally:
        _limit(node, UNLIMITED)


def _limit(node: LocalNode, size: int) -> None:
    for process in family(node):
        with suppress(psutil.NoSuchProcess):
            process.rlimit(psutil.RLIMIT_FSIZE, (size, UNLIMITED))


def why_not_lost(queries: Iterable[QueryInfo], node: str) -> str:
    """Return why the disk of a node cannot be lost while these queries live; empty if it can."""
    return next((why for info in queries if (why := _why_not(info, node))), "")


def _why_not(info: QueryInfo, node: str) -> str:
    if info.survival is None:
        return f"{info.id} is {info.state}"
    if info.stale:
        return f"{info.id} is not confirmed by a majority"
    for loss in info.survival.losses:
        if loss.node == node:
            return f"{info.id} would lose {loss.part} {loss.name} ({loss.why})"
    if node in info.acceptors and len(info.acceptors) < LEAST_COPIES:
        return f"{info.id} has its record on {len(info.acceptors)} nodes"
    for operator in info.operators:
        # With the node the operator would be lost if its host were lost already, or has just been.
        if operator.backup is not None and operator.backup.node == node and operator.state != RUNNING:
            return f"{operator.id} is {operator.state}, and {node} its backup"
    return ""
