"""S6: many tables with a few small files each; and what a pass costs that finds nothing to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import data as make
from benchmarks import digest
from benchmarks.peers.peer import Peer
from benchmarks.process import Meter
from benchmarks.scenarios.scenario import Data, Scenario, Size, costs


class Swarm(Scenario):
    """All tables get the same files; every tenth table is compared."""

    name, title = "S6", "many tables, small files"
    timed = (
        "The engine is started, and all tables are new. The time is until all files of all tables are applied. "
        "*idle pass*: one more pass, which finds nothing to do."
    )
    peers = ("lakemirror", "lakemirror-process", "plain-delta", "delta-rs", "delta-rs-power", "ducklake")
    small, full = Size(0, 5, 100, tables=20), Size(0, 10, 100, tables=1000)

    def make(self, store: Path, size: Size) -> Data:
        folder = store / self.name / "changes"
        make.appends(folder, size.files, size.changes)
        changes = sorted(folder.iterdir())
        return Data(size, (), changes, expected=digest.expected((), changes))

    def run(self, peer: Peer, data: Data) -> dict[str, Any]:
        tables = [f"table_{number:05}" for number in range(data.size.tables)]
        work = dict.fromkeys(tables, data.changes)
        given = data.change_bytes * len(tables)
        peer.start(given)
        peer.offer(work)
        with Meter() as meter:
            peer.append(work)
        result = {"seconds": meter.seconds, **costs(peer, meter, given, data, tables[:: max(1, len(tables) // 10)])}
        idle = peer.idle_pass()
        # a catalog for all tables counts its commits otherwise than a log per table
        return {**result, "commits": None, "extra": {"idle pass, s": idle} if idle is not None else {}}
