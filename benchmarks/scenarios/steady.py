"""S8: files arrive at a steady pace on a running engine: from rename to commit, and does it get slower with time?

Then the engine is left alone for a while before the table is read: who tidies up at rest may do so.
"""

from __future__ import annotations

import shutil
import statistics
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

from benchmarks import data as make
from benchmarks import digest
from benchmarks.figures import percentile
from benchmarks.peers.peer import Peer
from benchmarks.process import Meter
from benchmarks.scenarios.scenario import TABLE, Data, Scenario, Size, costs

_FALLEN_BEHIND = 120.0  # seconds after the last file in which the rest must be applied
_REST = 0.03  # of the time in which files arrived, after the last one


class Steady(Scenario):
    """The first fifth of the files warms the engine and does not count."""

    name, title = "S8", "steady arrival"
    headline: ClassVar[str] = "95 % of files within"
    compares_reading: ClassVar[bool] = True
    peers = ("lakemirror", "lakemirror-process", "plain-delta", "expert-delta", "delta-rs")
    timed = (
        "The table is loaded and the engine runs. The time of a file is from its rename into place to the commit that "
        "holds it; the first fifth of the files does not count."
    )
    small, full = Size(200_000, 50, 500, pause=0.5), Size(1_000_000, 300, 1_000, pause=0.5)

    def make(self, store: Path, size: Size) -> Data:
        load = make.load(store / f"load-{size.rows}", size.rows)
        folder = store / self.name / "changes"
        make.upserts(folder, size.rows, size.files, size.changes, make.recent)
        changes = sorted(folder.iterdir())
        return Data(size, load, changes, expected=digest.expected(load, changes))

    def run(self, peer: Peer, data: Data) -> dict[str, Any]:
        peer.start(data.load_bytes)
        peer.offer({TABLE: data.load})
        peer.load({TABLE: data.load})
        with Meter() as meter:
            lags, _ = follow(peer, data, rest=_REST)
        counted = lags[len(lags) // 5 :]
        fifth = max(1, len(counted) // 5)
        result = costs(peer, meter, data.change_bytes, data)
        extra = {
            "p50, s": percentile(counted, 0.5),
            "p99, s": percentile(counted, 0.99),
            "last fifth to first": statistics.median(counted[-fifth:]) / statistics.median(counted[:fifth]),
        }
        return {"seconds": percentile(counted, 0.95), "extra": extra, **result}


def follow(peer: Peer, data: Data, *, rest: float) -> tuple[list[float], float]:
    """Seconds from rename to commit, file by file, and from the last rename until all are applied.

    `rest`: how long the engine is left alone after that, as a share of the time so far. RuntimeError where it fails or
    falls behind.
    """
    inbox, first = peer.inbox(TABLE), peer.next_number(TABLE)
    renamed: dict[int, float] = {}
    lags: dict[int, float] = {}
    stop = threading.Event()
    failures: list[BaseException] = []

    def applied(last: int) -> None:
        now = time.monotonic()
        for number in range(first, last + 1):
            lags.setdefault(number, now - renamed[number])

    def follow() -> None:
        try:
            peer.follow(TABLE, stop, applied)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    begun = time.monotonic()
    for count, file in enumerate(data.changes):
        number = first + count
        temporary = inbox / f"{number:020}.parquet.tmp"
        shutil.copyfile(file, temporary)
        time.sleep(max(0.0, begun + count * data.size.pause - time.monotonic()))
        renamed[number] = time.monotonic()
        temporary.rename(temporary.with_suffix(""))
    deadline = time.monotonic() + _FALLEN_BEHIND
    while len(lags) < len(data.changes) and not failures and time.monotonic() < deadline:
        time.sleep(0.05)
    behind = time.monotonic() - renamed[max(renamed)]
    time.sleep(rest * (time.monotonic() - begun))
    stop.set()
    thread.join(_FALLEN_BEHIND)
    if failures:
        raise RuntimeError(f"stopped: {failures[0]}") from failures[0]
    if len(lags) < len(data.changes):
        raise RuntimeError(
            f"fell behind: {len(lags)} of {len(data.changes)} files {_FALLEN_BEHIND:.0f} s after the last"
        )
    return [lags[number] for number in sorted(lags)], behind
