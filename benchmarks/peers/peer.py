"""What every peer can do. `Work` is change files in order, by table."""

from __future__ import annotations

import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks import digest

Work = Mapping[str, Sequence[Path]]
KEY = "id"
MARKER = "__rowMarker__"
FIRST_COMMIT = Path("_delta_log", f"{0:020}.json")


class Peer(ABC):
    """One way to keep tables up to date with change files. Everything it writes lies below `folder`."""

    folds = False  # takes all the files that wait at once, where others take one after the other

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(self, pending: int) -> None:  # noqa: B027
        """Starts what it runs on, told how many bytes it will be given first."""

    def offer(self, work: Work) -> None:  # noqa: B027
        """Puts files where it looks for them; not measured."""

    def load(self, work: Work) -> None:
        """First files of new tables: rows without a marker."""
        for table, files in work.items():
            self.load_one(table, files)

    def append(self, work: Work) -> None:
        """Files of new rows alone; their marker column does not belong to the table."""
        for table, files in work.items():
            self.append_one(table, files)

    def upsert(self, work: Work) -> None:
        """Files of changes; the last change of a key counts."""
        for table, files in work.items():
            self.upsert_one(table, files)

    def rest(self) -> None:  # noqa: B027
        """Leaves the engine alone until it has no idle work any more."""

    def upsert_restarted(self, table: str, file: Path) -> float | None:
        """Offers a file of changes and applies it in a process that has just started. Seconds of the apply; None where
        this process applied it, since the peer reads everything again each time anyway, or cannot be started twice."""
        self.offer({table: [file]})
        self.upsert({table: [file]})
        return None

    def load_one(self, table: str, files: Sequence[Path]) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not load")

    def append_one(self, table: str, files: Sequence[Path]) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not append")

    def upsert_one(self, table: str, files: Sequence[Path]) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not apply changes")

    @abstractmethod
    def digest(self, table: str, extra: Sequence[str] = ()) -> list[int]:
        """What a table holds; reads all of its columns."""

    def commits(self, table: str) -> int | None:
        """How many commits a table has; None where there is no such thing."""
        return None

    def steps(self) -> list[tuple[str, float]]:
        """The parts of the last pass and their seconds, where the peer knows them: they explain an outlier."""
        return []

    def on_disk(self) -> list[Path]:
        """Every file that belongs to its tables."""
        return [path for path in self.folder.rglob("*") if path.is_file()]

    def inbox(self, table: str) -> Path:
        """The folder that it watches; the files in it are numbered."""
        place = self.folder.parent / "inbox" / table
        place.mkdir(parents=True, exist_ok=True)
        return place

    def follow(self, table: str, stop: threading.Event, applied: Callable[[int], None]) -> None:
        """Applies numbered files as they arrive in the inbox until `stop`; tells the last number of each commit."""
        number, place = 1, self.inbox(table)
        while not stop.is_set():
            files = []
            while (file := place / f"{number + len(files):020}.parquet").exists() and (self.folds or not files):
                files.append(file)
            if not files:
                time.sleep(0.05)
                continue
            self.upsert({table: files})
            number += len(files)
            applied(number - 1)

    def next_number(self, table: str) -> int:
        """The number of the next file for the inbox."""
        return 1

    def idle_pass(self) -> float | None:
        """Seconds of a pass that finds nothing to do; None where there are no passes."""
        return None

    def command(self) -> list[str]:
        """The command that applies what was offered, for a process of its own."""
        raise NotImplementedError(f"{type(self).__name__} has no command")

    def cold(self, table: str, file: Path) -> tuple[list[str], Path]:
        """A command that appends one file to a new table, and the file whose appearance tells that it is committed."""
        command = [sys.executable, "-m", "benchmarks.append_once", type(self).__module__, type(self).__name__]
        return [*command, str(self.folder), table, str(file)], self.folder / table / FIRST_COMMIT

    def delta_table(self, table: str) -> Path | None:
        """Where a table lies that Delta Spark can read; None for another format."""
        return None


def read_seconds(peer: Peer, table: str, extra: Sequence[str] = (), times: int = 3) -> float:
    """The fastest of a few full reads of a table, with the columns that a scenario adds (`extra`)."""

    def once() -> float:
        begun = time.perf_counter()
        peer.digest(table, extra)
        return time.perf_counter() - begun

    return min(once() for _ in range(times))


__all__ = ["KEY", "MARKER", "Peer", "Work", "digest", "read_seconds"]
