"""Looks at many tables: a stuck one does not delay the rest."""

from __future__ import annotations

import threading

from lakemirror.mirror.lookers import Lookers


def test_all_jobs_are_done_by_one_thread_where_none_is_slow() -> None:
    threads, done = set(), []

    def job(number: int) -> None:
        threads.add(threading.get_ident())
        done.append(number)

    Lookers(slow=5).each([lambda n=n: job(n) for n in range(100)])  # type: ignore[misc]
    assert done == list(range(100))
    assert len(threads) == 1
    Lookers().each([])


def test_looks_that_wait_are_done_side_by_side() -> None:
    meet = threading.Barrier(3)
    Lookers(slow=20).each([lambda: meet.wait(60) and None] * 3)  # type: ignore[list-item]
    assert not meet.broken and meet.n_waiting == 0


def test_stuck_jobs_do_not_hold_up_the_others() -> None:
    release, done = threading.Event(), threading.Semaphore(0)
    stuck = [lambda: release.wait(60) and None] * 3  # type: ignore[list-item]
    jobs = [*stuck, *[done.release] * 10]
    Lookers(slow=0.02).each(jobs)  # type: ignore[arg-type]
    for _ in range(10):
        assert done.acquire(timeout=0)
    release.set()


def test_stuck_threads_are_bounded_and_free_again() -> None:
    release, done = threading.Event(), []
    lookers = Lookers(slow=0.02, most=2)
    lookers.each([lambda: release.wait(60) and None] * 4)  # type: ignore[list-item]
    lookers.each([lambda: done.append(1)])
    assert done == [1], "each pass has a thread of its own"
    release.set()
