"""S9: from the start of a process to the first committed table: one small file, a new table, a machine that is warm."""

from __future__ import annotations

import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from benchmarks import data as make
from benchmarks import digest, process
from benchmarks.peers.peer import Peer
from benchmarks.process import Meter
from benchmarks.scenarios.scenario import TABLE, Data, Scenario, Size, costs

_TIMES = 3
_PATIENCE = 300.0


class Cold(Scenario):
    """The median of a few starts; one before them does not count, since what is made once is made then."""

    name, title = "S9", "cold start to first commit"
    timed = (
        "From the start of a process to the first commit of a new table; the median of three starts. An uncounted "
        "start before them makes what is made once."
    )
    peers = ("lakemirror", "lakemirror-process", "plain-delta", "delta-rs")
    small = full = Size(0, 1, 1_000)

    def make(self, store: Path, size: Size) -> Data:
        folder = store / self.name / "changes"
        make.appends(folder, size.files, size.changes)
        changes = sorted(folder.iterdir())
        return Data(size, (), changes, expected=digest.expected((), changes))

    def run(self, peer: Peer, data: Data) -> dict[str, Any]:
        with Meter() as meter:
            seconds = [self._once(peer, data, number) for number in range(_TIMES + 1)][1:]
        last = type(peer)(peer.folder / str(_TIMES))
        last.start(0)
        return {
            "seconds": statistics.median(seconds),
            "extra": {"slowest, s": max(seconds)},
            **costs(last, meter, data.change_bytes, data),
            "cpu": None,  # of processes that are gone
            "written": None,
        }

    @staticmethod
    def _once(peer: Peer, data: Data, number: int) -> float:
        one = type(peer)(peer.folder / str(number))
        command, committed = one.cold(TABLE, data.changes[0])
        begun = time.perf_counter()
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            while not committed.exists():
                if child.poll() is not None and not committed.exists():
                    raise RuntimeError((child.communicate()[1] or "it ended without a commit").strip()[-300:])
                if time.perf_counter() - begun > _PATIENCE:
                    raise RuntimeError(f"no commit within {_PATIENCE:.0f} s")
                time.sleep(0.005)
            seconds = time.perf_counter() - begun
            child.communicate(timeout=_PATIENCE)
        finally:
            if child.poll() is None:
                process.end(child.pid)
                child.wait()
        return seconds
