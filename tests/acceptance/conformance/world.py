"""One database in which every conformance case has its tables, and three passes of the engine over it.

steps 1 of all cases ─▶ sync ─▶ steps 2 ─▶ sync ─▶ steps 3 ─▶ sync        each by the command line
                         └─ exit code, status, the version of every table
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests import preloaded
from tests.landing import MARKER, folder
from tests.model import canonical
from tests.table_rows import table_rows

Step = Callable[[Path], None]
STEPS: dict[int, list[Step]] = {1: [], 2: [], 3: []}


def step(number: int) -> Callable[[Step], Step]:
    """Registers what publishers do before pass `number`."""

    def register(function: Step) -> Step:
        STEPS[number].append(function)
        return function

    return register


def lakemirror(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return preloaded.run(
        [sys.executable, "-m", "lakemirror.cli", *map(str, words)], capture_output=True, text=True, timeout=300,
        env={
            **os.environ, "LAKEMIRROR_MASTER": "local[2]", "LAKEMIRROR_DROP_AFTER": "0", "COLUMNS": "200", **environment
        }, check=False,
    )  # fmt: skip


@dataclass
class World:
    """The database after its passes. Lists have one item a pass."""

    database: Path
    spark: Any
    engine: str = "auto"
    reader: str = "duckdb"
    exit_codes: list[int] = field(default_factory=list)
    status: list[dict[str, dict[str, Any]]] = field(default_factory=list)
    replicator: list[dict[str, Any]] = field(default_factory=list)
    monitoring: list[dict[str, dict[str, Any]]] = field(default_factory=list)
    versions: list[dict[str, int]] = field(default_factory=list)

    def play(self) -> World:
        for number in STEPS:
            for each in STEPS[number]:
                each(self.database)
            done = lakemirror("sync", self.database, "--engine", self.engine)
            assert "Traceback" not in done.stderr, done.stderr
            self.exit_codes.append(done.returncode)
            found = json.loads(lakemirror("status", self.database, "--json").stdout)
            self.status.append({table["normalizedTableName"]: table for table in found.pop("tables")})
            self.replicator.append(found)
            written = json.loads((self.database / "Files/Monitoring/tables.json").read_text())
            self.monitoring.append({table["normalizedTableName"]: table for table in written["tables"]})
            self.versions.append({
                str(log.parent.relative_to(self.database / "Tables")).replace("/", "."):
                max(int(p.stem) for p in log.glob("*.json"))
                for log in (self.database / "Tables").rglob("_delta_log")
            })  # fmt: skip
        return self

    def frame(self, table: str, after: int = 3) -> Any:
        """The table as it was after a pass."""
        version = self.versions[after - 1][table]
        path = self.database / "Tables" / table.replace(".", "/")
        return self.spark.read.format("delta").option("versionAsOf", version).load(str(path))

    def rows(self, table: str, *columns: str, after: int = 3) -> Counter[tuple[Any, ...]]:
        """Its rows as they were after a pass."""
        if self.reader == "duckdb":
            return table_rows(self.database, table, list(columns), version=self.versions[after - 1][table])
        frame = self.frame(table, after)
        names = columns or frame.columns
        selected = frame.select(*["`" + name.replace("`", "``") + "`" for name in names]).collect()
        return Counter(tuple(canonical(value) for value in row) for row in selected)

    def types(self, table: str, after: int = 3) -> dict[str, str]:
        return {f.name: f.dataType.simpleString() for f in self.frame(table, after).schema}

    def error(self, table: str, after: int = 3) -> str:
        return str(self.status[after - 1][table]["errorCode"])

    def warnings(self, table: str, after: int = 3) -> set[str]:
        return {each["code"] for each in self.status[after - 1][table]["warnings"]}

    def waits_for(self, table: str, after: int = 3) -> str:
        waiting = self.status[after - 1][table]["waitingFor"]
        return str(waiting["what"]) if waiting else ""


def put_at(database: Path, table: str, path: str, rows: dict[str, Any], at: float = 1e9, **options: Any) -> Path:
    """A Parquet file at a path below the table folder, last modified at that time."""
    target = folder(database, table) / path
    target.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(rows), target, **options)
    os.utime(target, (at, at))
    return target


def put_text(database: Path, table: str, name: str | int, text: str | bytes, at: float = 1e9) -> Path:
    """Delimited text under that name or number."""
    target = folder(database, table) / (f"{name:020}.csv" if isinstance(name, int) else name)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(text.encode() if isinstance(text, str) else text)
    os.utime(target, (at, at))
    return target


def raw_metadata(database: Path, table: str, text: str | bytes) -> None:
    place = folder(database, table)
    place.mkdir(parents=True, exist_ok=True)
    (place / "_metadata.json").write_bytes(text.encode() if isinstance(text, str) else text)


def marked(*markers: int | str | None, kind: Any = None) -> dict[str, pa.Array]:
    return {MARKER: pa.array(markers, kind or pa.int32())}
