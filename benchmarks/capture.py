"""A PostgreSQL database captured into Delta tables, each figure beside its peer in the same run.

python -m benchmarks.capture            10 million rows, a backlog of 1 million changes, a minute at 1,000 a second
python -m benchmarks.capture --small    a tenth of that

The server is this program's own, on loopback, with fsync.

`load`: the rows of pgbench_accounts to change files, beside COPY by psql to nowhere; medians of rounds in turn.
`stream`: a backlog of pgbench's transactions, made while its readers are halted, until all of it is in the Delta tables
(`capture` and `run` side by side), beside Debezium's engine alone, whose handler only writes texts to a file.
`rate`: seconds from just before the commit in the source to the commit in Delta, at a fixed rate of changes.
`idle`: shares of a core. `poll`: the same as `rate` by a query each second for what is newer than a watermark.

Memory is resident, of a process with its JVM. Prints one JSON object a part, with the load average.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from tests.postgres import BINARIES, Postgres, execute

from benchmarks import process
from benchmarks.figures import percentile
from benchmarks.runner import machine, say

KEYS = {"pgbench_accounts": "aid", "pgbench_tellers": "tid", "pgbench_branches": "bid"}
TABLES = (*KEYS, "pgbench_history")
PER_TRANSACTION = len(TABLES)
TICKS = "ticks"
END = "the end"

_ROWS_OF_SCALE = 100_000
SERVER = "fsync = on\nshared_buffers = 256MB\nmax_wal_size = 8GB\nwal_sender_timeout = 0\nautovacuum = off"
_TICK = """\\set id random(1, {0})
insert into ticks values (:id, clock_timestamp()) on conflict (id) do update set at = excluded.at;
"""


@dataclass(frozen=True)
class Size:
    """How much is measured. `ticks`: rows of the table that gets `rate` changes a second, for `seconds`."""

    scale: int
    transactions: int
    ticks: int
    seconds: int
    rate: int = 1_000
    rounds: int = 3
    idle: float = 20.0


SMALL = Size(10, 12_500, 100_000, 20, rounds=1)
FULL = Size(100, 250_000, 1_000_000, 60)


class Running:
    """A process whose output goes to a file."""

    def __init__(self, log: Path, *command: str) -> None:
        self.log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen([sys.executable, "-m", *command], stdout=output, stderr=output)
        self.pid = self._process.pid

    def wait(self, condition: Callable[[], bool], what: str, seconds: float = 300.0) -> float:
        """Waits until it is so; returns that moment. RuntimeError with what the process said."""
        end = time.monotonic() + seconds
        while not condition():
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{what}: not so: {self.log.read_text(errors='replace')}")
            time.sleep(0.01)
        return time.monotonic()

    def said(self, text: str) -> bool:
        return text in self.log.read_text(errors="replace")

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self) -> None:
        if self._process.poll() is None:
            self.send(signal.SIGCONT)
            self.send(signal.SIGINT)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            process.end(self.pid)

    def finish(self) -> None:
        if code := self._process.wait(600):
            raise RuntimeError(f"exit code {code}: {self.log.read_text(errors='replace')}")

    def cpu(self) -> float:
        """Processor seconds of it and all below it."""
        seen = process.processes()
        return sum(seen[pid].cpu for pid in process.family(self.pid, seen))


class Bench:
    """One server, one database, one folder."""

    def __init__(self, server: Postgres, place: Path, size: Size) -> None:
        self.url, self.place, self.size = server.database("bench"), place, size
        self.port = str(server.port)
        self.db = place / "lake"
        self.pgbench("-i", "-q", "-s", str(size.scale))
        execute(
            self.url,
            f"create table {TICKS} (id int primary key, at timestamptz)",
            f"insert into {TICKS} select n from generate_series(1, {size.ticks}) n",
            "alter table pgbench_history replica identity full",
            "vacuum analyze",
        )

    def pgbench(self, *options: str) -> str:
        assert BINARIES is not None
        command = [str(BINARIES / "pgbench"), "-h", "127.0.0.1", "-p", self.port, "-U", "shop", *options, "bench"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def lakemirror(self, name: str, *options: str) -> Running:
        return Running(self.place / f"{name}.log", "lakemirror.cli", *options)

    # load

    def load(self) -> dict[str, Any]:
        """Rows a second of the load, and of COPY to nowhere, in turn."""
        rows = self.size.scale * _ROWS_OF_SCALE
        found: dict[str, list[float]] = {"capture": [], "commandSeconds": [], "copy": [], "memoryMiB": []}
        for number in range(self.size.rounds):
            begun = time.monotonic()
            copy = [str(BINARIES / "psql"), self.url, "-c", r"\copy pgbench_accounts to /dev/null"]  # type: ignore[operator]
            subprocess.run(copy, check=True, capture_output=True)
            found["copy"].append(rows / (time.monotonic() - begun))
            name = f"load{number}"
            given = ("capture", str(self.place / name), "--from", self.url, "--name", name)
            begun = time.monotonic()
            running = self.lakemirror(name, *given, "--tables", "public.pgbench_accounts", "--once")
            with process.Peak(running.pid) as peak:
                zone = self.place / name / "Files/LandingZone/_capture.json"
                start = running.wait(zone.exists, "the load begins")
                end = running.wait(lambda run=running: run.said("rows loaded"), "the load ends")  # type: ignore[misc]
                running.finish()
            found["commandSeconds"].append(time.monotonic() - begun)
            found["capture"].append(rows / (end - start))
            found["memoryMiB"].append(peak.bytes / 2**20)
            self.lakemirror("drop", "capture", "drop", *given[1:], "--yes").finish()
        middle = {name: statistics.median(values) for name, values in found.items()}
        return {
            "rows": rows, "rowsPerSecond": {"capture": round(middle["capture"]), "psql COPY": round(middle["copy"])},
            "commandSeconds": round(middle["commandSeconds"], 2), "memoryMiB": round(max(found["memoryMiB"])),
        }  # fmt: skip

    # stream

    @contextlib.contextmanager
    def following(self) -> Iterator[tuple[Running, Running]]:
        """`capture` and `run`, once everything is loaded, applied, and followed."""
        options = ["--from", self.url, "--insert-only", "public.pgbench_history"]
        with contextlib.ExitStack() as open_now:
            capture = self.lakemirror("capture", "capture", str(self.db), *options)
            open_now.callback(capture.end)
            capture.wait(lambda: capture.said("following"), "tables are followed")
            run = self.lakemirror("run", "run", str(self.db), "--engine", "local")
            open_now.callback(run.end)
            execute(self.url, f"insert into {TICKS} values (0, clock_timestamp())")
            before = self.position("before the stream")
            run.wait(lambda: self.applied((TICKS,), before), "the load is applied")
            yield capture, run

    def stream(self, capture: Running) -> dict[str, Any]:
        """Changes a second of one backlog, to the Delta tables and by Debezium alone."""
        lines = self.place / "debezium.jsonl"
        alone = Running(self.place / "alone.log", "benchmarks.debezium_alone", str(lines), self.url, *TABLES)
        try:
            alone.wait(lambda: alone.said("ready"), "Debezium alone begins")
            execute(self.url, "insert into pgbench_history (filler) values ('begun')")
            alone.wait(lambda: _ends_with(lines, "begun"), "Debezium alone follows")
            self.position("before the backlog")
            for each in (capture, alone):
                each.send(signal.SIGSTOP)
            done = self.pgbench("-n", "-c", "4", "-t", str(self.size.transactions // 4))
            say(next(line for line in done.splitlines() if line.startswith("tps")))
            position = self.position(END)
            changes = self.size.transactions // 4 * 4 * PER_TRANSACTION
            with process.Peak(capture.pid) as peak:
                begun = _released(capture)
                cpu = capture.cpu()
                landed = capture.wait(lambda: self._landed(TABLES, position), "the backlog is in files") - begun
                cpu = capture.cpu() - cpu
                applied = capture.wait(lambda: self.applied(TABLES, position), "the backlog is in Delta") - begun
            begun = _released(alone)
            peer = alone.wait(lambda: _ends_with(lines, END), "Debezium alone ends") - begun
        finally:
            alone.end()
        return {
            "changes": changes,
            "changesPerSecond": {
                "to Delta": round(changes / applied), "to change files": round(changes / landed),
                "Debezium alone": round(changes / peer),
            },
            "captureCpuMicrosecondsPerChange": round(cpu / changes * 1e6, 1), "memoryMiB": round(peak.bytes / 2**20),
        }  # fmt: skip

    def position(self, text: str) -> int:
        """A position in the log before one more transaction in each of the tables."""
        row = execute(self.url, "select (pg_current_wal_insert_lsn() - '0/0')::bigint")[0]
        changes = [f"update {table} set filler = '{text}' where {key} = 1" for table, key in KEYS.items()]
        changes += [f"insert into pgbench_history (filler) values ('{text}')"]
        execute(self.url, "; ".join([*changes, f"update {TICKS} set at = at where id = 0"]))
        return int(row[0])

    def newest(self, table: str) -> tuple[int, int]:
        """The number of a table's newest change file, and the position in its footer."""
        folder = self.db / "Files/LandingZone/public.schema" / table
        while True:
            newest = max(folder.glob("0*.parquet"), default=None)
            with contextlib.suppress(FileNotFoundError):
                if newest is None:
                    return 0, 0
                said = json.loads(pq.read_metadata(newest).metadata[b"lakemirror.capture"])
                return int(newest.stem), int(said["last"]["lsn"])

    def _landed(self, tables: tuple[str, ...], position: int) -> bool:
        return all(self.newest(table)[1] > position for table in tables)

    def applied(self, tables: tuple[str, ...], position: int) -> bool:
        from lakemirror.mirror.table_log import read_table_log

        for table in tables:
            number, landed = self.newest(table)
            log = read_table_log(str(self.db / "Tables/public" / table)) if landed > position else None
            if log is None or log.position is None or log.position.number < number:
                return False
        return True

    # rate

    def rate(self, capture: Running) -> dict[str, Any]:
        """Seconds from the source to Delta at a fixed rate of changes, by the log and by a watermark."""
        with process.Peak(capture.pid) as peak:
            begun, cpu = time.monotonic(), capture.cpu()
            ours = self._ticks(self.db / "Tables/public" / TICKS)
            share = (capture.cpu() - cpu) / (time.monotonic() - begun)
        return ours | {"captureShareOfACore": round(share, 3), "memoryMiB": round(peak.bytes / 2**20)}

    def polled(self) -> dict[str, Any]:
        """The same by a query each second for what is newer than a watermark."""
        execute(self.url, f"create index on {TICKS} (at)")
        query = f"select id, at from {TICKS} where at is not null"
        given = ["--from-sql", self.url, "--query", query, "--keys", "id", "--watermark", "at", "--every", "1s"]
        poll = self.lakemirror("poll", "publish", str(self.db), "polled", *given)
        try:
            poll.wait((self.db / "Tables/polled/_delta_log").exists, "the first poll")
            return self._ticks(self.db / "Tables/polled")
        finally:
            poll.end()

    def _ticks(self, table: Path) -> dict[str, Any]:
        script = self.place / "tick.sql"
        script.write_text(_TICK.format(2 * self.size.ticks))
        options = ["-n", "-c", "4", "-R", str(self.size.rate), "-f", str(script)]
        self.pgbench(*options, "-T", "5")
        since = time.time()
        done = self.pgbench(*options, "-T", str(self.size.seconds))
        made = next(line.split() for line in done.splitlines() if line.startswith("tps"))
        time.sleep(5.0)
        return {"changesPerSecond": round(float(made[2]))} | _lags(_commits(table, since), since)

    def idle(self, *running: Running) -> list[float]:
        """Shares of a core while nothing happens."""
        time.sleep(5.0)
        before, begun = [each.cpu() for each in running], time.monotonic()
        time.sleep(self.size.idle)
        seconds = time.monotonic() - begun
        return [round((each.cpu() - cpu) / seconds, 4) for each, cpu in zip(running, before, strict=True)]


def _released(running: Running) -> float:
    running.send(signal.SIGCONT)
    return time.monotonic()


def _ends_with(file: Path, text: str) -> bool:
    """True if the text is near the end of the file."""
    if not file.exists():
        return False
    with file.open("rb") as content:
        content.seek(max(0, file.stat().st_size - 65_536))
        return text.encode() in content.read()


def _commits(table: Path, since: float) -> Iterator[tuple[float, Path]]:
    """Each data file that was added since then, with the moment at which its commit was there."""
    for log in sorted((table / "_delta_log").glob("0*.json")):
        moment = log.stat().st_ctime
        if moment < since:
            continue
        for line in log.read_text().splitlines():
            added = json.loads(line).get("add")
            if added and added["dataChange"] and (table / unquote(added["path"])).exists():
                yield moment, table / unquote(added["path"])


def _lags(files: Iterable[tuple[float, Path]], since: float) -> dict[str, Any]:
    """Seconds from `at` to the first commit that has the change; of the changes since then."""
    parts = []
    for moment, file in files:
        rows = pq.ParquetFile(file).read(columns=["id", "at"])
        parts.append(rows.append_column("moment", pa.array([moment] * rows.num_rows, pa.float64())))
    found = pa.concat_tables(parts).group_by(["id", "at"]).aggregate([("moment", "min")])
    at = found["at"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    moments = zip(at, found["moment_min"].to_pylist(), strict=True)
    lags = [moment - micros / 1e6 for micros, moment in moments if micros is not None and micros >= since * 1e6]
    shown = (("p50", 0.5), ("p95", 0.95), ("most", 1.0))
    return {"changes": len(lags)} | {name: round(percentile(lags, share), 3) for name, share in shown}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="benchmarks.capture", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", action="append", choices=["load", "stream", "rate", "idle", "poll"])
    given = parser.parse_args()
    process.hide_pandas()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    server = Postgres(SERVER)
    try:
        with tempfile.TemporaryDirectory(prefix="lakemirror-capture-") as place:
            measured(Bench(server, Path(place), SMALL if given.small else FULL), set(given.only or ()))
    finally:
        server.close()


def measured(bench: Bench, only: set[str]) -> None:
    """Prints one JSON object a part, each with the load average at its end."""

    def show(name: str, figures: Any) -> None:
        print(json.dumps({name: figures, "loadAverage": [round(each, 1) for each in os.getloadavg()]}), flush=True)

    def wanted(name: str) -> bool:
        return not only or name in only

    say(machine())
    if wanted("load"):
        show("load", bench.load())
    if only and only <= {"load"}:
        return
    with bench.following() as (capture, run):
        if wanted("stream"):
            show("stream", bench.stream(capture))
        if wanted("rate"):
            show("rate", bench.rate(capture))
        if wanted("idle"):
            show("idle", dict(zip(("capture", "run"), bench.idle(capture, run), strict=True)))
        if wanted("poll"):
            capture.end()
            show("poll", bench.polled())


if __name__ == "__main__":
    main()
