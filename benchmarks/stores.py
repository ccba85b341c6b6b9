"""lakemirror in an object store beside delta-rs on the same store, in one run, and beside the local disk.

    python -m benchmarks.stores --minio PROGRAM            small sizes, some five minutes on an idle machine
    python -m benchmarks.stores --minio PROGRAM --full     large sizes, several rounds, some 20 minutes
    python -m benchmarks.stores --only backlog,latency
    python -m benchmarks.stores --page RESULTS.json        the page in docs/ from results

`PROGRAM`: MinIO's server; also MINIO_BINARY. Every request passes through one relay (`benchmarks/relay.py`), which
counts it and its bytes; copies by the store itself have none. Each peer runs in a process of its own, in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.object_stores import minio, minio_binary

from benchmarks import data as make
from benchmarks import digest
from benchmarks.figures import percentile
from benchmarks.relay import relay
from benchmarks.report import DOCS, ROOT
from benchmarks.runner import machine, say
from benchmarks.scenarios.scenario import Data, Size
from benchmarks.store_bench import DISK, STORE, Bench, Row, followed
from benchmarks.store_page import COPY, page
from lakemirror.storage.connections import forget_all

RESULTS = Path(__file__).parent / "results"
PAGE = ROOT / DOCS / "benchmark-stores.md"
_FOLLOWED_BY_DELTA_RS = 12  # change files: it falls behind, and each takes it seconds


@dataclass(frozen=True)
class Question:
    """What is measured, at two sizes. `rounds`: of the full size, so that all questions end within 20 minutes."""

    title: str
    small: Size
    full: Size
    rounds: int
    ask: Callable[[Bench, Size], Iterator[Row]]


def backlog(bench: Bench, size: Size) -> Iterator[Row]:
    """A backlog of change files on a loaded table."""
    data = _upserts(bench.scratch, size)
    for peer, where in (("lakemirror", STORE), ("delta-rs", STORE), ("lakemirror", DISK), ("delta-rs", DISK)):
        with bench.database(where) as address:
            found = bench.run("backlog", peer, address, data)
            if "failed" not in found:
                found["right"] = bench.is_right(address, data)
        yield {"peer": peer, "where": where, **found}


def load(bench: Bench, size: Size) -> Iterator[Row]:
    """The first load of a table; copies of the same objects."""
    files = make.load(bench.scratch / f"load-{size.rows}", size.rows)
    data = Data(size, files, expected=digest.expected(files, ()))
    for peer, where in (
        ("lakemirror", STORE), (COPY, STORE), ("copied by the store", STORE),
        ("lakemirror, trust_footers", STORE), ("delta-rs", STORE),
        ("lakemirror", DISK), ("lakemirror, trust_footers", DISK), (COPY, DISK),
    ):  # fmt: skip
        with bench.database(where) as address:
            found = bench.run("load", peer, address, data)
            if "failed" not in found and not peer.startswith("copied"):
                found["right"] = bench.is_right(address, data)
        yield {"peer": peer, "where": where, **found}


def latency(bench: Bench, size: Size) -> Iterator[Row]:
    """From the end of the put of one small file to its commit, with a delay on each request of the engine."""
    all_files = _upserts(bench.scratch, size, make.recent)
    few = all_files.changes[:_FOLLOWED_BY_DELTA_RS]
    some_files = Data(size, all_files.load, few, expected=digest.expected(all_files.load, few))
    for peer, where in (("lakemirror", STORE), ("delta-rs", STORE), ("lakemirror", DISK)):
        data = some_files if peer == "delta-rs" else all_files
        with bench.database(where) as address:
            yield {"peer": peer, "where": where, **_waits(bench, peer, where, address, data)}


def _waits(bench: Bench, peer: str, where: str, address: str, data: Data) -> Row:
    """Percentiles of the seconds of each file, and its requests; or `failed`."""
    prepared = bench.run("prepared", peer, address, data)
    if "failed" in prepared:
        return prepared
    with bench.following(peer, address, data):
        time.sleep(8.0)
        if where == STORE:
            bench.relay.delay(10)
        try:
            waits, counts = followed(bench, address, data, where)
        finally:
            if where == STORE:
                bench.relay.delay(0)
    row = {"seconds": percentile(waits, 0.95), "p50": statistics.median(waits)}
    if counts:
        row |= {
            "requests": statistics.median(asked for asked, _ in counts),
            "touched": statistics.median(touched for _, touched in counts),
            "most over touched": max(asked - touched for asked, touched in counts),
            "median over touched": statistics.median(asked - touched for asked, touched in counts),
        }
    return {**row, "right": bench.is_right(address, data)}


def starts(bench: Bench, size: Size) -> Iterator[Row]:
    """A new process on many tables, with 10 ms on each request: nothing is new, or one file in each table."""
    changes = bench.scratch / "small-changes"
    if not changes.exists():
        make.appends(changes, 2, size.changes)
    files = sorted(changes.iterdir())
    data = Data(Size(tables=size.tables, files=1), changes=files)
    more = Data(Size(tables=size.tables, files=2), changes=files)
    cache = bench.scratch / "cache"
    with bench.database(STORE) as address:
        bench.run("tables_loaded", "lakemirror", address, data)
        for peer, work, what in (
            ("lakemirror", data, "nothing is new, with the cache on disk"),
            ("lakemirror", data, "nothing is new, without a cache on disk"),
            ("delta-rs", data, "each table opened"),
            ("lakemirror", more, "a new file in each table"),
        ):
            if "without" in what and cache.exists():
                cache.rename(bench.scratch / f"cache-{time.monotonic_ns()}")
            bench.relay.delay(10)
            try:
                yield {"peer": f"{peer}: {what}", "where": STORE, **bench.run("start", peer, address, work)}
            finally:
                bench.relay.delay(0)


def _upserts(scratch: Path, size: Size, keys: make.Keys = make.uniform) -> Data:
    load_files = make.load(scratch / f"load-{size.rows}", size.rows)
    folder = scratch / f"changes-{size.rows}-{size.files}-{size.changes}"
    if not folder.exists():
        make.upserts(folder, size.rows, size.files, size.changes, keys)
    changes = sorted(folder.iterdir())
    return Data(size, load_files, changes, expected=digest.expected(load_files, changes))


QUESTIONS: dict[str, Question] = {
    "backlog": Question("Backlog of changes", Size(500_000, 5, 5_000), Size(5_000_000, 20, 10_000), 2, backlog),
    "latency": Question(
        "One small file on a running engine, 10 ms added to each request",
        Size(200_000, 15, 500, pause=2.5), Size(1_000_000, 40, 500, pause=2.0), 1, latency,
    ),
    "load": Question("First load", Size(1_000_000), Size(10_000_000), 5, load),
    "starts": Question(
        "Start of an engine on many tables, 10 ms added to each request",
        Size(0, 1, 100, tables=50), Size(0, 1, 100, tables=200), 1, starts,
    ),
}  # fmt: skip


def run(program: str, only: Sequence[str], rounds: int | None, *, full: bool, scratch: Path) -> dict[str, Any]:
    """The report: every row of every question, with the figures of its rounds."""
    report: dict[str, Any] = {"machine": machine(), "load": round(os.getloadavg()[0], 1), "questions": {}}
    with minio(program) as server:
        target = urlsplit(server.endpoint)
        with relay(target.hostname or "", target.port or 80) as front:
            bench = Bench(server, front, scratch)
            for name in only:
                question = QUESTIONS[name]
                size = question.full if full else question.small
                shown = {"title": question.title, "size": str(size), "rows": []}
                report["questions"][name] = shown
                for number in range(1, 1 + (rounds or (question.rounds if full else 1))):
                    for row in question.ask(bench, size):
                        said = {key: value for key, value in row.items() if key != "asked"}
                        say(f"{name}, round {number}: {json.dumps(said)}")
                        shown["rows"].append({**row, "round": number})
                forget_all()
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minio", default=minio_binary(), help="MinIO's program")
    parser.add_argument("--only", default=",".join(QUESTIONS), help="some of the questions")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--rounds", type=int, help="1; with --full as many as each question has")
    parser.add_argument("--page", type=Path, help="makes the page from these results and runs nothing")
    given = parser.parse_args()
    if given.page:
        PAGE.write_text(page(json.loads(given.page.read_text())))
        return
    if not Path(given.minio).is_file():
        say("left out: neither --minio nor MINIO_BINARY names MinIO's program")
        return
    with tempfile.TemporaryDirectory(prefix="lakemirror-bench-") as scratch:
        report = run(given.minio, given.only.split(","), given.rounds, full=given.full, scratch=Path(scratch))
    RESULTS.mkdir(exist_ok=True)
    into = RESULTS / f"stores-{'full' if given.full else 'small'}-{time.strftime('%Y%m%d-%H%M%S')}.json"
    into.write_text(json.dumps(report, indent=1))
    print(page(report))
    say(f"results: {into}")


if __name__ == "__main__":
    main()
