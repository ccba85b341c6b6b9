"""The order of steps: which table is touched next, and when. No threads and no clock: every call gets the time.

    due time reached ─▶ ready ─▶ fair choice ─▶ running ─▶ when it is due again

A step is a look at a table, or one commit of what a look has found. A table has at most one step at a time.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

LOOKS = 32
"""Most looks at one time, of a database and of all databases together."""

STUCK = 10.0
"""Seconds after which a look is stuck, in a file or a store that does not answer. From then on it counts only among the
looks of its own database: no database holds up another."""

YOUNG = 0.03
"""Seconds for which a step counts as computing: a small table is done by then, and what takes longer waits for the disk
or for Spark, or is in a long call that leaves the interpreter to others."""


class Again(NamedTuple):
    """What a step returns: when its table is due again.

    `seconds`: until then; infinite: when something wakes it. `plan`: what is to be committed then; None: the next step
    is a look. `rest`: seconds in which no wake counts.
    """

    seconds: float = math.inf
    plan: Any = None
    rest: float = 0.0


Step = Callable[[Any, Any], Again]
"""One step of a table: gets its name, and the plan to commit or None."""


@dataclass(eq=False)
class Task:
    """One table in the queue. Times by the clock of the queue.

    `due`: when it becomes ready; infinite while it is not asked for. `not_before`: no step begins earlier. `asked`:
    when it was asked for while it was at work. `turn`: its number among the ready ones, lower first.
    """

    lane: Lane
    name: Hashable
    due: float = math.inf
    not_before: float = -math.inf
    asked: float = math.inf
    plan: Any = None
    turn: int = 0
    is_ready: bool = False
    at_work: bool = False


@dataclass(eq=False)
class Lane:
    """One database in the queue. What is of looks and of commits is in this order: of looks (False), of commits (True).

    `step`: what is done with its tables. `most`: looks and commits at one time, `at_work`: those that run, `ready`: the
    tables that wait for them, heaps by turn. `computes`: steps need a core rather than wait for a store. `active`:
    tables that are ready or at work. `served`: when it got a step last, as a number that rises.
    """

    step: Step
    most: dict[bool, int]
    computes: bool = True
    is_stopped: bool = False
    active: int = 0
    at_work: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})
    served: int = 0
    tasks: dict[Hashable, Task] = field(default_factory=dict)
    ready: dict[bool, list[tuple[int, Task]]] = field(default_factory=lambda: {False: [], True: []})


class Schedule:
    """All tables of a process that wait for a time, for their turn, or are at work.

    The next commit is that of the database with the fewest commits at work. Among equals, among looks, and between a
    look and a commit, the database that was served longest ago is next. Within a database it is the table that became
    ready first: a look that has found something to commit keeps its turn, and a further commit goes to the end.
    """

    def __init__(self, commits: int | None, cores: int) -> None:
        """`commits`: most at one time, of all databases; None: what the databases allow. `cores`: most steps that begin
        to compute at one time: more threads of Python than cores make each other slower."""
        self._commits = math.inf if commits is None else commits
        self._cores = cores
        self._heap: list[tuple[float, int, Task]] = []
        self._lanes: dict[Lane, None] = {}  # those with ready tables
        self._turns = 0
        self._tasks = 0
        self._at_work = 0  # commits
        self._looking: dict[Task, float] = {}  # looks at work, and until when they count
        self._young: dict[Task, float] = {}  # steps that compute, and until when they count

    def later(self, lane: Lane, name: Hashable, at: float) -> None:
        """The table is due at this time, or earlier if it already is."""
        if lane.is_stopped:
            return
        task = lane.tasks.get(name)
        if task is None:
            task = lane.tasks[name] = Task(lane, name)
            self._tasks += 1
        at = max(at, task.not_before)
        if task.at_work or task.plan is not None:
            task.asked = min(task.asked, at)
        elif not task.is_ready and at < task.due:
            self._wait_until(task, at)

    def take(self, now: float) -> Task | None:
        """The table whose step begins now; None if none is ready, or no more may run. `finish` must follow."""
        self._make_ready(now)
        if not self._lanes:
            return None
        computing, looking = (sum(until > now for until in tasks.values()) for tasks in (self._young, self._looking))
        is_full = computing >= self._cores
        is_free = {False: looking < LOOKS, True: self._at_work < self._commits}
        looks, commits = [], []
        for lane in self._lanes:
            if is_full and lane.computes:
                continue
            for turn, task in self._next_of(lane, is_free):
                if task.plan is None:
                    looks.append((lane.served, turn, task))
                else:
                    commits.append((lane.at_work[True], lane.served, turn, task))
        chosen = [min(looks)] if looks else []
        if commits:
            chosen.append(min(commits)[1:])
        if not chosen:
            return None
        *_, task = min(chosen)  # no two turns are equal, so that no tasks are compared
        lane, is_commit = task.lane, task.plan is not None
        heapq.heappop(lane.ready[is_commit])
        if not any(lane.ready.values()):
            self._lanes.pop(lane, None)
        task.is_ready, task.at_work = False, True
        if is_commit:
            self._at_work += 1
        else:
            task.asked = math.inf  # a look sees all that has happened before it
            self._looking[task] = now + STUCK
        lane.at_work[is_commit] += 1
        if lane.computes:
            self._young[task] = now + YOUNG
        self._turns += 1
        lane.served = self._turns
        return task

    def finish(self, task: Task, again: Again, now: float) -> None:
        """Takes back a table after its step."""
        was_commit = task.plan is not None
        task.lane.at_work[was_commit] -= 1
        self._at_work -= was_commit
        self._looking.pop(task, None)
        self._young.pop(task, None)
        task.plan = again.plan
        task.not_before = now + again.rest
        self.release(task, now + again.seconds, keeps_turn=not was_commit)

    def hold(self, lane: Lane, name: Hashable) -> Task | None:
        """Keeps a table from beginning a step until `release`; None if it is at work or has something to commit."""
        task = lane.tasks.get(name) or Task(lane, name)
        if task.at_work or task.plan is not None or lane.is_stopped:
            return None
        if name not in lane.tasks:
            lane.tasks[name] = task
            self._tasks += 1
        task.asked, task.due = min(task.asked, -math.inf if task.is_ready else task.due), math.inf
        lane.active += not task.is_ready
        task.is_ready, task.at_work = False, True
        return task

    def release(self, task: Task, at: float = math.inf, *, keeps_turn: bool = False) -> None:
        """Ends a step or a hold. `at`: when the table is due; earlier if it was asked for meanwhile."""
        task.at_work = False
        task.lane.active -= 1
        if task.lane.is_stopped or task.lane.tasks.get(task.name) is not task:
            task.plan = None
        elif task.plan is not None:
            self._to_ready(task, keeps_turn=keeps_turn)
        else:
            asked, task.asked = task.asked, math.inf
            self._wait_until(task, max(min(at, asked), task.not_before))

    def forget(self, lane: Lane, name: Hashable) -> None:
        """The table is gone. A step at work ends, and is the last."""
        task = lane.tasks.pop(name, None)
        if task is not None:
            self._tasks -= 1
            task.due = math.inf
            lane.active -= task.is_ready
            task.is_ready = False

    def stop(self, lane: Lane) -> None:
        """No step of the database begins any more."""
        lane.is_stopped = True
        self._lanes.pop(lane, None)
        for name in list(lane.tasks):
            if not lane.tasks[name].at_work:
                self.forget(lane, name)

    def next_event(self, now: float) -> float:
        """When `take` may give a table that it does not give now; infinite: after a call of another method."""
        counting = chain(self._young.values(), self._looking.values()) if self._lanes else ()
        more_may_run = min((until for until in counting if until > now), default=math.inf)
        while self._heap and self._is_stale(*self._heap[0]):
            heapq.heappop(self._heap)
        return min(more_may_run, self._heap[0][0] if self._heap else math.inf)

    def next_due(self, lane: Lane) -> float:
        """When the next table of a database is due that is neither ready nor at work."""
        return min((task.due for task in lane.tasks.values()), default=math.inf)

    @staticmethod
    def _next_of(lane: Lane, is_free: Mapping[bool, bool]) -> Iterator[tuple[int, Task]]:
        """The next look and the next commit of a database, as far as more of them may run. `is_free`: in all databases
        together."""
        for is_commit, waiting in lane.ready.items():
            while waiting and not (waiting[0][1].is_ready and waiting[0][1].turn == waiting[0][0]):
                heapq.heappop(waiting)
            if waiting and is_free[is_commit] and lane.at_work[is_commit] < lane.most[is_commit]:
                yield waiting[0]

    def _wait_until(self, task: Task, at: float) -> None:
        task.due = at
        if math.isinf(at) and at > 0:
            return
        if len(self._heap) > 64 + 4 * self._tasks:  # each wake leaves an entry behind
            self._heap = [entry for entry in self._heap if not self._is_stale(*entry)]
            heapq.heapify(self._heap)
        self._turns += 1
        heapq.heappush(self._heap, (at, self._turns, task))

    def _make_ready(self, now: float) -> None:
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            if not self._is_stale(*entry):
                entry[2].due = math.inf
                self._to_ready(entry[2])

    def _to_ready(self, task: Task, *, keeps_turn: bool = False) -> None:
        if not keeps_turn:
            self._turns += 1
            task.turn = self._turns
        task.is_ready = True
        task.lane.active += 1
        self._lanes[task.lane] = None
        heapq.heappush(task.lane.ready[task.plan is not None], (task.turn, task))

    @staticmethod
    def _is_stale(at: float, _: int, task: Task) -> bool:
        return task.due != at or task.is_ready or task.at_work
