"""As many threads begin to compute as there are cores; who takes long does not count."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from lakemirror.mirror.core_turns import CORES, CoreTurns


class At:
    """A thread that has taken a core, until it is let go."""

    def __init__(self, cores):
        self.inside, self._go_on = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, args=(cores,), daemon=True)
        self._thread.start()

    def _run(self, cores):
        with cores.taken():
            self.inside.set()
            self._go_on.wait(60)

    def let_go(self):
        self._go_on.set()
        self._thread.join(60)


def test_another_waits_until_a_core_is_given_back():
    cores = CoreTurns(2, counts_for=3600)
    first, second = At(cores), At(cores)
    assert first.inside.wait(60)
    assert second.inside.wait(60)
    third = At(cores)
    assert not third.inside.wait(0.05)
    first.let_go()
    assert third.inside.wait(60)
    second.let_go()
    third.let_go()


def test_who_takes_long_does_not_count():
    cores = CoreTurns(1, counts_for=0.01)
    at = [At(cores) for _ in range(5)]
    assert all(each.inside.wait(60) for each in at)
    for each in at:
        each.let_go()


def test_an_error_gives_the_core_back():
    cores = CoreTurns(1, counts_for=3600)
    with pytest.raises(ValueError, match="bad"), cores.taken():
        raise ValueError("bad")
    with cores.taken():
        pass


def test_never_more_than_the_cores():
    cores, lock, now, most = CoreTurns(3, counts_for=3600), threading.Lock(), 0, 0

    def work(_):
        nonlocal now, most
        with cores.taken():
            with lock:
                now += 1
                most = max(most, now)
            threading.Event().wait(0.001)
            with lock:
                now -= 1

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(work, range(200)))
    assert most == 3
    assert now == 0


def test_the_process_has_a_core():
    with CORES.taken():
        pass
