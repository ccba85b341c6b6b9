"""The demo: publishes a year of flights while the mirror runs on Spark, then checks the tables against the source.

Afterwards each engine applies the same files as one backlog, for comparison.
"""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from flights import show
from flights.source import TABLES, FlightsSource, Step
from flights.tables_compared import Comparison, compared
from lakemirror.api import MirroredDatabase
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.zone import LANDING_ZONE, TableName
from lakemirror.mirror.apply import Applied
from lakemirror.spark_session import session as spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MINE = "mirrored-by-lakemirror-demo"  # a file that marks a folder made by the demo
_BY_TASKS: dict[str, Any] = {"engine": "spark", "spark_from_bytes": 1}
"""Spark's tasks do every batch. By default its driver does what is under 32 MiB, as all batches here are."""

_PACE = 0.03  # seconds between two files: the year takes about fifteen, so that the mirror works while files arrive
_PATIENCE = 600.0  # seconds without any progress after which the demo gives up


class Watch:
    """What the mirror has done so far, as its threads report it."""

    def __init__(self) -> None:
        self.files: dict[str, int] = defaultdict(int)
        self.changes: dict[str, int] = defaultdict(int)
        self.commits: dict[str, int] = defaultdict(int)
        self.first: dict[str, float] = {}
        self.last: dict[str, float] = {}
        self.engines: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self.error: LakemirrorError | None = None
        self._lock = threading.Lock()

    @property
    def total(self) -> int:
        return sum(self.files.values())

    @property
    def seconds(self) -> float:
        """From the first file to the last commit."""
        return max(self.last.values()) - min(self.first.values())

    def applied(self, name: TableName, applied: Applied) -> None:
        with self._lock:
            table = name.table
            self.engines[applied.engine][applied.engine_reason] += 1
            self.files[table] += len(applied.batch.files)
            self.changes[table] += applied.batch.rows
            self.commits[table] += 1
            self.last[table] = time.monotonic()

    def failed(self, name: TableName, error: LakemirrorError) -> None:
        if not error.retry:
            self.error = error

    def dropped(self, target: str) -> None:
        pass


class _Jobs(logging.Handler):
    """Counts Spark's jobs from the engine's log: jobs, units and seconds of each step."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.steps: dict[str, tuple[int, int, float]] = {}

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        teller = logging.getLogger("lakemirror.engines.spark.jobs")
        level, propagate = teller.level, teller.propagate
        teller.addHandler(self)
        teller.setLevel(logging.DEBUG)
        teller.propagate = level == logging.DEBUG
        try:
            yield
        finally:
            teller.removeHandler(self)
            teller.setLevel(level)
            teller.propagate = propagate

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.args, tuple) and len(record.args) == 3:
            description, units, seconds = record.args
            step = re.sub(r": \d+ .*", "", str(description)).rpartition(": ")[2]  # without what the job was given
            count, all_units, all_seconds = self.steps.get(step, (0, 0, 0.0))
            self.steps[step] = (count + 1, all_units + int(str(units)), all_seconds + float(str(seconds)))


def perform(folder: Path, days: int | None = None, **settings: Any) -> bool:
    """Publishes and mirrors the flights into `folder`, and prints the results. Returns True if all figures are right.

    A folder of an earlier demo is replaced. Errors: `setting-invalid` for any other folder that is not empty;
    SetupError if the data or Spark is missing.
    """
    console = Console(highlight=False)
    source = FlightsSource(days)
    clear(folder)
    (folder / LANDING_ZONE).mkdir(parents=True)
    (folder / _MINE).touch()
    console.print(
        f"Publishing a year of flights into {folder}/{LANDING_ZONE}, mirroring it into {folder}/Tables", style="bold"
    )
    steps = list(source.steps())
    database = MirroredDatabase(folder, **{"poll": 0.2, "maintenance": False, **_BY_TASKS, **settings})
    begun = time.monotonic()
    console.print("Starting Spark")
    session = spark_session.start(database.settings)
    console.print(f"Spark started in {time.monotonic() - begun:.1f} s")
    started = time.monotonic()
    jobs = _Jobs()
    with jobs.counted():
        watch = _mirror(database, session, source, steps, folder)
    seconds = time.monotonic() - begun
    right = _show(console, compared(folder, source, days), watch, sum(len(s.rows) for s in steps))
    done = (
        f"{watch.total} change files",
        f"{sum(watch.changes.values()):,} changes",
        f"{sum(watch.commits.values())} commits",
    )
    console.print(f"{', '.join(done)} in {seconds:.1f} s, Spark's start included")
    console.print(show.engines(watch.engines))
    if jobs.steps:
        console.print(show.jobs(jobs.steps))
    by_spark = sum(watch.engines.get("spark", {}).values())
    if by_spark:
        live = time.monotonic() - started
        by_engine = _as_backlog(source, steps, folder, session)
        console.print(
            f"Spark applied the files while they arrived, {_PACE * 1000:.0f} ms apart: {watch.seconds:.1f} s of "
            f"{live:.1f} s. The same files as one backlog then took {by_engine['spark']:.1f} s by Spark, which ran "
            f"already, and {by_engine['local']:.1f} s by the local engine, which needs no JVM. By default "
            f"(`--engine auto`), each batch goes to the faster engine."
        )
    _what_next(console, folder)
    spark_session.stop(session)
    return right


def _mirror(
    database: MirroredDatabase, session: SparkSession, source: FlightsSource, steps: list[Step], folder: Path
) -> Watch:
    watch = Watch()
    stop = threading.Event()
    failures: list[BaseException] = []

    def guarded(work: Any) -> Any:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                failures.append(error)

        return run

    def publish() -> None:
        for step in steps:
            if stop.is_set():
                return
            watch.first.setdefault(step.table, time.monotonic())
            source.publish(folder, step)
            stop.wait(_PACE)

    mirror = MirroredDatabase(database.storage.uri(), spark=session, **database.flags)
    threads = [
        threading.Thread(target=guarded(publish), name="publisher"),
        threading.Thread(target=guarded(lambda: mirror.run(stop, watch)), name="mirror"),
    ]
    for thread in threads:
        thread.start()
    try:
        follow("change files applied", lambda: watch.total, len(steps), failures, lambda: watch.error is not None)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
    if watch.error is not None:
        raise watch.error
    return watch


def _as_backlog(source: FlightsSource, steps: list[Step], folder: Path, session: SparkSession) -> dict[str, float]:
    """The seconds that each engine takes for the same files in a temporary database, by the engine's name."""
    seconds = {}
    with tempfile.TemporaryDirectory(prefix="backlog-", dir=folder) as place:
        published = Path(place, "published")
        (published / LANDING_ZONE).mkdir(parents=True)
        for step in steps:
            source.publish(published, step)
        for engine, chosen in (("spark", _BY_TASKS), ("local", {"engine": "local"})):
            database = Path(place, engine)
            shutil.copytree(published, database)
            begun = time.monotonic()
            result = MirroredDatabase(database, spark=session, **chosen).sync()
            seconds[engine] = time.monotonic() - begun
            if result.failed:
                raise next(iter(result.failed.values()))
    return seconds


def follow(
    what: str,
    done: Callable[[], int],
    total: int,
    failures: list[BaseException],
    failed: Callable[[], bool] = lambda: False,
) -> None:
    """Waits until all is done, with a progress bar on a terminal. Returns early after a failure."""
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    seen, moved = 0, time.monotonic()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=total)
        while seen < total and not failures and not failed():
            time.sleep(0.1)
            now = done()
            if now != seen:
                seen, moved = now, time.monotonic()
            bar.update(task, completed=seen)
            if time.monotonic() - moved > _PATIENCE:
                raise LakemirrorError("internal", f"nothing was applied for {_PATIENCE:.0f} s")


def _show(console: Console, found: Comparison, watch: Watch, published: int) -> bool:
    console.print(
        show.mirrored_tables(
            show.MirroredTable(
                name,
                found.counts[name],
                watch.files[name],
                watch.changes[name],
                watch.last[name] - watch.first[name],
                ok=found.is_right(name),
            )
            for name in TABLES
        )
    )
    cancelled = f"{found.wanted.cancelled:,} cancelled flights were scheduled, then deleted"
    return found.print(console, f"{cancelled}; {published:,} changes in all")


def _what_next(console: Console, folder: Path) -> None:
    console.print(
        f"""
What to try next
  lakemirror status {folder}                  state and position of every table, without Spark
  lakemirror run {folder}                     keep it running, and in another terminal:
  python -c "from lakemirror.publisher import Landing; \\
    Landing('{folder}').table('airlines', ['carrier']).upsert([{{'carrier': 'ZZ', 'name': 'Zeppelin'}}])"
  echo broken > {folder}/{LANDING_ZONE}/planes/{2:020}.parquet
                                       break a table; after 30 s `status` says what is wrong and how to fix it
""",
        soft_wrap=True,
    )


def clear(folder: Path) -> None:
    """Removes the folder of an earlier demo. Error: `setting-invalid` if the demo did not make it."""
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not (folder / _MINE).exists():
        raise LakemirrorError(
            "setting-invalid",
            f"{folder} is not empty and was not made by the demo",
            hint="Name another folder: --into FOLDER",
        )
    shutil.rmtree(folder)
