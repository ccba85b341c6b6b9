"""How the time of one apply grows: with rows, changes, tables, commits, columns.

python -m benchmarks.growth                  eight questions in about a quarter of an hour
python -m benchmarks.growth --full           up to 100 million rows, 10,000 tables, 5,000 commits; hours
python -m benchmarks.growth --only rows --sizes 1000000,3000000
python -m benchmarks.report RESULTS.json     the figures and the chart in docs/

An apply is one pass over the mirrored database with one change file in it, in an engine that has run some. Every
question has a process of its own with a time limit; a point is written the moment it is measured.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import data, engine_switch, process, uuid_keys
from benchmarks.mirror import TABLE, Figure, Mirror, Point
from benchmarks.runner import REPOSITORY, machine, say

RESULTS = Path(__file__).parent / "results"
_WARMING = 3


@dataclass(frozen=True)
class Question:
    """What grows, in what steps, and how it is measured."""

    what: str
    small: Sequence[int]
    full: Sequence[int]
    ask: Callable[[Path, Sequence[int]], Iterator[Point | Figure]]


def _rows(place: Path, sizes: Sequence[int]) -> Iterator[Point]:
    for rows in sizes:
        for name, keys in (("any key", data.uniform), ("recent keys", data.recent)):
            mirror = Mirror(place / f"{name}-{rows}")
            mirror.put(*data.load(place / f"load-{rows}", rows))
            mirror.apply()
            data.upserts(mirror.folder / "changes", rows, _WARMING + 5, 1_000, keys)
            seconds = mirror.applies(sorted((mirror.folder / "changes").iterdir()))
            yield Point(name, rows, seconds[_WARMING:])
            yield Point(f"{name}, the first time", rows, seconds[:1])
            shutil.rmtree(mirror.folder)
        shutil.rmtree(place / f"load-{rows}")


def _changes(place: Path, sizes: Sequence[int]) -> Iterator[Point]:
    rows = 300_000
    for changes in sizes:
        mirror = Mirror(place / str(changes))
        mirror.put(*data.load(place / "load", rows))
        mirror.apply()
        data.upserts(mirror.folder / "changes", rows, _WARMING + 4, changes, data.uniform)
        yield Point("any key", changes, mirror.applies(sorted((mirror.folder / "changes").iterdir()))[_WARMING:])
        shutil.rmtree(mirror.folder)


def _tables(place: Path, sizes: Sequence[int]) -> Iterator[Point]:
    """One table is mirrored and copied, folder and table, which is what a backup does as well."""
    mirror = Mirror(place / "db")
    data.appends(place / "changes", 40, 100)
    files = sorted((place / "changes").iterdir())
    mirror.applies(files[:_WARMING])
    files = files[_WARMING:]
    for part in (mirror.zone, mirror.folder / "Tables"):
        shutil.copytree(part / TABLE, place / part.name, symlinks=True)
    made = 1
    for tables in sizes:
        for number in range(made, tables):
            for part in (mirror.zone, mirror.folder / "Tables"):
                shutil.copytree(place / part.name, part / f"{TABLE}_{number:05}", symlinks=True)
        made = max(made, tables)
        mirror.apply()
        yield Point("nothing to do", tables, [mirror.apply() for _ in range(3)])
        yield Point("one file in one table", tables, mirror.applies(files[:4])[1:])
        files = files[4:]


def _commits(place: Path, sizes: Sequence[int]) -> Iterator[Point]:
    rows, window = 100_000, 5
    mirror = Mirror(place / "db")
    mirror.put(*data.load(place / "load", rows))
    mirror.apply()
    data.upserts(place / "changes", rows, max(sizes) + window, 100, data.uniform)
    seconds = mirror.applies(sorted((place / "changes").iterdir()))
    for commits in sizes:
        yield Point("any key", commits, seconds[max(commits - window, 0) : commits + window])


def _columns(place: Path, sizes: Sequence[int]) -> Iterator[Point]:
    random = np.random.default_rng(11)

    def wide(file: Path, columns: int) -> None:
        rows = pq.read_table(file)
        for number in range(columns - len(data.table(np.arange(1), random).column_names)):
            rows = rows.append_column(f"wide{number}", pa.array(random.integers(0, 1000, rows.num_rows)))
        pq.write_table(rows, file)

    for columns in sizes:
        mirror = Mirror(place / str(columns))
        load = data.load(mirror.folder / "load", 20_000, files=1)
        data.upserts(mirror.folder / "changes", 20_000, _WARMING + 4, 1_000, data.uniform)
        changes = sorted((mirror.folder / "changes").iterdir())
        for file in (*load, *changes):
            wide(file, columns)
        mirror.put(*load)
        mirror.apply()
        yield Point("any key", columns, mirror.applies(changes)[_WARMING:])
        shutil.rmtree(mirror.folder)


def _partial_rows(place: Path, sizes: Sequence[int]) -> Iterator[Point]:
    """Rows that have one new value, in a table with versions and soft deletes."""
    for columns in sizes:
        mirror = Mirror(place / str(columns), lakemirror={"deletes": "soft", "history": "scd2"})
        names = [f"wide{number}" for number in range(columns)]
        for number in range(_WARMING + 5):
            rows = {"id": [1, 2, 3], data.MARKER: [data.UPSERT] * 3} | dict.fromkeys(names, [f"{number}"] * 3)
            if number:
                rows["__unchangedColumns__"] = [names[1:]] * 3
            pq.write_table(pa.table(rows), mirror.folder / f"{number}.parquet")
        files = [mirror.folder / f"{number}.parquet" for number in range(_WARMING + 5)]
        yield Point("partial rows", columns, mirror.applies(files)[_WARMING:])
        shutil.rmtree(mirror.folder)


QUESTIONS = {
    "rows": Question("rows of the table, 1,000 changes", (100_000, 500_000, 1_000_000, 5_000_000),
                     (1_000_000, 5_000_000, 10_000_000, 50_000_000, 100_000_000), _rows),
    "uuids": Question("rows of the table, 1,000 changes of UUIDs", (100_000, 1_000_000, 3_000_000),
                      (1_000_000, 10_000_000, 100_000_000), uuid_keys.ask),
    "changes": Question("changes in the file, 300,000 rows", (1, 100, 1_000, 10_000, 100_000),
                        (1, 100, 10_000, 100_000, 1_000_000), _changes),
    "tables": Question("table folders", (1, 10, 100, 1_000), (1, 10, 100, 1_000, 10_000), _tables),
    "commits": Question("commits of the table, 100 changes each", (1, 10, 100, 1_000),
                        (1, 10, 100, 1_000, 5_000), _commits),
    "engines": Question("MiB decoded of one backlog, beside the limit of `auto`", (256, 1_024, 4_096),
                        (1_024, 4_096, 14_336, 18_432), engine_switch.ask),
    "columns": Question("columns, 20,000 rows, 1,000 changes", (5, 20, 100, 200), (5, 50, 100, 200, 500), _columns),
    "partial": Question("columns, 3 partial rows, versions", (125, 500, 2_000), (125, 500, 2_000), _partial_rows),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="benchmarks.growth", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="the large sizes")
    parser.add_argument("--only", action="append", default=[], choices=QUESTIONS, help="may be repeated")
    parser.add_argument("--sizes", help="comma separated, in place of those of the question")
    parser.add_argument("--limit", type=float, help="seconds for one question (180; 7200 with --full)")
    parser.add_argument("--into", type=Path, help="where points are written as they come")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # in the process of one question
    given = parser.parse_args()
    into = given.into or RESULTS / f"growth-{time.strftime('%Y%m%d-%H%M%S')}.json"
    if given.here:
        _ask(given.only[0], given.full, given.sizes, into)
        return
    into.parent.mkdir(parents=True, exist_ok=True)
    titles = {name: question.what for name, question in QUESTIONS.items()}
    into.write_text(
        json.dumps({"machine": machine(), "full": given.full, "titles": titles, "points": [], "figures": []})
    )
    limit = given.limit or (7200.0 if given.full else 180.0)
    for name in given.only or QUESTIONS:
        say(f"{name} …")
        words = [*(["--full"] if given.full else []), *(["--sizes", given.sizes] if given.sizes else [])]
        command = [sys.executable, "-m", "benchmarks.growth", "--here", "--only", name, "--into", str(into), *words]
        child = subprocess.Popen(command, cwd=REPOSITORY)
        try:
            if child.wait(limit):
                say(f"{name} ended early: exit code {child.returncode}; what it has measured is kept")
        except subprocess.TimeoutExpired:
            say(f"{name} was not done within {limit:.0f} s; what it has measured is kept")
        finally:
            process.end(child.pid)
            child.wait()
    say(f"results: {into}")


def _ask(name: str, full: bool, sizes: str | None, into: Path) -> None:
    process.hide_pandas()
    question = QUESTIONS[name]
    chosen = [int(size) for size in sizes.split(",")] if sizes else question.full if full else question.small
    with tempfile.TemporaryDirectory(prefix="lakemirror-growth-") as place:
        for found in question.ask(Path(place), chosen):
            say(f"  {found}")
            report = json.loads(into.read_text())
            kind = "points" if isinstance(found, Point) else "figures"
            report[kind].append({"question": name, **found._asdict()})
            into.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
