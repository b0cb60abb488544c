"""An asyncio loop with virtual time.

Where a real loop would wait, this loop moves its clock to the next timer. It does no input or output and uses no threads, so the
same program and seed give the same run. Callbacks run in the order of their scheduling. Tasks are named and hashed by their
number, so sets of tasks iterate alike in every run. The cyclic garbage collector is off meanwhile, because its timing is not
deterministic.
"""

import asyncio
import gc
import heapq
import random
import selectors
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextvars import Context
from typing import Any, NoReturn, TypeVar, TypeVarTuple

from sbon_lab.simulation.process import KilledError, Process, current_process
from sbon_node.base.clock import Clock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

EPOCH_S = 1_700_000_000.0
"""Wall-clock time at virtual time zero, in seconds since 1970."""


class VirtualTimeError(RuntimeError):
    """The run cannot continue: deadlock, a limit was reached, or code called the real world."""


class DeadlockError(VirtualTimeError):
    """The run is not over, but no callback is scheduled; the message lists the waiting tasks and their places."""


class RealWorldError(VirtualTimeError):
    """Code under virtual time asked for a thread, a real socket or a name server."""


class _Selector(selectors.BaseSelector):
    """A selector that never waits: ``select`` moves ``now_s`` to the next timer, and returns the timers due then."""

    def __init__(self, max_time_s: float, turns_a_second: int) -> None:
        self.now_s = 0.0
        self.turns = 0
        self._second, self._turns_before = 0, 0
        """The present second of virtual time, and the turns before it."""
        self.timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        """A heap; at equal times the older timer comes first."""
        self.max_time_s = max_time_s
        self.turns_a_second = turns_a_second
        self.describe_waiting: Callable[[], str] = str
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def bound_anew(self, max_time_s: float, turns_a_second: int) -> None:
        self.max_time_s, self.turns_a_second, self._turns_before = max_time_s, turns_a_second, self.turns

    def select(self, timeout: float | None = None) -> list[Any]:
        """Return the due timers. ``timeout`` is 0 if callbacks are ready, otherwise None."""
        self.turns += 1
        if self.turns > self._turns_before + self.turns_a_second:
            raise VirtualTimeError(f"{self.turns_a_second} turns of the loop at {self.now_s:.3f} s\n{self.describe_waiting()}")
        if timeout is None:
            self._move_on()
        timers, due = self.timers, []
        while timers and timers[0][0] <= self.now_s:
            due.append(heapq.heappop(timers)[2])
        return due

    def _move_on(self) -> None:
        while self.timers and self.timers[0][2].cancelled():
            heapq.heappop(self.timers)
        if not self.timers:
            raise DeadlockError(f"nothing is scheduled any more at {self.now_s:.3f} s\n{self.describe_waiting()}")
        self.now_s = max(self.now_s, self.timers[0][0])
        if int(self.now_s) != self._second:
            self._second, self._turns_before = int(self.now_s), self.turns
        if self.now_s > self.max_time_s:
            raise VirtualTimeError(f"not over after {self.max_time_s} s of virtual time\n{self.describe_waiting()}")

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if self._keys:  # the first key is the loop's own pipe, which has no writer
            raise RealWorldError("a real socket or file under virtual time")
        self._keys[fileobj] = key = selectors.SelectorKey(fileobj, fileobj, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys


class SimulatedTask(asyncio.Task[Any]):
    """A task that knows its number in the run, and the process it dies with."""

    def __init__(self, coro: Any, *, number: int, process: Process | None, **kwargs: Any) -> None:
        self.number = number
        self.process = process
        super().__init__(coro, **kwargs)

    def __hash__(self) -> int:
        return self.number


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop of this module. ``unhandled`` collects exceptions of living processes that no task has retrieved."""

    def __init__(
        self, *, max_time_s: float = 86_400.0, turns_a_second: int = 1_000_000, permute: random.Random | None = None
    ) -> None:
        self._virtual = _Selector(max_time_s, turns_a_second)
        self._permute = permute
        self._paused: list[Process] = []
        super().__init__(self._virtual)
        self._virtual.describe_waiting = self.describe_waiting
        self._tasks: dict[SimulatedTask, None] = {}
        self._task_count = self._timer_count = 0
        self.unhandled: list[str] = []
        self.set_task_factory(_make_task)
        self.set_exception_handler(_note_unhandled)

    @property
    def turns(self) -> int:
        return self._virtual.turns

    def time(self) -> float:
        return self._virtual.now_s

    def clock(self, offset_s: float = 0.0) -> Clock:
        """Return a clock whose wall time is virtual too, ``offset_s`` ahead of the true time."""
        return Clock(wall_s=lambda: EPOCH_S + offset_s + self._virtual.now_s, monotonic_s=self.time)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._timer_count += 1
        heapq.heappush(self._virtual.timers, (when, self._timer_count, timer))
        return timer

    def _process_events(self, timers: list[asyncio.TimerHandle]) -> None:
        """Run the due timers that the selector returns, with the callbacks that are ready."""
        ready: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        if self._permute is not None and len(ready) + len(timers) > 1:
            _reorder(ready, timers, self._permute)
        ready.extend(timers)
        if self._paused:
            self._keep_paused(ready)

    def pause(self, process: Process) -> None:
        """Pause a process until :meth:`resume`; it may be killed meanwhile."""
        process.pause()
        self._paused.append(process)

    def resume(self, process: Process) -> None:
        if process in self._paused:
            self._paused.remove(process)
            self._ready.extend(process.resume())  # type: ignore[attr-defined]

    def _keep_paused(self, ready: deque[asyncio.Handle]) -> None:
        """Take the callbacks of paused processes out of the ready ones."""
        for process in [process for process in self._paused if not process.alive]:
            self.resume(process)
        due = list(ready)
        ready.clear()
        for handle in due:
            process = handle._context.get(current_process)  # type: ignore[attr-defined]
            if process is not None and process.paused:
                process.keep(handle)
            else:
                ready.append(handle)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> NoReturn:  # type: ignore[override]
        raise RealWorldError(f"run_in_executor({getattr(func, '__qualname__', func)}) under virtual time")

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> NoReturn:
        raise RealWorldError(f"getaddrinfo({host!r}) under virtual time")

    def describe_waiting(self) -> str:
        lines = [f"  {task.get_name()} at {_where(task.get_coro())}" for task in list(self._tasks)]
        return "\n".join(["waiting:", *lines[:100], *([f"  and {len(lines) - 100} more"] if len(lines) > 100 else [])])

    def cancel_all(self) -> None:
        """Cancel the remaining tasks, oldest first, and let them end."""
        for task in list(self._tasks):
            task.cancel()
        self._virtual.bound_anew(self.time() + 60.0, 10_000)
        leftovers = list(self._tasks)
        if leftovers:
            self.run_until_complete(asyncio.wait(leftovers, timeout=30.0))
        self.run_until_complete(self.shutdown_asyncgens())

    def adopt(self, coro: Any, **kwargs: Any) -> SimulatedTask:
        self._task_count += 1
        context = kwargs.get("context")
        process = context.get(current_process) if context is not None else current_process.get()
        name = f"{process.name if process else 'world'}/{self._task_count}:{getattr(coro, '__qualname__', 'task')}"
        task = SimulatedTask(coro, number=self._task_count, process=process, loop=self, name=name, **kwargs)
        self._tasks[task] = None
        task.add_done_callback(self._forget)
        if process is not None:
            process.adopt(task)
        return task

    def _forget(self, task: Any) -> None:
        self._tasks.pop(task, None)


def _reorder(ready: deque[asyncio.Handle], timers: list[asyncio.TimerHandle], rng: random.Random) -> None:
    """Move the ready tasks behind the other callbacks; draw an order of them, and one of ``timers``."""
    if len(timers) > 1:
        rng.shuffle(timers)
    if len(ready) < 2:
        return
    tasks: list[asyncio.Handle] = []
    others: list[asyncio.Handle] = []
    for handle in ready:
        task = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]
        (tasks if isinstance(task, SimulatedTask) else others).append(handle)
    if len(tasks) > 1:
        rng.shuffle(tasks)
    ready.clear()
    ready.extend(others)
    ready.extend(tasks)


def _make_task(loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, T] | Generator[Any, None, T], **kwargs: Any) -> Any:
    assert isinstance(loop, VirtualLoop)
    return loop.adopt(coro, **kwargs)


def _note_unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    assert isinstance(loop, VirtualLoop)
    task = context.get("task") or context.get("future")
    process = task.process if isinstance(task, SimulatedTask) else current_process.get()
    if isinstance(context.get("exception"), KilledError):  # A datagram's receiver was killed in its own code.
        return
    if process is None or process.alive:
        name = task.get_name() if isinstance(task, SimulatedTask) else "callback"
        loop.unhandled.append(f"{name}: {context.get('message')}: {context.get('exception')!r}")


def _where(coroutine: Any) -> str:
    """Return where a suspended coroutine waits, as ``file:line in function`` of the innermost frame."""
    frame: types.FrameType | None = None
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "ag_frame", None) or frame
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "ag_await", None)
    if frame is None:
        return "its end"
    return f"{'/'.join(frame.f_code.co_filename.split('/')[-2:])}:{frame.f_lineno} in {frame.f_code.co_qualname}"


def run(
    main: Callable[[VirtualLoop, random.Random], Coroutine[Any, Any, T]],
    *,
    seed: int | str,
    max_time_s: float = 86_400.0,
    turns_a_second: int = 1_000_000,
    permute: bool = False,
) -> T:
    """Run ``main(loop, rng)`` in virtual time and return its result; the same seed gives the same run.

    More than ``turns_a_second`` turns of the loop in a second of virtual time end it with :class:`VirtualTimeError`. With
    ``permute``, the seed also draws the order of tasks and timers that are due at one instant.
    """
    order = random.Random(f"order/{seed}") if permute else None
    loop = VirtualLoop(max_time_s=max_time_s, turns_a_second=turns_a_second, permute=order)
    collecting = gc.isenabled()
    gc.disable()
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(main(loop, random.Random(f"run/{seed}")))
    finally:
        try:
            loop.cancel_all()
        finally:
            asyncio.set_event_loop(None)
            loop.close()
            if collecting:
                gc.enable()
