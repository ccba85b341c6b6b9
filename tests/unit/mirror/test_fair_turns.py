"""Turns shared by databases: bounded, fair, and given up when their database stops."""

from __future__ import annotations

import threading
import time

from lakemirror.mirror.fair_turns import FairTurns


def run(turns: FairTurns, database: str, seen: list[str], hold: threading.Event) -> threading.Thread:
    def work() -> None:
        with turns.turn(database, lambda: False) as taken:
            assert taken
            seen.append(database)
            assert hold.wait(20)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def wait_for(seen: list[str], count: int) -> None:
    deadline = time.monotonic() + 10
    while len(seen) < count and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(0.05)
    assert len(seen) == count


def test_the_database_with_the_fewest_turns_is_next() -> None:
    turns = FairTurns(2)
    seen: list[str] = []
    first, rest = threading.Event(), threading.Event()
    threads = [run(turns, "large", seen, first)]
    wait_for(seen, 1)
    threads += [run(turns, "large", seen, rest)]
    wait_for(seen, 2)
    for _ in range(3):  # these were there first
        threads.append(run(turns, "large", seen, rest))
        time.sleep(0.01)
    threads.append(run(turns, "small", seen, rest))
    time.sleep(0.1)
    assert seen == ["large", "large"]
    first.set()
    wait_for(seen, 3)
    assert seen == ["large", "large", "small"]
    rest.set()
    for thread in threads:
        thread.join(10)
    assert sorted(seen) == ["large"] * 5 + ["small"]
    assert not turns._at_work
    assert not turns._waiting


def test_a_turn_that_is_given_up() -> None:
    turns = FairTurns(1)
    cancelled = threading.Event()
    with turns.turn("one", lambda: False) as taken:
        assert taken
        threading.Timer(0.1, cancelled.set).start()
        with turns.turn("two", cancelled.is_set) as second:
            assert not second
    with turns.turn("two", lambda: False) as third:
        assert third
