"""The order of steps, by a simulated clock: due times, wakes, limits, fairness between databases and tables."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

import pytest
from tests.rounds import rounds

from lakemirror.mirror.schedule import LOOKS, STUCK, YOUNG, Again, Lane, Schedule, Task


def nothing(name: Any, plan: Any) -> Again:
    raise AssertionError("a schedule runs nothing")


def lane(commits: int = 4, looks: int = LOOKS, *, computes: bool = True) -> Lane:
    return Lane(nothing, {False: looks, True: commits}, computes)


def taken(schedule: Schedule, now: float) -> list[Task]:
    found = []
    while (task := schedule.take(now)) is not None:
        found.append(task)
    return found


def names(tasks: list[Task]) -> list[Any]:
    return [task.name for task in tasks]


def ready_commits(schedule: Schedule, lane: Lane, *names: str) -> None:
    """These tables have something to commit."""
    for name in names:
        schedule.later(lane, name, 0.0)
    for task in taken(schedule, 0.0):
        schedule.finish(task, Again(0.0, plan=task.name), 0.0)


def test_a_table_is_due_at_its_time_and_not_before() -> None:
    schedule, one = Schedule(None, 8), lane()
    schedule.later(one, "late", 7.0)
    schedule.later(one, "soon", 5.0)
    schedule.later(one, "late", 9.0)
    assert schedule.next_event(0.0) == 5.0
    assert taken(schedule, 4.9) == []
    assert names(taken(schedule, 5.0)) == ["soon"]
    assert schedule.next_event(5.0) == 7.0, "the earlier of two times counts"
    assert names(taken(schedule, 7.0)) == ["late"]


def test_what_is_due_again_and_what_only_a_wake_touches() -> None:
    schedule, one = Schedule(None, 8), lane()
    schedule.later(one, "t", 0.0)
    (task,) = taken(schedule, 0.0)
    schedule.finish(task, Again(3.0), 1.0)
    assert schedule.next_due(one) == 4.0
    (task,) = taken(schedule, 4.0)
    schedule.finish(task, Again(), 4.0)
    assert schedule.next_event(4.0) == schedule.next_due(one) == math.inf
    assert not one.active
    schedule.later(one, "t", 4.0)
    assert names(taken(schedule, 4.0)) == ["t"]


def test_a_wake_during_a_step_leads_to_another_step() -> None:
    schedule, one = Schedule(None, 8), lane()
    schedule.later(one, "t", 0.0)
    (task,) = taken(schedule, 0.0)
    schedule.later(one, "t", 1.0)
    assert taken(schedule, 2.0) == [], "a table has one step at a time"
    schedule.finish(task, Again(), 3.0)
    assert taken(schedule, 3.0) == [task]


def test_a_wake_during_commits_leads_to_a_look_after_them() -> None:
    schedule, one = Schedule(None, 8), lane()
    ready_commits(schedule, one, "t")
    (task,) = taken(schedule, 0.0)
    schedule.later(one, "t", 0.5)
    schedule.finish(task, Again(0.0, plan="more"), 1.0)
    assert names(taken(schedule, 1.0)) == ["t"] and task.plan == "more"
    schedule.finish(task, Again(), 2.0)
    assert taken(schedule, 2.0) == [task] and task.plan is None


def test_a_rest_holds_back_wakes() -> None:
    schedule, one = Schedule(None, 8), lane()
    ready_commits(schedule, one, "t")
    (task,) = taken(schedule, 0.0)
    schedule.later(one, "t", 0.5)
    schedule.finish(task, Again(rest=0.3), 1.0)
    schedule.later(one, "t", 1.1)
    assert taken(schedule, 1.2) == [] and schedule.next_event(1.2) == 1.3
    assert taken(schedule, 1.3) == [task]


def test_a_look_that_finds_something_keeps_its_turn_and_a_further_commit_goes_to_the_end() -> None:
    schedule, one = Schedule(None, 1), lane()
    for name in ("a", "b"):
        schedule.later(one, name, 0.0)
    order = []
    for _ in range(6):
        task = schedule.take(0.0)
        assert task is not None
        order.append((task.name, task.plan))
        schedule.finish(task, Again(0.0, plan=1 if task.plan is None else task.plan + 1), 0.0)
    assert order == [("a", None), ("a", 1), ("b", None), ("b", 1), ("a", 2), ("b", 2)]


def test_no_more_commits_at_one_time_than_the_process_and_the_database_allow() -> None:
    schedule, one, two = Schedule(3, 99), lane(2), lane(2)
    ready_commits(schedule, one, *"abcd")
    ready_commits(schedule, two, *"efgh")
    running = taken(schedule, 0.0)
    assert len(running) == 3
    assert max(Counter(task.lane for task in running).values()) == 2
    schedule.later(one, "look", 0.0)
    assert names(taken(schedule, 0.0)) == ["look"], "a look waits for no commit"


def test_stuck_looks_are_bounded() -> None:
    schedule, one, two = Schedule(None, 10_000), lane(), lane(looks=1)
    for number in range(LOOKS + 9):
        schedule.later(one, number, 0.0)
    assert len(taken(schedule, 0.0)) == LOOKS
    schedule, two = Schedule(None, 10_000), lane(looks=1)
    for number in range(3):
        schedule.later(two, number, 0.0)
    assert len(taken(schedule, 0.0)) == 1


def test_the_database_with_the_fewest_commits_at_work_is_next() -> None:
    schedule, large, small = Schedule(2, 99), lane(), lane()
    ready_commits(schedule, large, *"abcde")
    first = taken(schedule, 0.0)
    assert names(first) == ["a", "b"]
    ready_commits(schedule, small, "s")
    schedule.finish(first[0], Again(), 1.0)
    assert names(taken(schedule, 1.0)) == ["s"], "the others were there first"


def test_a_database_with_many_looks_does_not_delay_another() -> None:
    schedule, many, one = Schedule(None, 1), lane(), lane()
    for number in range(1000):
        schedule.later(many, number, 0.0)
    first = schedule.take(0.0)
    schedule.later(one, "t", 0.0)
    assert first is not None
    schedule.finish(first, Again(), 0.0)
    assert names(taken(schedule, 0.0)) == ["t"]


def test_as_many_steps_begin_to_compute_as_there_are_cores() -> None:
    schedule, disk, store = Schedule(None, 2), lane(), lane(computes=False)
    for name in "abc":
        schedule.later(disk, name, 0.0)
    running = taken(schedule, 0.0)
    assert len(running) == 2
    schedule.later(store, "s", 0.0)
    assert names(taken(schedule, 0.0)) == ["s"], "it waits for answers, not for a core"
    assert schedule.next_event(0.0) == pytest.approx(YOUNG)
    assert names(taken(schedule, YOUNG)) == ["c"], "what takes long does not count"
    schedule.later(disk, "d", 2.0)
    for task in running:
        schedule.finish(task, Again(), 2.0)
    assert names(taken(schedule, 2.0)) == ["d"]


def test_a_pause_waits_for_nobody_and_forgets_no_wake() -> None:
    schedule, one = Schedule(None, 9), lane()
    schedule.later(one, "t", 0.0)
    held = schedule.hold(one, "t")
    assert held is not None and schedule.hold(one, "t") is None
    assert taken(schedule, 1.0) == []
    schedule.release(held)
    (task,) = taken(schedule, 1.0)
    assert schedule.hold(one, "t") is None
    schedule.finish(task, Again(5.0), 1.0)
    held = schedule.hold(one, "t")
    assert held is not None
    assert taken(schedule, 9.0) == []
    schedule.release(held)
    assert names(taken(schedule, 9.0)) == ["t"]
    new = schedule.hold(one, "new")
    assert new is not None
    schedule.release(new)
    assert taken(schedule, 9.0) == []
    schedule.finish(task, Again(0.0, plan=1), 9.0)
    assert schedule.hold(one, "t") is None, "it has something to commit"


def test_a_database_that_stops_begins_nothing() -> None:
    schedule, one, two = Schedule(None, 1), lane(), lane()
    for name in "ab":
        schedule.later(one, name, 0.0)
    (task,) = taken(schedule, 0.0)
    schedule.later(two, "t", 0.0)
    schedule.stop(one)
    assert one.active == 1
    schedule.finish(task, Again(0.0, plan=1), 1.0)
    schedule.later(one, "c", 1.0)
    assert names(taken(schedule, 1.0)) == ["t"]
    assert not one.active


def test_a_table_that_is_gone_is_not_touched_again() -> None:
    schedule, one = Schedule(None, 9), lane()
    for name in "ab":
        schedule.later(one, name, 0.0)
    schedule.forget(one, "a")
    (task,) = taken(schedule, 0.0)
    assert task.name == "b"
    schedule.forget(one, "b")
    schedule.finish(task, Again(0.0, plan=1), 1.0)
    assert taken(schedule, 1.0) == [] and not one.active
    schedule.later(one, "a", 2.0)
    assert names(taken(schedule, 2.0)) == ["a"]


@pytest.mark.parametrize("seed", range(rounds(16, 40)))
def test_any_order_of_events(seed: int) -> None:
    """No limit is passed, no due time is missed, each wake leads to a look after it, and nobody starves."""
    chance = random.Random(seed)
    most, cores = chance.choice([None, 1, 3]), chance.randint(1, 3)
    schedule = Schedule(most, cores)
    lanes = [lane(chance.randint(1, 3), computes=chance.random() < 0.7) for _ in range(3)]
    now, running = 0.0, dict[Task, float]()
    owed: dict[tuple[Lane, str], float] = {}  # looks that must begin at this time or later, and by when they may
    begun: dict[tuple[Lane, str], float] = {}
    rests: dict[tuple[Lane, str], float] = {}
    for _ in range(3000):
        now += chance.choice([0.0, 0.001, 0.02])
        for task, ends in list(running.items()):
            if ends <= now:
                del running[task]
                key = task.lane, str(task.name)
                plan = chance.random() < (0.5 if task.plan is None else 0.3)
                rest = 0.0 if plan else chance.choice([0.0, 0.05])
                seconds = chance.choice([math.inf, 0.0, 0.2])
                schedule.finish(task, Again(0.0, plan=1) if plan else Again(seconds, rest=rest), now)
                rests[key] = now + rest
                if not plan and seconds < math.inf:
                    owed[key] = min(owed.get(key, math.inf), now + seconds)
        if chance.random() < 0.5:
            key = chance.choice(lanes), chance.choice("abcdef")
            seconds = chance.choice([0.0, 0.0, 0.1])
            schedule.later(*key, now + seconds)
            owed[key] = min(owed.get(key, math.inf), now + seconds)
        for task in taken(schedule, now):
            key = task.lane, str(task.name)
            assert task not in running
            if task.plan is None:
                assert now >= rests.get(key, 0.0)
                assert now >= owed.pop(key), "nobody asked for it yet"
                begun[key] = now
            running[task] = now + chance.choice([0.0, 0.001, 0.01, 0.1])
        commits = Counter(task.lane for task in running if task.plan is not None)
        assert commits.total() <= (most or 99) and all(count <= each.most[True] for each, count in commits.items())
        late = [now - max(at, rests.get(key, 0.0)) for key, at in owed.items()]
        assert max(late, default=0.0) < 3.0, "a table starves"
    for _ in range(3000):  # everything comes to rest
        now += 0.01
        for task in [*running, *taken(schedule, now)]:
            running.pop(task, None)
            if task.plan is None:
                owed.pop((task.lane, str(task.name)), None)
            schedule.finish(task, Again(), now)
    assert not owed and not any(each.active or any(each.at_work.values()) for each in lanes)
    assert schedule.next_event(now) == math.inf


def test_a_table_that_is_woken_often_leaves_nothing_behind() -> None:
    schedule, one = Schedule(None, 1), lane()
    for number in range(10_000):
        schedule.later(one, "t", float(number))
        (task,) = taken(schedule, float(number))
        schedule.finish(task, Again(600.0), float(number))
    assert len(schedule._heap) < 200


def test_stuck_looks_of_one_database_hold_up_no_other() -> None:
    schedule, one, other = Schedule(None, 8), lane(computes=False), lane(computes=False)
    for number in range(LOOKS + 1):
        schedule.later(one, f"t{number}", 0.0)
    stuck = taken(schedule, 0.0)
    schedule.later(other, "t", 1.0)
    assert taken(schedule, STUCK - 0.1) == [], "so many looks run at one time"
    assert schedule.next_event(1.0) == STUCK
    assert [task.lane for task in taken(schedule, STUCK)] == [other]
    schedule.finish(stuck[0], Again(), STUCK + 1)
    assert [task.lane for task in taken(schedule, STUCK + 1)] == [one], "a database has no more than this"
