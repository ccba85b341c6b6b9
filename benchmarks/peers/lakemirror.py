"""lakemirror by its public door: files lie in a landing zone, and one pass, or a running mirror, applies them."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import digest
from benchmarks.peers.peer import FIRST_COMMIT, KEY, Peer, Work
from lakemirror import MirroredDatabase
from lakemirror.engines.engine import key_index
from lakemirror.errors import LakemirrorError
from lakemirror.settings.settings import Settings

CSV = {
    "fileFormat": "CSV",
    "fileExtension": "csv",
    "fileFormatTypeProperties": {"firstRowAsHeader": True, "rowSeparator": "\n", "columnSeparator": ","},
    "SchemaDefinition": {
        "Columns": [
            {"Name": "id", "DataType": "Int64"},
            {"Name": "amount", "DataType": "Int64"},
            {"Name": "price", "DataType": "Double"},
            {"Name": "name", "DataType": "String"},
            {"Name": "changed", "DataType": "DateTime"},
        ]
    },
    "lakemirror": {"complete": "rename"},
}


class Lakemirror(Peer):
    """All tables in one mirrored database, default settings."""

    folds = True

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._next: dict[str, int] = {}
        self._settings: dict[str, Any] = {}

    def start(self, pending: int) -> None:
        (self.folder / "Files/LandingZone").mkdir(parents=True, exist_ok=True)
        MirroredDatabase(self.folder).sync()  # an engine that runs and has found nothing yet

    def offer(self, work: Work) -> None:
        for table, files in work.items():
            csv = files[0].suffix == ".csv"
            place = self.inbox(table, csv=csv)
            for file in files:
                number = self._next[table] = self._next.get(table, 0) + 1
                copy = shutil.copyfile(file, place / f"_{number:020}{file.suffix}")
                copy.rename(place / copy.name[1:])

    def load(self, work: Work) -> None:
        result = MirroredDatabase(self.folder, **self._settings).sync()
        if result.failed:
            raise RuntimeError("; ".join(f"{error.code}: {error}" for error in result.failed.values()))

    append = upsert = load

    def rest(self) -> None:
        wait_for_key_index()

    def upsert_restarted(self, table: str, file: Path) -> float:
        words = [sys.executable, "-m", "benchmarks.restarted", type(self).__name__, str(self.folder), table, str(file)]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdin is not None and child.stdout is not None
            child.stdout.readline()  # it has started, and found nothing to do
            self.offer({table: [file]})
            seconds, _ = child.communicate("go\n")
        if child.returncode:
            raise RuntimeError("the process that was started again failed")
        return float(seconds)

    def digest(self, table: str, extra: Sequence[str] = ()) -> list[int]:
        query = digest.sql(f"delta_scan('{self.delta_table(table)}')", extra)
        return digest.numbers(digest.duckdb_with("delta").execute(query).fetchone())

    def commits(self, table: str) -> int:
        return len(list((self.folder / "Tables" / table / "_delta_log").glob("*[0-9].json")))

    def on_disk(self) -> list[Path]:
        return [path for path in (self.folder / "Tables").rglob("*") if path.is_file()]

    def inbox(self, table: str, *, csv: bool = False) -> Path:
        place = self.folder / "Files/LandingZone" / table
        if not place.exists():
            place.mkdir(parents=True)
            (place / "_metadata.json").write_text(json.dumps({"keyColumns": [KEY], **(CSV if csv else {})}))
        return place

    def follow(self, table: str, stop: threading.Event, applied: Callable[[int], None]) -> None:
        told = _Told(applied, stop)
        MirroredDatabase(self.folder, **self._settings).run(stop, told)
        if told.error is not None:
            raise told.error

    def next_number(self, table: str) -> int:
        return self._next.get(table, 0) + 1

    def idle_pass(self) -> float:
        begun = time.perf_counter()
        if MirroredDatabase(self.folder, **self._settings).sync().started_spark:
            raise RuntimeError("an idle pass started Spark")
        return time.perf_counter() - begun

    def command(self) -> list[str]:
        return [sys.executable, "-c", "from lakemirror.cli import main; main()", "sync", str(self.folder)]

    def cold(self, table: str, file: Path) -> tuple[list[str], Path]:
        self.offer({table: [file]})
        return self.command(), self.folder / "Tables" / table / FIRST_COMMIT

    def delta_table(self, table: str) -> Path:
        return self.folder / "Tables" / table


class Trusting(Lakemirror):
    """The same, where the publisher's files are known to be sound."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._settings = {"trust_footers": True}


class NotWaiting(Lakemirror):
    """The same without waiting for the disk: what a killed process leaves is safe, what a power cut leaves is not."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        folder.mkdir(parents=True, exist_ok=True)
        # in the database, so that processes which the scenario starts have it, too
        (folder / "mirroring.json").write_text(json.dumps({"lakemirror": {"durability": "process"}}))


class OnSpark(Lakemirror):
    """The same with the row work of changes on Spark, whose start is part of the time; the first load is local."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._steps: list[tuple[str, float]] = []

    def upsert(self, work: Work) -> None:
        self._settings = {"engine": "spark"}
        with _SparkSteps() as steps:
            self.load(work)
        self._steps = steps.seconds()

    append = upsert

    def steps(self) -> list[tuple[str, float]]:
        return self._steps


class _SparkSteps(logging.Handler):
    """What the time of a pass is spent on: Spark's jobs, what the driver does between them, and failed attempts."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._events: list[tuple[str, float, float]] = []  # what, beginning, end
        self._log = logging.getLogger("lakemirror")

    def __enter__(self) -> _SparkSteps:
        self._begun, self._level = time.time(), self._log.level
        self._log.addHandler(self)
        self._log.setLevel(logging.DEBUG)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = time.time()
        self._log.removeHandler(self)
        self._log.setLevel(self._level)

    def emit(self, record: logging.LogRecord) -> None:
        arguments = record.args if isinstance(record.args, tuple) else ()
        if record.name.endswith(".jobs") and len(arguments) == 3:
            description, _, seconds = arguments
            step = str(description).rpartition(": ")[2]
            self._events.append((step, record.created - float(str(seconds)), record.created))
        elif any(isinstance(each, LakemirrorError) for each in arguments):
            self._events.append((record.getMessage()[:200], record.created, record.created))

    def seconds(self) -> list[tuple[str, float]]:
        """Seconds of each job and of what is between them, in order. A failed attempt has its message and 0 seconds."""
        found: list[tuple[str, float]] = []
        before = self._begun
        for what, begun, ended in self._events:
            found += [("driver", round(begun - before, 2)), (what, round(ended - begun, 2))]
            before = ended
        return [*found, ("driver", round(self._ended - before, 2))]


def wait_for_key_index() -> None:
    """Waits until every key index is built that an apply of this process found missing."""
    index = key_index(Settings().with_environment())
    assert index is not None
    index.wait()


class _Told:
    """Passes on the number of the last file of every commit; an error that does not pass by itself ends the run."""

    def __init__(self, applied: Callable[[int], None], stop: threading.Event) -> None:
        self.error: LakemirrorError | None = None
        self._applied = applied
        self._stop = stop

    def applied(self, name: Any, applied: Any) -> None:
        self._applied(applied.manifest.last)

    def failed(self, name: Any, error: LakemirrorError) -> None:
        if not error.retry:
            self.error = error
            self._stop.set()

    def dropped(self, target: str) -> None:
        pass
