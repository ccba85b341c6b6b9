"""Few changes of a large table with UUID keys, on a Spark cluster of two workers: `--engine spark` beside one MERGE.

    python -m benchmarks.cluster                                        10 million rows, some ten minutes
    python -m benchmarks.cluster --rows 100000000 --memory 2g           the goal's size; 15 GB of disk
    python -m benchmarks.cluster --load FOLDER                          rows that `benchmarks.data` made before

Both sides use the same session and the same executors, in turn, and begin with the same data files: MERGE changes a
copy of the table. The copy's change files are those of the mirror. The first apply of each side, which reads what no
cache holds, is shown by itself. MERGE is that of the peer `expert-delta`: changes folded to the last of each key, one
statement, deletion vectors.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import data, digest, process
from benchmarks.peers.delta import Expert
from benchmarks.peers.on_spark import EXPERT
from benchmarks.process import Peak
from benchmarks.runner import machine, say
from benchmarks.standalone import Cluster, cluster
from lakemirror import MirroredDatabase
from lakemirror.settings.settings import Settings
from lakemirror.spark_session import session as spark_session

RESULTS = Path(__file__).parent / "results"
TABLE = "orders"


@dataclass
class Side:
    """What one side needs for each change file. `driver`, `executors`: peak bytes of all processes of each kind."""

    name: str
    apply: Callable[[Path], None]
    seconds: list[float] = field(default_factory=list)
    driver: int = 0
    executors: int = 0

    @property
    def typical(self) -> float:
        """The median of the applies behind the first."""
        return statistics.median(self.seconds[1:] or self.seconds)

    def line(self) -> str:
        """Its figures in one line."""
        first, *rest = (f"{each:.2f}" for each in self.seconds)
        memory = f"driver {self.driver / 2**20:,.0f} MB, executors {self.executors / 2**20:,.0f} MB at most"
        return f"{self.name:26} first {first} s, then {', '.join(rest)} s; {memory}"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="benchmarks.cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--changes", type=int, default=10_000, help="of each apply")
    parser.add_argument("--rounds", type=int, default=4, help="applies of each side, of which the first is shown apart")
    parser.add_argument("--memory", default="1g", help="memory of each executor")
    parser.add_argument("--load", type=Path, help="a folder with the rows; made in a temporary folder if not given")
    parser.add_argument("--place", type=Path, help="a folder for the tables; on the disk of --load, files are linked")
    parser.add_argument("--into", type=Path, help="where the results are written, as JSON")
    given = parser.parse_args()
    process.hide_pandas()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the cluster ends, too
    with tempfile.TemporaryDirectory(prefix="lakemirror-cluster-", dir=given.place) as place:
        report = run(given, Path(place))
    into = given.into or RESULTS / f"cluster-{time.strftime('%Y%m%d-%H%M%S')}.json"
    into.parent.mkdir(parents=True, exist_ok=True)
    into.write_text(json.dumps(report, indent=1))
    say(f"results: {into}")


def run(given: argparse.Namespace, place: Path) -> dict[str, Any]:
    """Measures all sides. RuntimeError if the tables differ afterwards."""
    load = data.load(given.load or place / "load", given.rows, files=max(4, given.rows // 1_000_000), as_uuids=True)
    data.upserts(place / "changes", given.rows, given.rounds, given.changes, data.uniform, as_uuids=True)
    changes = sorted((place / "changes").iterdir())
    say(f"{given.rows:,} rows in {len(load)} files; {given.changes:,} changes of any key in each of {len(changes)}")
    without, indexed, merged = (place / name for name in ("without", "indexed", "merged"))
    _first_load(without, load)
    _copied(without, indexed)
    _copied(without / "Tables", merged)
    os.sync()  # so that no apply waits for the disk to take this data
    with ExitStack() as stack:
        started = stack.enter_context(cluster(place / "cluster", memory=given.memory))
        settings = Settings(master=started.master, spark=_options(given.memory)).with_environment()
        session = spark_session.start(settings, delta=True)
        stack.callback(spark_session.stop, session)
        expert = Expert(merged)
        expert.spark = session
        mine = [_mirror(session, without, key_index=False), _mirror(session, indexed, key_index=True)]
        sides = [
            Side("lakemirror, no key index", lambda file: _apply(mine[0], without, file)),
            Side("lakemirror, key index", lambda file: _apply(mine[1], indexed, file)),
            Side("one MERGE", lambda file: expert.upsert({TABLE: [file]})),
        ]
        for number, file in enumerate(changes):
            for side in sides if number % 2 == 0 else sides[::-1]:
                _measure(side, file, started)
            if number == 0:
                _wait_for_index(mine[1])
    for side in sides:
        print(side.line())
    for side in sides[:2]:
        print(f"{side.name}: {sides[2].typical / side.typical:.1f} times as fast as one MERGE", flush=True)
    tables = [without / "Tables" / TABLE, indexed / "Tables" / TABLE, merged / TABLE]
    _check_same(tables, load, changes)
    return {
        "machine": machine(), "rows": given.rows, "changes": given.changes, "memory": given.memory,
        "sides": {side.name: [side.seconds, side.driver, side.executors] for side in sides},
    }  # fmt: skip


def _options(memory: str) -> tuple[tuple[str, str], ...]:
    here = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    executors = {"spark.executor.memory": memory, "spark.executor.cores": "1"}
    return tuple({**EXPERT, **here, **executors}.items())


def _first_load(folder: Path, files: Sequence[Path]) -> None:
    """Makes the table from the rows. The local engine copies the files and does not read them: `data` made them."""
    zone = folder / "Files/LandingZone" / TABLE
    zone.mkdir(parents=True)
    (zone / "_metadata.json").write_text(json.dumps({"keyColumns": ["id"]}))
    for number, file in enumerate(files, 1):
        _linked(file, zone / f"{number:020}.parquet")
    _check(MirroredDatabase(folder, engine="local", key_index=False, trust_footers=True).sync())


def _mirror(session: Any, folder: Path, *, key_index: bool) -> MirroredDatabase:
    return MirroredDatabase(folder, engine="spark", spark=session, key_index=key_index, maintenance=False)


def _apply(mirror: MirroredDatabase, folder: Path, file: Path) -> None:
    zone = folder / "Files/LandingZone" / TABLE
    newest = max(int(each.stem) for each in zone.glob("[0-9]*.parquet"))
    shutil.copy2(file, zone / f"{newest + 1:020}.parquet")
    _check(mirror.sync())


def _check(result: Any) -> None:
    if result.failed:
        raise RuntimeError("; ".join(str(error) for error in result.failed.values()))


def _measure(side: Side, file: Path, started: Cluster) -> None:
    with ExitStack() as stack:
        driver = stack.enter_context(Peak(os.getpid(), apart=started.processes))
        workers = [stack.enter_context(Peak(pid)) for pid in started.workers]
        begun = time.perf_counter()
        side.apply(file)
        side.seconds.append(time.perf_counter() - begun)
    side.driver = max(side.driver, driver.bytes)
    side.executors = max(side.executors, sum(worker.bytes for worker in workers))
    say(f"  {side.name}: {side.seconds[-1]:.2f} s")


def _wait_for_index(mirror: MirroredDatabase) -> None:
    from lakemirror.keys.key_index import KeyIndex

    settings = mirror.settings
    begun = time.perf_counter()
    KeyIndex.shared(settings.cache_folder / "keys", settings.key_index_bytes).wait()
    say(f"  the key index was ready {time.perf_counter() - begun:.1f} s after the first apply")


def _check_same(tables: Sequence[Path], load: Sequence[Path], changes: Sequence[Path]) -> None:
    expected = digest.expected(load, changes, [digest.UUIDS])
    for table in tables:
        query = digest.sql(f"delta_scan('{table}')", [digest.UUIDS])
        if digest.numbers(digest.duckdb_with("delta").execute(query).fetchone()) != expected:
            raise RuntimeError(f"{table} does not hold what it should")


def _copied(folder: Path, copy: Path) -> None:
    """A copy of the folder without archived files. Data files are linked: nobody changes them. Change files are not:
    the archive gives them another time."""

    def one(source: str, target: str) -> None:
        (shutil.copy2 if "LandingZone" in Path(source).parts else _linked)(Path(source), Path(target))

    shutil.copytree(folder, copy, copy_function=one, ignore=shutil.ignore_patterns("_ProcessedFiles"))


def _linked(file: Path, name: Path) -> None:
    if file.suffix != ".parquet" or "_delta_log" in file.parts:
        shutil.copy2(file, name)
        return
    try:
        name.hardlink_to(file)
    except OSError:  # another disk
        shutil.copy2(file, name)


if __name__ == "__main__":
    main()
