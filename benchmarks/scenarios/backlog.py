"""S2 to S5 and S7: a table is loaded, change files lie there, and all of them are applied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import data as make
from benchmarks import digest
from benchmarks.peers.peer import Peer
from benchmarks.process import Meter
from benchmarks.scenarios.scenario import TABLE, Data, Scenario, Size, costs

EVERYONE = (
    "lakemirror",
    "lakemirror-process",
    "lakemirror-spark",
    "plain-delta",
    "expert-delta",
    "delta-rs",
    "iceberg",
    "hudi",
    "ducklake",
    "duckdb",
    "auto-cdc",
)
BEST = ("lakemirror", "lakemirror-process", "expert-delta", "delta-rs", "iceberg", "ducklake")
WRITERS = ("lakemirror", "lakemirror-process", "plain-delta", "expert-delta", "delta-rs", "iceberg", "ducklake")


@dataclass(frozen=True)
class Backlog(Scenario):
    """`changes` makes the change files; `appends` says that they hold new rows alone, which every peer is told."""

    name: str
    title: str
    peers: tuple[str, ...]
    small: Size
    full: Size
    changes: Callable[[Path, Size], None]
    appends: bool = False
    timed: str = "The table is loaded and the engine is started. The time is until all files are applied."
    extra: tuple[str, ...] = ()

    def make(self, store: Path, size: Size) -> Data:
        load = make.load(store / f"load-{size.rows}", size.rows) if size.rows else []
        folder = store / self.name / "changes"
        self.changes(folder, size)
        changes = sorted(folder.iterdir())
        extra = [e for e in self.extra if not self.appends or int(e.removeprefix("extra")) <= (size.files - 1) // 10]
        return Data(size, load, changes, extra, digest.expected(load, changes, extra))

    def run(self, peer: Peer, data: Data) -> dict[str, Any]:
        with Meter() as start:
            peer.start(data.load_bytes or data.change_bytes)
        with Meter() as load:
            if data.load:
                peer.offer({TABLE: data.load})
                peer.load({TABLE: data.load})
        work = {TABLE: data.changes}
        peer.offer(work)
        with Meter() as meter:
            (peer.append if self.appends else peer.upsert)(work)
        return {
            "seconds": meter.seconds,
            "start": start.seconds,
            "load": load.seconds,
            **costs(peer, meter, data.change_bytes, data),
        }


_NEW = "The engine is started. The files hold new rows alone. The time is until a new table has them all."


def _upserts(keys: make.Keys, new: float = 0.3) -> Callable[[Path, Size], None]:
    return lambda folder, s: make.upserts(folder, s.rows, s.files, s.changes, keys, new=new)


BACKLOGS = (
    Backlog(
        "S2", "small append-only files", WRITERS,
        Size(0, 50, 1_000), Size(0, 200, 10_000),
        lambda folder, s: make.appends(folder, s.files, s.changes), appends=True, timed=_NEW,
    ),
    Backlog(
        "S3", "backlog of changes, any key", EVERYONE,
        Size(500_000, 5, 5_000), Size(5_000_000, 20, 10_000), _upserts(make.uniform),
    ),
    Backlog(
        "S3L", "large backlog of changes, any key",
        ("lakemirror", "lakemirror-process", "lakemirror-spark", "expert-delta"),
        Size(500_000, 20, 15_000), Size(5_000_000, 20, 150_000), _upserts(make.uniform),
    ),
    Backlog(
        "S3z", "backlog of changes, few keys often", BEST,
        Size(500_000, 5, 5_000), Size(5_000_000, 20, 10_000), _upserts(make.zipf),
    ),
    Backlog(
        "S3t", "backlog of changes, recent keys", BEST,
        Size(500_000, 5, 5_000), Size(5_000_000, 20, 10_000), _upserts(make.recent),
    ),
    Backlog(
        "S4", "a thousand hot keys", BEST,
        Size(500_000, 20, 10_000), Size(5_000_000, 50, 20_000), _upserts(make.hot, new=0.0),
    ),
    Backlog(
        "S5", "upserts, deletes, inserts, moved keys", BEST,
        Size(500_000, 10, 5_000), Size(5_000_000, 20, 25_000),
        lambda folder, s: make.mixed(folder, s.rows, s.files, s.changes),
    ),
    Backlog(
        "S7", "a new column every tenth file", ("lakemirror", "lakemirror-process", "plain-delta", "delta-rs"),
        Size(0, 30, 1_000), Size(0, 100, 10_000),
        lambda folder, s: make.appends(folder, s.files, s.changes, wider_every=10), appends=True,
        timed=f"{_NEW} Every tenth file has one column more.",
        extra=tuple(f"extra{i + 1}" for i in range(20)),
    ),
)  # fmt: skip
