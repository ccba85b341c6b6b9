"""Many databases with work: looks leave the processor to the applies, and a publish still wakes at once."""

from __future__ import annotations

import threading
import time

from lakemirror.mirror.fair_turns import FairTurns
from lakemirror.service.host import BUSY_PAUSE, Busy, WakeableStop


def test_the_more_engines_have_work_the_longer_each_pauses() -> None:
    busy = Busy()
    stops = [WakeableStop(None, busy) for _ in range(100)]
    assert busy.pause(stops[0], 0.05) == 0.05
    pauses = [busy.pause(stop, 0.05) for stop in stops]
    assert pauses == sorted(pauses) and pauses[-1] == BUSY_PAUSE
    assert busy.pause(stops[0], 3.0) == 3.0  # never shorter than the engine asks for
    for stop in stops[1:]:
        busy.rests(stop)
    assert busy.pause(stops[0], 0.05) == 0.05


def test_a_turn_wakes_one_thread() -> None:
    """Thousands may wait: what is given back goes to one of them, and the others sleep on."""
    turns, done, at_work = FairTurns(4), threading.Semaphore(0), [0, 0]
    lock = threading.Lock()

    def work(database: str) -> None:
        with turns.turn(database, lambda: False) as taken:
            assert taken
            with lock:
                at_work[0] += 1
                at_work[1] = max(at_work)
            time.sleep(0.0005)
            with lock:
                at_work[0] -= 1
        done.release()

    threads = [threading.Thread(target=work, args=(f"db{n % 100}",)) for n in range(400)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert done.acquire(timeout=30)
    for thread in threads:
        thread.join(10)
    assert at_work == [0, 4]
    assert not turns._waiting and not turns._at_work
