"""S3w, S3u: one change file on a loaded table, by an engine that has applied some already."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any, ClassVar

from benchmarks import data as make
from benchmarks import digest
from benchmarks.peers.peer import Peer
from benchmarks.process import Meter
from benchmarks.scenarios.scenario import TABLE, Data, Scenario, Size, costs

_WARMING = 3  # files that are applied before it counts


class Warm(Scenario):
    """The median of single files, one after the other."""

    name, title = "S3w", "one change file, warm engine"
    peers = (
        "lakemirror",
        "lakemirror-process",
        "plain-delta",
        "expert-delta",
        "delta-rs",
        "iceberg",
        "hudi",
        "ducklake",
    )
    small, full = Size(500_000, 5, 5_000), Size(5_000_000, 12, 10_000)
    as_uuids: ClassVar[bool] = False

    def make(self, store: Path, size: Size) -> Data:
        name = f"load-uuids-{size.rows}" if self.as_uuids else f"load-{size.rows}"
        load = make.load(store / name, size.rows, as_uuids=self.as_uuids)
        folder = store / self.name / "changes"
        make.upserts(folder, size.rows, size.files, size.changes, make.uniform, as_uuids=self.as_uuids)
        changes = sorted(folder.iterdir())
        extra = [digest.UUIDS] if self.as_uuids else []
        return Data(size, load, changes, extra, digest.expected(load, changes, extra))

    def run(self, peer: Peer, data: Data) -> dict[str, Any]:
        peer.start(data.load_bytes)
        peer.offer({TABLE: data.load})
        peer.load({TABLE: data.load})
        seconds = []
        with Meter() as all_of_them:
            for file in data.changes:
                peer.offer({TABLE: [file]})
                with Meter() as one:
                    peer.upsert({TABLE: [file]})
                seconds.append(one.seconds)
        counted = seconds[_WARMING:] or seconds
        return {
            "seconds": statistics.median(counted),
            "extra": {"slowest, s": max(counted), "first, s": seconds[0]},
            **costs(peer, all_of_them, data.change_bytes, data),
        }


class WarmUuids(Warm):
    """The same where keys are UUIDs, which every file of the table may hold."""

    name, title = "S3u", "one change file, UUID keys, warm engine"
    small, full = Size(1_000_000, 8, 1_000), Size(10_000_000, 12, 1_000)
    as_uuids: ClassVar[bool] = True
