"""S3w, S3u: one change file on a loaded table, by an engine that has applied some already."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
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
    timed = (
        "The table is loaded. Files come one by one, each when the one before is applied; the median of their times, "
        "without the first three. *first*: the first file after the load."
    )
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
        with Meter() as all_of_them:
            seconds, extra = self._apply(peer, data.changes)
        return {
            "seconds": statistics.median(seconds),
            "extra": {"slowest, s": max(seconds), **extra},
            **costs(peer, all_of_them, data.change_bytes, data),
        }

    def _apply(self, peer: Peer, files: Sequence[Path]) -> tuple[list[float], dict[str, float]]:
        """Seconds of each file that counts, and what else there is to say."""
        seconds = [_seconds(peer, file) for file in files]
        return seconds[_WARMING:] or seconds, {"first, s": seconds[0]}


class WarmUuids(Warm):
    """The same where keys are UUIDs, which every file of the table may hold.

    The first file comes before there is an index of the keys: its time is a figure of its own. Then the engine is left
    alone until it has no idle work any more, and the other files are timed. The last file is applied by a process that
    has just started.
    """

    name, title = "S3u", "one change file, UUID keys, warm engine, after idle time"
    timed = (
        "The same as S3w, after idle time in which an engine may build what it looks keys up with. *before idle time*: "
        "the first file, before that. *first of a process*: the last file, by a process that has just started."
    )
    small, full = Size(1_000_000, 10, 1_000), Size(10_000_000, 14, 1_000)
    as_uuids: ClassVar[bool] = True

    def _apply(self, peer: Peer, files: Sequence[Path]) -> tuple[list[float], dict[str, float]]:
        first, *others, last = files
        extra = {"before idle time, s": _seconds(peer, first)}
        with Meter() as idle:
            peer.rest()
        extra["idle work, s"] = idle.seconds
        seconds = [_seconds(peer, file) for file in others]
        restarted = peer.upsert_restarted(TABLE, last)
        if restarted is not None:
            extra["first of a process, s"] = restarted
        return seconds[_WARMING:] or seconds, extra


def _seconds(peer: Peer, file: Path) -> float:
    peer.offer({TABLE: [file]})
    with Meter() as one:
        peer.upsert({TABLE: [file]})
    return one.seconds
