"""V1 to V28: the public stress test of Fabric Open Mirroring, its rates on one table (github:
mdrakiburrahman/fabric-open-mirroring-benchmark, results/Results.xlsx); VP: its partitioned form.

Rows as it makes them, by DuckDB: when written, one of 999 employees, one of five places, more texts of 999 values;
`__rowMarker__` 0, key `EmployeeID`.
"""

from __future__ import annotations

import json
import shutil
import statistics
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from benchmarks import digest
from benchmarks.figures import percentile
from benchmarks.peers.peer import MARKER, Peer
from benchmarks.process import Meter
from benchmarks.scenarios.scenario import TABLE, Data, Scenario, Size
from benchmarks.scenarios.steady import follow

_PLACES = ("Redmond", "Seattle", "Bellevue", "Toronto", "Kirkland")
_DISTINCT = 8  # files that are made; a run repeats them
_METADATA = {"keyColumns": ["EmployeeID"]}


@dataclass(frozen=True)
class VendorRate(Scenario):
    """One run of the stress test: `columns` of data beside the marker. Seconds: 95 % of files within."""

    name: str
    title: str
    small: Size
    full: Size
    columns: int = 3
    peers: tuple[str, ...] = ("lakemirror", "lakemirror-process")
    headline: ClassVar[str] = "95 % of files within"
    timed: ClassVar[str] = (
        "Files arrive at the rate that the public stress test had. The time of a file is from its rename into place "
        "to the commit that holds it."
    )

    def make(self, store: Path, size: Size) -> Data:
        made = [_write(store / self.name / f"{i}.parquet", size.changes, self.columns, i) for i in range(_DISTINCT)]
        changes = [made[i % _DISTINCT] for i in range(size.files)]
        return Data(size, (), changes, expected=_expected(changes))

    def run(self, peer: Peer, data: Data) -> dict[str, Any]:
        peer.start(0)
        inbox = peer.inbox(TABLE)
        (inbox / "_metadata.json").write_text(json.dumps(_METADATA))
        with Meter() as meter:
            lags, behind = follow(peer, data, rest=0.0)
        fifth = max(1, len(lags) // 5)
        extra = {
            "p50, s": percentile(lags, 0.5),
            "p99, s": percentile(lags, 0.99),
            "last fifth to first": statistics.median(lags[-fifth:]) / statistics.median(lags[:fifth]),
            "after the last file, s": behind,
            "CPU, ns a value": meter.cpu * 1e9 / (len(data.changes) * data.size.changes * self.columns),
        }
        return {"seconds": percentile(lags, 0.95), "extra": extra, **_costs(peer, meter, data)}


@dataclass(frozen=True)
class VendorPartitions(Scenario):
    """Few large files in partition folders, found by their time, without keys.

    `marked`: with a row marker, and with times without a zone, as that test makes them: files that must be written
    again.
    """

    name: str
    title: str
    small: Size
    full: Size
    peers: tuple[str, ...] = ("lakemirror", "lakemirror-process")
    headline: ClassVar[str] = "time"
    timed: ClassVar[str] = "All files are there; one pass of a started engine applies them to a new table."
    marked: bool = False

    def make(self, store: Path, size: Size) -> Data:
        folder = store / self.name
        changes = [_write(folder / f"{i}.parquet", size.changes, 3, i, marked=self.marked) for i in range(size.files)]
        return Data(size, (), changes, expected=_expected(changes))

    def run(self, peer: Peer, data: Data) -> dict[str, Any]:
        peer.start(0)
        inbox = peer.inbox(TABLE)
        detection = {"fileDetectionStrategy": "LastUpdateTimeFileDetection", "isPartitionEnabled": True}
        (inbox / "_metadata.json").write_text(json.dumps({"keyColumns": [""], **detection}))
        for place, file in enumerate(data.changes):
            folder = inbox / f"YearMonthDate=2026012{place % 2}" / f"Foo={place // 2}"
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, folder / f"{place}-employees.parquet")
        with Meter() as meter:
            peer.append({})
        return {"seconds": meter.seconds, **_costs(peer, meter, data)}


_TEXT = "'E' || lpad(cast((random() * 998 + 1)::int as varchar), 3, '0')"


def _write(path: Path, rows: int, columns: int, seed: int, *, marked: bool = True) -> Path:
    import duckdb

    path.parent.mkdir(parents=True, exist_ok=True)
    written = "timestamp '2026-01-02 03:04:05.678901'" if marked else "timestamptz '2026-01-02 03:04:05.678901+00'"
    held = [f"{written} + interval {seed} minute as WriterTimestamp", f"{_TEXT} as EmployeeID"]
    held.append(f"{list(_PLACES)}[(random() * 4)::int + 1] as EmployeeLocation")
    held += [f"{_TEXT} as Text{place}" for place in range(3, columns)]
    held += [f'0 as "{MARKER}"'] if marked else []
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute(f"select setseed({seed / 100})")
        connection.execute(f"copy (select {', '.join(held)} from range({rows})) to '{path}' (format parquet)")
    return path


_SUMS = "count(*), sum(length(EmployeeLocation)), sum(cast(substr(EmployeeID, 2) as bigint))"


def _expected(files: list[Path]) -> list[int]:
    import duckdb

    total = [0, 0, 0]
    for file in sorted(set(files)):
        row = duckdb.sql(f"select {_SUMS} from read_parquet('{file}', hive_partitioning = false)").fetchone()
        total = [old + files.count(file) * new for old, new in zip(total, digest.numbers(row or ()), strict=True)]
    return total


def _costs(peer: Peer, meter: Meter, data: Data) -> dict[str, Any]:
    place, disk = peer.delta_table(TABLE), peer.on_disk()
    query = f"select {_SUMS} from delta_scan('{place}')"
    found = digest.numbers(digest.duckdb_with("delta").execute(query).fetchone() or ())
    return {
        "cpu": round(meter.cpu, 2),
        "written": meter.written,
        "given": data.change_bytes,
        "files": len(disk),
        "disk": sum(file.stat().st_size for file in disk if file.exists()),
        "commits": peer.commits(TABLE),
        "digest": found,
        "right": found == list(data.expected),
    }


def _run(number: int, rate: float, rows: int, columns: int = 3) -> VendorRate:
    title = f"vendor's run {number}: {rate:g} files a second of {rows:,} rows, {columns} columns"
    size = Size(files=max(2, round(60 * rate)), changes=rows, pause=1 / rate)
    return VendorRate(f"V{number}", title, replace(size, files=max(2, round(10 * rate))), size, columns)


VENDOR: tuple[Scenario, ...] = (
    _run(1, 0.11, 625_000),
    _run(2, 0.29, 625_000),
    _run(7, 4.75, 625_000),
    _run(9, 2.89, 1_250_000),
    _run(28, 3.28, 921_066, 10),
    VendorPartitions(
        "VP", "vendor's partitions: files taken as they are", Size(files=4, changes=500_000),
        Size(files=4, changes=6_250_000),
    ),
    VendorPartitions(
        "VPm", "vendor's partitions: files that are written again", Size(files=4, changes=500_000),
        Size(files=4, changes=6_250_000), marked=True,
    ),
)  # fmt: skip
