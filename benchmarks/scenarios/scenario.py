"""What every scenario is: sizes, data made once, and what one peer does with it while it is measured."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.peers.peer import Peer, read_seconds
from benchmarks.process import Meter

TABLE = "orders"


@dataclass(frozen=True)
class Size:
    """How much there is: rows of the table, change files, changes in each; tables, and seconds of a steady run."""

    rows: int = 0
    files: int = 0
    changes: int = 0
    tables: int = 1
    pause: float = 0.0

    def __str__(self) -> str:
        parts = [f"{self.rows:,} rows"] if self.rows else []
        parts += [f"{self.tables:,} tables"] if self.tables > 1 else []
        parts += [f"{self.files:,} files of {self.changes:,} changes"] if self.files else []
        parts += [f"one every {self.pause:g} s"] if self.pause else []
        return ", ".join(parts)


@dataclass(frozen=True)
class Data:
    """Files of a scenario, in order, and what a table must hold after all of them."""

    size: Size
    load: Sequence[Path] = ()
    changes: Sequence[Path] = ()
    extra: Sequence[str] = ()
    expected: Sequence[int] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """As JSON, for the process of a peer."""
        path.write_text(json.dumps(asdict(self), default=str))

    @staticmethod
    def read(path: Path) -> Data:
        """What `write` wrote."""
        found = json.loads(path.read_text())
        return Data(
            Size(**found["size"]),
            [Path(f) for f in found["load"]],
            [Path(f) for f in found["changes"]],
            found["extra"],
            found["expected"],
        )

    @property
    def load_bytes(self) -> int:
        """Bytes of the first load."""
        return sum(f.stat().st_size for f in self.load)

    @property
    def change_bytes(self) -> int:
        """Bytes of the change files."""
        return sum(f.stat().st_size for f in self.changes)


class Scenario(ABC):
    """One question with a number of seconds for an answer. `timed`: what the seconds are, in whole sentences."""

    name: str
    title: str
    timed: str
    headline: ClassVar[str] = "time"
    compares_reading: ClassVar[bool] = False  # with a copy that was just written
    peers: tuple[str, ...]
    small: Size
    full: Size

    @abstractmethod
    def make(self, store: Path, size: Size) -> Data:
        """The data, made below `store`, where scenarios share what they load; runs once, before all peers."""

    @abstractmethod
    def run(self, peer: Peer, data: Data) -> dict[str, Any]:
        """What one peer needs, in its own process: `seconds` is the headline, the rest are columns."""


def costs(peer: Peer, meter: Meter, given: int, data: Data, tables: Sequence[str] = (TABLE,)) -> dict[str, Any]:
    """The columns beside the time, and the digest; `given` is how many bytes the peer was handed."""
    disk = peer.on_disk()
    commits = [peer.commits(table) for table in tables]
    digests = [peer.digest(table, data.extra) for table in tables]
    return {
        "cpu": round(meter.cpu, 2),
        "written": meter.written,
        "given": given,
        "files": len(disk),
        "disk": sum(file.stat().st_size for file in disk if file.exists()),
        "steps": peer.steps(),
        "commits": None if None in commits else sum(commits),  # type: ignore[arg-type]
        **_read(peer, tables[0], data.extra),
        "digest": digests[0],
        "right": all(digest == list(data.expected) for digest in digests),
    }


def _read(peer: Peer, table: str, extra: Sequence[str]) -> dict[str, Any]:
    """What the runner has Delta Spark read, or else what the peer's own reader takes."""
    place = peer.delta_table(table)
    if place is not None:
        return {"delta": {"table": str(place), "extra": list(extra)}}
    return {"read": round(read_seconds(peer, table, extra), 3)}
