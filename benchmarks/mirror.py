"""A mirrored database that the questions of growth are asked of, and what their answers are."""

from __future__ import annotations

import json
import shutil
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

TABLE = "orders"


class Point(NamedTuple):
    """A place on a line of the chart, and the seconds of every apply there."""

    line: str
    x: int
    seconds: list[float]

    def __str__(self) -> str:
        return f"{self.line}, {self.x:,}: {statistics.median(self.seconds):.2f} s"


class Figure(NamedTuple):
    """What was measured beside the time. `value`: bytes."""

    name: str
    x: int
    value: float

    def __str__(self) -> str:
        return f"{self.name}, {self.x:,}: {self.value / 1e6:,.0f} MB"


class Mirror:
    """A mirrored database; Spark starts in this process when an apply needs it, and stays. `options`: of its table."""

    def __init__(self, folder: Path, **options: object) -> None:
        from lakemirror import MirroredDatabase

        self.folder = folder
        self.zone, self._options = folder / "Files/LandingZone", options
        self.zone.mkdir(parents=True)
        self._database = MirroredDatabase(folder)
        self._number = 0

    def put(self, *files: Path, keep: bool = True) -> None:
        """Copies change files into the table folder; moves them there if they are not to be kept."""
        place = self.zone / TABLE
        if not place.exists():
            place.mkdir(parents=True)
            (place / "_metadata.json").write_text(json.dumps({"keyColumns": ["id"], **self._options}))
        for file in files:
            self._number += 1
            into = place / f"{self._number:020}.parquet"
            if keep:
                shutil.copyfile(file, into)
            else:
                file.rename(into)

    def apply(self) -> float:
        """Seconds of one pass. RuntimeError where a table needs attention."""
        begun = time.perf_counter()
        result = self._database.sync()
        seconds = time.perf_counter() - begun
        if result.failed:
            raise RuntimeError(str(result.failed))
        return seconds

    def last_apply(self) -> tuple[str, int]:
        """The engine of the last apply, and the number of the table's commits."""
        (table,) = self._database.status().tables
        commits = (self.folder / "Tables" / TABLE / "_delta_log").glob("*.json")
        return table.engine, sum(file.stem.isdigit() for file in commits)

    def applies(self, files: Sequence[Path]) -> list[float]:
        """Seconds of every file, one pass each."""
        seconds = []
        for file in files:
            self.put(file)
            seconds.append(self.apply())
        return seconds
