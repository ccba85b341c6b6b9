"""A PostgreSQL capture and its mirror for a long time at a low rate: memory, lag, log kept back, files that wait.

python -m benchmarks.capture_soak --minutes 60 --rate 20

pgbench makes `--rate` transactions a second, four changes each. Twice a minute a transaction more is followed to the
Delta tables. Prints one JSON object each time, and one at the end; exit code 1 where the sums of the tables are then
not those of the source.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from tests.postgres import BINARIES, Postgres, execute
from tests.table_rows import read_table

from benchmarks import process
from benchmarks.capture import SERVER, SMALL, TABLES, Bench, Running
from benchmarks.figures import percentile
from benchmarks.runner import machine, say
from lakemirror.mirror.table_log import read_table_log

SUMS = {"pgbench_accounts": "abalance", "pgbench_tellers": "tbalance", "pgbench_branches": "bbalance",
        "pgbench_history": "delta"}  # fmt: skip
_EVERY = 30.0  # seconds
_SLOT = (
    "select pg_current_wal_lsn() - restart_lsn, pg_current_wal_lsn() - confirmed_flush_lsn, "
    "pg_current_wal_lsn() - '0/0' from pg_replication_slots"
)


def sample(bench: Bench, running: dict[str, Running]) -> dict[str, Any]:
    """How things are: MiB of each process and of the source's log, seconds until a transaction is in Delta."""
    begun = time.monotonic()
    position = bench.position("soak")
    lag = _arrived(bench, running["run"], position) - begun
    kept, behind, end = (round(int(each) / 2**20, 1) for each in execute(bench.url, _SLOT)[0])
    seen = process.processes()
    memory = {
        name: round(sum(seen[pid].memory for pid in process.family(each.pid, seen)) / 2**20)
        for name, each in running.items()
    }
    waiting = sum(1 for _ in bench.db.glob("Files/LandingZone/*/*/0*.parquet"))
    return {"seconds": round(lag, 2), "memoryMiB": memory, "walKeptMiB": kept, "walUnconfirmedMiB": behind,
            "walWrittenMiB": end, "filesInTheLandingZone": waiting}  # fmt: skip


def _arrived(bench: Bench, run: Running, position: int) -> float:
    """Waits until what is behind a position of the log is in every table, whatever comes behind it; that moment."""
    moments = []
    for table in TABLES:
        run.wait(lambda table=table: bench.newest(table)[1] > position, f"a change of {table} lands")  # type: ignore[misc]
        number, path = bench.newest(table)[0], str(bench.db / "Tables/public" / table)

        def is_applied(number: int = number, path: str = path) -> bool:
            log = read_table_log(path)
            return log is not None and log.position is not None and log.position.number >= number

        moments.append(run.wait(is_applied, f"a change of {table} is applied"))
    return max(moments)


def differs(bench: Bench) -> str:
    """The first table whose rows or sum are not the source's; empty where all agree."""
    for table, column in SUMS.items():
        rows = read_table(bench.db / "Tables/public" / table)
        source = execute(bench.url, f"select count(*), coalesce(sum({column}), 0)::bigint from {table}")[0]
        if (rows.num_rows, pc.sum(rows[column]).as_py() or 0) != source:
            return table
    return ""


def soak(bench: Bench, minutes: float, rate: int) -> bool:
    """Prints what it finds; True where the tables agree with the source at the end."""
    found: list[dict[str, Any]] = []
    with bench.following() as (capture, run):
        running = {"capture": capture, "run": run}
        cpu = {name: each.cpu() for name, each in running.items()}
        begun, end = time.monotonic(), time.monotonic() + minutes * 60
        command = [str(BINARIES / "pgbench"), "-h", "127.0.0.1", "-p", bench.port, "-U", "shop", "-n", "-c", "2"]  # type: ignore[operator]
        work = subprocess.Popen([*command, "-R", str(rate), "-T", str(int(minutes * 60)), "bench"],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        try:
            while time.monotonic() < end:
                found.append({"minute": round((time.monotonic() - begun) / 60, 1), **sample(bench, running)})
                print(json.dumps(found[-1]), flush=True)
                time.sleep(_EVERY)
            work.wait(60)
        finally:
            work.kill()
            work.wait()
        seconds = time.monotonic() - begun
        position = bench.position("the end of the soak")
        run.wait(lambda: bench.applied(TABLES, position), "the end arrives")
        wrong = differs(bench)
        shares = {name: round((each.cpu() - cpu[name]) / seconds, 3) for name, each in running.items()}
    lags = [each["seconds"] for each in found]
    said = {"p50": percentile(lags, 0.5), "p95": percentile(lags, 0.95), "most": max(lags), "sharesOfACore": shares,
            "mostWalKeptMiB": max(each["walKeptMiB"] for each in found), "differs": wrong}  # fmt: skip
    print(json.dumps({"soak": said}), flush=True)
    return not wrong


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="benchmarks.capture_soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=int, default=20)
    given = parser.parse_args()
    process.hide_pandas()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    server = Postgres(SERVER)
    try:
        with tempfile.TemporaryDirectory(prefix="lakemirror-soak-") as place:
            say(machine())
            is_equal = soak(Bench(server, Path(place), SMALL), given.minutes, given.rate)
    finally:
        server.close()
    sys.exit(0 if is_equal else 1)


if __name__ == "__main__":
    main()
