"""lakemirror in an object store beside delta-rs on the same store, in one run, and beside the local disk.

    python -m benchmarks.stores --minio PROGRAM            small sizes, some five minutes on an idle machine
    python -m benchmarks.stores --minio PROGRAM --full     large sizes, three rounds, some half an hour
    python -m benchmarks.stores --only backlog,latency
    python -m benchmarks.stores --page RESULTS.json        the page in docs/ from results

`PROGRAM`: MinIO's server; also MINIO_BINARY. Every request passes through one relay (`benchmarks/relay.py`), which
counts it and its bytes; copies by the store itself have none. Each peer runs in a process of its own, in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.object_stores import StoreServer, minio, minio_binary

from benchmarks import data as make
from benchmarks import digest
from benchmarks.figures import percentile
from benchmarks.relay import Relay, Request, relay
from benchmarks.report import DOCS, ROOT, markdown
from benchmarks.runner import REPOSITORY, machine, say
from benchmarks.scenarios.scenario import TABLE, Data, Size
from benchmarks.store_work import publish
from lakemirror.storage import place
from lakemirror.storage.connections import forget_all, give_options

RESULTS = Path(__file__).parent / "results"
PAGE = ROOT / DOCS / "benchmark-stores.md"
STORE, DISK = "store", "disk"
_LIMIT = 3600.0  # seconds for one peer
_QUIET = 2.0  # seconds without a request of the table, after which an apply is over

Row = dict[str, Any]


@dataclass(frozen=True)
class Question:
    """What is measured, at two sizes, and the goal."""

    title: str
    goal: str
    small: Size
    full: Size
    ask: Callable[[Bench, Size], Iterator[Row]]


class Bench:
    """A store with the relay in front of it, and a folder of the disk."""

    def __init__(self, server: StoreServer, front: Relay, scratch: Path) -> None:
        self.relay = front
        self.scratch = scratch
        self._server = server
        self._count = 0

    def address(self, where: str) -> str:
        """A new database."""
        self._count += 1
        if where == DISK:
            folder = self.scratch / f"database-{self._count}"
            (folder / "Files/LandingZone").mkdir(parents=True)
            return str(folder)
        address = f"{self._server.bucket()}/shop"
        give_options(address, self._server.options)  # this process goes to the server itself: it is not counted
        return address

    def command(self, act: str, peer: str, address: str, data: Data) -> tuple[list[str], dict[str, str]]:
        """What runs a peer, and its environment."""
        path = self.scratch / "data.json"
        data.write(path)
        environment = {**os.environ, "LAKEMIRROR_CACHE_DIR": str(self.scratch / "cache")}
        if "://" in address:
            environment |= {**self._server.through(self.relay.url), "BENCHMARK_RELAY": self.relay.url}
        return [sys.executable, "-m", "benchmarks.store_work", act, peer, address, str(path)], environment

    def run(self, act: str, peer: str, address: str, data: Data) -> Row:
        """The figures of a peer in a process of its own, or `failed`."""
        words, environment = self.command(act, peer, address, data)
        try:
            done = subprocess.run(
                words, env=environment, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, timeout=_LIMIT
            )
        except subprocess.TimeoutExpired:
            return {"failed": f"not done within {_LIMIT:.0f} s"}
        return _last(done.stdout)

    @contextmanager
    def following(self, peer: str, address: str, data: Data) -> Iterator[None]:
        """A peer that runs and applies what comes, until the block ends."""
        words, environment = self.command("follow", peer, address, data)
        process = subprocess.Popen(
            words, env=environment, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None and process.stdin is not None
        try:
            process.stdout.readline()
            yield
            process.communicate("stop\n", timeout=60)
        finally:
            process.kill()
            process.wait()

    def is_right(self, address: str, data: Data) -> bool:
        """True where the table holds what it should, by DuckDB on a copy on the disk."""
        table = place(address) / "Tables" / TABLE
        local = table
        if not isinstance(table, Path):
            local = Path(tempfile.mkdtemp(dir=self.scratch))
            for each in table.below():
                file = local / each.key[len(table.key) + 1 :]
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(each.read_bytes())
        assert isinstance(local, Path)
        row = digest.duckdb_with("delta").execute(digest.sql(f"delta_scan('{local}')")).fetchone()
        return digest.numbers(row) == list(data.expected)


def backlog(bench: Bench, size: Size) -> Iterator[Row]:
    """A backlog of change files on a loaded table."""
    data = _upserts(bench.scratch, size)
    for peer, where in (("lakemirror", STORE), ("delta-rs", STORE), ("lakemirror", DISK), ("delta-rs", DISK)):
        address = bench.address(where)
        found = bench.run("backlog", peer, address, data)
        if "failed" not in found:
            found["right"] = bench.is_right(address, data)
        yield {"peer": peer, "where": where, **found}


def load(bench: Bench, size: Size) -> Iterator[Row]:
    """The first load of a table; copies of the same objects."""
    files = make.load(bench.scratch / f"load-{size.rows}", size.rows)
    data = Data(size, files, expected=digest.expected(files, ()))
    for peer, where in (
        ("lakemirror", STORE), ("copied through this machine", STORE), ("copied by the store", STORE),
        ("lakemirror, trust_footers", STORE), ("delta-rs", STORE),
        ("lakemirror", DISK), ("lakemirror, trust_footers", DISK), ("copied through this machine", DISK),
    ):  # fmt: skip
        address = bench.address(where)
        found = bench.run("load", peer, address, data)
        if "failed" not in found and not peer.startswith("copied"):
            found["right"] = bench.is_right(address, data)
        yield {"peer": peer, "where": where, **found}


def latency(bench: Bench, size: Size) -> Iterator[Row]:
    """From the end of the put of one small file to its commit, with a delay on each request of the engine."""
    data = _upserts(bench.scratch, size, make.recent)
    for peer, where in (("lakemirror", STORE), ("delta-rs", STORE), ("lakemirror", DISK)):
        address = bench.address(where)
        prepared = bench.run("prepared", peer, address, data)
        if "failed" in prepared:
            yield {"peer": peer, "where": where, **prepared}
            continue
        with bench.following(peer, address, data):
            time.sleep(8.0)
            if where == STORE:
                bench.relay.delay(10)
            try:
                waits, counts = _followed(bench, address, data, where, first=_next_version(address))
            finally:
                if where == STORE:
                    bench.relay.delay(0)
        row = {"peer": peer, "where": where, "seconds": percentile(waits, 0.95), "p50": statistics.median(waits)}
        if counts:
            row |= {
                "requests": statistics.median(asked for asked, _ in counts),
                "touched": statistics.median(touched for _, touched in counts),
                "most over touched": max(asked - touched for asked, touched in counts),
                "median over touched": statistics.median(asked - touched for asked, touched in counts),
            }
        yield {**row, "right": bench.is_right(address, data)}


def starts(bench: Bench, size: Size) -> Iterator[Row]:
    """A new process on many tables, with 10 ms on each request: nothing is new, or one file in each table."""
    changes = bench.scratch / "small-changes"
    if not changes.exists():
        make.appends(changes, 2, size.changes)
    files = sorted(changes.iterdir())
    address = bench.address(STORE)
    data = Data(Size(tables=size.tables, files=1), changes=files)
    bench.run("tables_loaded", "lakemirror", address, data)
    more = Data(Size(tables=size.tables, files=2), changes=files)
    cache = bench.scratch / "cache"
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


QUESTIONS: dict[str, Question] = {
    "backlog": Question(
        "Backlog of changes", "at least 20 times as fast as delta-rs",
        Size(500_000, 5, 5_000), Size(5_000_000, 20, 10_000), backlog,
    ),
    "latency": Question(
        "One small file on a running engine, 10 ms added to each request",
        "95 % within 0.5 s from put to commit; at most 8 requests beside the files touched",
        Size(200_000, 15, 500, pause=2.5), Size(1_000_000, 40, 500, pause=2.0), latency,
    ),
    "load": Question(
        "First load", "at most 1.5 times as long as copying the objects", Size(1_000_000), Size(10_000_000), load
    ),
    "starts": Question(
        "Start of an engine on many tables, 10 ms added to each request", "none",
        Size(0, 1, 100, tables=50), Size(0, 1, 100, tables=200), starts,
    ),
}  # fmt: skip


def run(program: str, only: Sequence[str], rounds: int, *, full: bool, scratch: Path) -> dict[str, Any]:
    """The report: every row of every question, with the figures of its rounds."""
    report: dict[str, Any] = {"machine": machine(), "load": round(os.getloadavg()[0], 1), "questions": {}}
    with minio(program) as server:
        target = urlsplit(server.endpoint)
        with relay(target.hostname or "", target.port or 80) as front:
            bench = Bench(server, front, scratch)
            for name in only:
                question = QUESTIONS[name]
                size = question.full if full else question.small
                shown = {"title": question.title, "goal": question.goal, "size": str(size), "rows": []}
                report["questions"][name] = shown
                for number in range(rounds):
                    for row in question.ask(bench, size):
                        said = {key: value for key, value in row.items() if key != "asked"}
                        say(f"{name}, round {number + 1}: {json.dumps(said)}")
                        shown["rows"].append(row)
                forget_all()
    return report


def rows_of(question: Mapping[str, Any]) -> list[Row]:
    """One row of medians for each peer and place, in the order in which they ran, with ratios."""
    order = dict.fromkeys((row["peer"], row["where"]) for row in question["rows"])
    found: dict[tuple[str, str], Row] = {}
    for key in order:
        rounds = [row for row in question["rows"] if (row["peer"], row["where"]) == key]
        failed = next((row["failed"] for row in rounds if "failed" in row), None)
        names = dict.fromkeys(name for row in rounds for name, value in row.items() if isinstance(value, float | int))
        middle = {n: statistics.median(row[n] for row in rounds if n in row) for n in names if n != "right"}
        verdict = failed or ("WRONG" if any(row.get("right") is False for row in rounds) else _verdict(rounds))
        found[key] = {"peer": key[0], "where": key[1], "verdict": verdict, **middle}
    ours = found.get(("lakemirror", STORE), {}).get("seconds")
    for (peer, where), row in found.items():
        disk = found.get((peer, DISK), {}).get("seconds")
        if row.get("seconds"):
            row["ratio"] = row["seconds"] / ours if ours else None
            row["to disk"] = row["seconds"] / disk if disk and where == STORE else None
    return list(found.values())


def page(report: Mapping[str, Any]) -> str:
    """The results as a Markdown page."""
    lines = [
        "# Benchmark in an object store",
        "",
        "Made by `python -m benchmarks.stores --page` from the results of `python -m benchmarks.stores`; not edited by",
        "hand.",
        "",
        f"Machine: {report['machine']}; MinIO runs on it, too.",
        "",
        f"Load average when it began: {report['load']}. Above 1 other work was going on, and seconds say little;",
        "requests and bytes are the same.",
        "",
        "Seconds are medians over the rounds. *ratio*: times what lakemirror takes in the store. *to disk*: times what",
        "the same peer takes on the local disk. *requests*, *sent*, *received*: from the peer to the store and back,",
        "counted by a relay that all requests of all peers pass. *until the commit*: readers see the rows; then",
        "applied files are set aside. *files touched*: change files, data files, vectors. *CPU*: of the peer. *table*:",
        "whether it holds what DuckDB computes from the same files.",
    ]
    for question in report["questions"].values():
        rows = rows_of(question)
        titles = ["peer", "where", *(title for title, name, _ in _COLUMNS if any(row.get(name) for row in rows))]
        shown = [
            [
                row["peer"],
                row["where"],
                *(_text(row.get(name), form) for title, name, form in _COLUMNS if title in titles),
            ]
            for row in rows
        ]
        lines += ["", f"## {question['title']}", "", f"{question['size']}. Goal: {question['goal']}.", ""]
        lines += markdown([*titles, "table"], [[*line, row["verdict"]] for line, row in zip(shown, rows, strict=True)])
    return "\n".join(lines) + "\n"


_COLUMNS = (
    ("seconds", "seconds", ".2f"),
    ("p50, s", "p50", ".2f"),
    ("ratio", "ratio", ".1f"),
    ("to disk", "to disk", ".1f"),
    ("until the commit, s", "until commit", ".2f"),
    ("requests", "requests", ",.0f"),
    ("files touched", "touched", ",.0f"),
    ("requests beside them", "median over touched", ",.0f"),
    ("at most", "most over touched", ",.0f"),
    ("sent, MB", "sent", "MB"),
    ("received, MB", "received", "MB"),
    ("CPU, s", "cpu", ".2f"),
)


def _text(value: float | None, form: str) -> str:
    if value is None:
        return "–"
    return f"{value / 1e6:,.1f}" if form == "MB" else format(value, form)


def _verdict(rounds: Sequence[Row]) -> str:
    return "same" if any(row.get("right") for row in rounds) else "–"


def _upserts(scratch: Path, size: Size, keys: make.Keys = make.uniform) -> Data:
    load_files = make.load(scratch / f"load-{size.rows}", size.rows)
    folder = scratch / f"changes-{size.rows}-{size.files}-{size.changes}"
    if not folder.exists():
        make.upserts(folder, size.rows, size.files, size.changes, keys)
    changes = sorted(folder.iterdir())
    return Data(size, load_files, changes, expected=digest.expected(load_files, changes))


def _followed(
    bench: Bench, address: str, data: Data, where: str, first: int
) -> tuple[list[float], list[tuple[int, int]]]:
    """Seconds of every file but the first few; of each the requests that belong to its table, and the files touched."""
    waits: list[float] = []
    counts: list[tuple[int, int]] = []
    number = len(data.load) + 1
    for version, file in enumerate(data.changes, first):
        if where == STORE:
            bench.relay.requests()
        publish(address, TABLE, [file], number)
        put = time.monotonic()
        asked: list[Request] = []
        commit = place(address) / "Tables" / TABLE / "_delta_log" / f"{version:020}.json"
        done = 0.0
        while time.monotonic() < put + 60 and not done:
            time.sleep(0.005 if where == DISK else 0.1)
            if where == DISK:
                done = time.monotonic() if commit.exists() else 0.0
            else:
                asked += bench.relay.requests()
                done = next(
                    (e.answered for e in asked if e.method == "PUT" and _key(e).endswith(f"_delta_log/{commit.name}")),
                    0.0,
                )
        if not done:
            raise SystemExit(f"{commit} does not come")
        waits.append(done - put)
        time.sleep(max(data.size.pause, _QUIET))
        if where == STORE:
            asked += bench.relay.requests()
            of_table = [each for each in asked if not _OF_EACH_PASS.search(_key(each))]
            counts.append((len(of_table), len(_touched(of_table))))
        number += 1
    few = max(1, len(waits) // 5)
    return waits[few:], counts[few:]


_OF_EACH_PASS = re.compile(
    r"prefix=shop/Files/LandingZone/($|&)|prefix=shop/Files/Monitoring|replicator.json|mirroring.json"
)
_DATA = re.compile(r"(?:part-|deletion_vector_|cdc-|\d{20}\.parquet)[^/?]*$")


def _touched(asked: Sequence[Request]) -> set[str]:
    """The change files, data files and vectors among the requests; one that is set aside counts once."""
    return {
        key.rpartition("/")[2]
        for key in (_key(each).partition("?")[0] for each in asked)
        if _DATA.search(key) and "/_delta_log/" not in key
    }


def _key(request: Request) -> str:
    return unquote(request.path)


def _next_version(address: str) -> int:
    log = place(address) / "Tables" / TABLE / "_delta_log"
    return 1 + max(int(each.name[:20]) for each in log.glob("*.json") if each.name[:20].isdigit())


def _last(text: str) -> Row:
    lines = [line for line in text.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {"failed": "it said nothing"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minio", default=minio_binary(), help="MinIO's program")
    parser.add_argument("--only", default=",".join(QUESTIONS), help="some of the questions")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--rounds", type=int, help="1; 3 with --full")
    parser.add_argument("--page", type=Path, help="makes the page from these results and runs nothing")
    given = parser.parse_args()
    if given.page:
        PAGE.write_text(page(json.loads(given.page.read_text())))
        return
    if not Path(given.minio).is_file():
        say("left out: neither --minio nor MINIO_BINARY names MinIO's program")
        return
    with tempfile.TemporaryDirectory(prefix="lakemirror-bench-") as scratch:
        rounds = given.rounds or (3 if given.full else 1)
        report = run(given.minio, given.only.split(","), rounds, full=given.full, scratch=Path(scratch))
    RESULTS.mkdir(exist_ok=True)
    into = RESULTS / f"stores-{'full' if given.full else 'small'}-{time.strftime('%Y%m%d-%H%M%S')}.json"
    into.write_text(json.dumps(report, indent=1))
    print(page(report))
    say(f"results: {into}")


if __name__ == "__main__":
    main()
