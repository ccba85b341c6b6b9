"""The threads of the queue: what is woken gets a step, and a stuck one holds up nobody."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from lakemirror.mirror import queue as queues
from lakemirror.mirror.queue import STEP, ApplyQueue
from lakemirror.mirror.schedule import Again


@pytest.fixture
def queue() -> Iterator[ApplyQueue]:
    made = ApplyQueue(4)
    yield made
    made.close()


class Steps:
    """Counts the steps of each table; those of `stuck` wait until they are released."""

    def __init__(self, *stuck: str) -> None:
        self.stuck, self.release = stuck, threading.Event()
        self.count: Counter[str] = Counter()
        self.again: dict[str, Again] = {}
        self.threads: set[int] = set()

    def __call__(self, name: str, plan: Any) -> Again:
        self.count[name] += 1
        self.threads.add(threading.get_ident())
        if name in self.stuck:
            self.release.wait(60)
        if name == "defect":
            raise SystemExit("no step may end a thread")
        return self.again.pop(name, Again())


def test_each_wake_leads_to_a_step_after_it(queue: ApplyQueue) -> None:
    """Also while the table is at work: what woke it may have come after its step has looked."""
    changed, seen = Counter[str](), Counter[str]()

    def step(name: str, plan: Any) -> Again:
        seen[name] = changed[name]
        return Again()

    lane = queue.add(step)
    for number in range(5000):
        name = f"t{number % 3}"
        changed[name] += 1
        queue.wake(lane, name)
    assert queue.wait(lane, 30)
    assert seen == changed


def test_due_times_are_kept_without_a_wake(queue: ApplyQueue) -> None:
    steps = Steps()
    steps.again = {"soon": Again(0.2), "later": Again(30.0)}
    lane = queue.add(steps)
    queue.wake(lane, "soon", "later")
    assert queue.wait(lane, 30, within=1.0)
    assert steps.count == {"soon": 2, "later": 1}


def test_stuck_steps_hold_up_no_other(queue: ApplyQueue) -> None:
    steps = Steps("a", "b", "c")
    lane, other = queue.add(steps), queue.add(steps)
    queue.wake(lane, "a", "b", "c", *(f"t{number}" for number in range(10)))
    queue.wake(other, "o")
    try:
        assert queue.wait(other, 30)
        assert not queue.wait(lane, 0.5)
        assert {name for name, count in steps.count.items() if count} == {"a", "b", "c", "o"} | {
            f"t{number}" for number in range(10)
        }
    finally:
        steps.release.set()
    assert queue.wait(lane, 30)


def test_quick_steps_are_done_by_few_threads(queue: ApplyQueue) -> None:
    steps = Steps()
    lane = queue.add(steps)
    queue.wake(lane, *(f"t{number}" for number in range(500)))
    assert queue.wait(lane, 60)
    assert len(steps.count) == 500
    assert len(steps.threads) <= 40


def test_a_step_that_raises_ends_nothing(queue: ApplyQueue, caplog: pytest.LogCaptureFixture) -> None:
    steps = Steps()
    lane = queue.add(steps)
    queue.wake(lane, "defect")
    assert queue.wait(lane, 30)
    queue.wake(lane, "good")
    assert queue.wait(lane, 30)
    assert steps.count["good"] == 1
    assert "no step may end a thread" in caplog.text


def test_a_stop_lets_the_step_end_and_begins_no_other(queue: ApplyQueue) -> None:
    steps = Steps("a")
    lane = queue.add(steps)
    queue.wake(lane, "a")
    while not steps.count["a"]:
        time.sleep(0.01)
    queue.wake(lane, "a")
    queue.stop(lane)
    queue.wake(lane, "b")
    assert not queue.wait(lane, 0.1)
    steps.release.set()
    assert queue.wait(lane, 30)
    assert steps.count == {"a": 1}


def test_the_end_of_a_pause_ends_a_wait(queue: ApplyQueue) -> None:
    lane = queue.add(Steps())
    begun, ended = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert queue.wait(lane, None)
        ended.set()

    with queue.paused(lane, "t") as is_free:
        assert is_free
        with queue.paused(lane, "t") as again:
            assert not again
        threading.Thread(target=wait, daemon=True).start()
        assert begun.wait(30) and not ended.wait(0.1)
    assert ended.wait(30)


def test_a_closed_queue_leaves_no_thread() -> None:
    before = sum(thread.name == STEP for thread in threading.enumerate())
    queue = ApplyQueue()
    lane = queue.add(Steps())
    queue.wake(lane, *range(20))
    assert queue.wait(lane, 30)
    queue.close()
    deadline = time.monotonic() + 30
    while sum(thread.name == STEP for thread in threading.enumerate()) > before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_step_that_gets_no_thread_is_due_again(queue: ApplyQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who wakes a table gets no error: it may be the only thread that hears of changes."""
    start, steps = threading.Thread.start, Steps()
    monkeypatch.setattr(queues, "_AFTER_A_DEFECT", 0.2)

    def refused(thread: threading.Thread) -> None:
        if thread.name == STEP:
            raise RuntimeError("can't start new thread")
        start(thread)

    lane = queue.add(steps)
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refused)
        queue.wake(lane, "a", "b")
        assert not steps.count
    assert queue.wait(lane, 30, within=5.0)
    assert steps.count == {"a": 1, "b": 1}
