"""The service beside Azurite (Blob) and beside a plain copy, in one run.

    python -m benchmarks.service [--azurite FOLDER] [--only uploads,large,latency,idle]

`FOLDER`: where `npm install azurite` was run; also LAKEMIRROR_AZURITE. Without it Azurite is left out, aloud.

uploads: 1,000 files of 100 KB by 16 writers, each file one Put Blob, in turn at both; lakemirror's are on the disk when
they are answered. large: one file of 2 GB, beside cp and fsync; the memory of the service. latency: from the answer to
a file until its commit is there, at two files a second; beside a file that is copied into the folder. idle: a service
with 100 databases of 100 tables that have been applied: its start, memory and CPU, and when it sees a fresh file. The
results are printed as JSON at the end.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.blob_servers import Target, azurite, lakemirror
from benchmarks.runner import machine, say

_SETTLE = 120.0  # seconds after which an idle service looks at its landing zones rarely
_GOALS = {
    "uploads": "at least 3 times Azurite's uploads a second",
    "large": "at least half of cp and fsync, memory under 200 MB",
    "latency": "p95 at most 0.3 s",
    "idle": "CPU under 5 % of one core, a fresh file within 0.5 s",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--azurite", default=os.environ.get("LAKEMIRROR_AZURITE", ""), help="its folder of npm")
    parser.add_argument("--only", default=",".join(_GOALS), help="some of the questions")
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--seconds", type=float, default=30.0, help="of publishing, for the latency; of idleness")
    parser.add_argument("--databases", type=int, default=100)
    parser.add_argument("--tables", type=int, default=100, help="in each database")
    given = parser.parse_args()
    asks: dict[str, Callable[[Path], dict[str, Any]]] = {
        "uploads": lambda folder: uploads(folder, given.azurite, given.files, given.rounds),
        "large": lambda folder: large(folder, int(given.gigabytes * 1e9), given.rounds),
        "latency": lambda folder: latency(folder, given.seconds),
        "idle": lambda folder: idle(folder, given.databases, given.tables, given.seconds),
    }
    results: dict[str, Any] = {"machine": machine()}
    for name in given.only.split(","):
        with tempfile.TemporaryDirectory(prefix="lakemirror-bench-") as scratch:
            say(f"{name}: goal {_GOALS[name]}")
            results[name] = asks[name](Path(scratch))
            say(json.dumps(results[name]))
    print(json.dumps(results, indent=1))


def uploads(folder: Path, npm: str, files: int, rounds: int, writers: int = 16) -> dict[str, Any]:
    """Uploads a second of each, the median of the rounds."""
    data = os.urandom(100_000)
    seen: dict[str, list[float]] = {}
    with lakemirror(folder / "ours") as ours, azurite(folder / "theirs", npm) as theirs:
        for number in range(rounds):
            for name, target in (("lakemirror", ours), ("azurite", theirs)):
                if target is not None:
                    seconds = _upload(target, f"{target.path}/round-{number}", files, data, writers)
                    seen.setdefault(name, []).append(files / seconds)
        result: dict[str, Any] = {f"{name} uploads/s": round(statistics.median(each)) for name, each in seen.items()}
        if "azurite" in seen:
            ratios = [a / b for a, b in zip(seen["lakemirror"], seen["azurite"], strict=True)]
            result["ratio"] = round(statistics.median(ratios), 2)
        result["service's memory, MB"] = _peak_memory(ours.process)
    return result


def large(folder: Path, size: int, rounds: int) -> dict[str, Any]:
    """MB a second of one large file: Put Blob, and cp with fsync to the same disk."""
    source = folder / "source"
    piece = os.urandom(1 << 20)
    with source.open("wb") as file:
        for _ in range(size >> 20):
            file.write(piece)
    size = source.stat().st_size
    ours, plain = [], []
    with lakemirror(folder / "root") as target:
        for number in range(rounds):
            begun = time.monotonic()
            with source.open("rb") as file:
                connection = http.client.HTTPConnection("127.0.0.1", target.port, timeout=600, blocksize=1 << 20)
                headers = {"x-ms-blob-type": "BlockBlob", "Content-Length": str(size)}
                connection.request("PUT", f"{target.path}/large-{number}?{target.signature}", file, headers)
                answer = connection.getresponse()
                assert answer.status == 201, answer.read()
                connection.close()
            ours.append(size / (time.monotonic() - begun))
            copy = folder / f"copy-{number}"
            begun = time.monotonic()
            subprocess.run(["cp", "--reflink=never", source, copy], check=True)
            with copy.open("rb+") as file:
                os.fsync(file.fileno())
            plain.append(size / (time.monotonic() - begun))
            copy.unlink()
            shutil.rmtree(folder / "root/sales/shop/Files/bench")
        memory = _peak_memory(target.process)
    ratio = statistics.median(a / b for a, b in zip(ours, plain, strict=True))
    return {
        "lakemirror MB/s": round(statistics.median(ours) / 1e6),
        "cp and fsync MB/s": round(statistics.median(plain) / 1e6),
        "ratio": round(ratio, 2),
        "service's memory, MB": memory,
    }


def latency(folder: Path, seconds: float) -> dict[str, Any]:
    """Seconds from the answer, or from the rename of a plain copy, until the commit of the file is there."""
    with lakemirror(folder / "root") as target:
        database = folder / "root/sales/shop"
        zone = target.path.replace("/Files/bench", "/Files/LandingZone")
        connection = http.client.HTTPConnection("127.0.0.1", target.port, timeout=60)

        def put(table: str, number: int, data: bytes) -> None:
            path = f"{zone}/{table}/{number:020d}.parquet?{target.signature}"
            connection.request("PUT", path, data, {"x-ms-blob-type": "BlockBlob"})
            answer = connection.getresponse()
            assert answer.status == 201, answer.read()
            answer.read()

        def copied(table: str, number: int, data: bytes) -> None:
            place = database / "Files/LandingZone" / table
            place.mkdir(parents=True, exist_ok=True)
            (place / "_copy").write_bytes(data)
            (place / "_copy").rename(place / f"{number:020d}.parquet")

        found = {}
        for name, publish in (("endpoint", put), ("copy", copied)):
            waits = [_until_committed(database, name, n, publish) for n in _paced(int(2 * seconds), 0.5)]
            found[name] = {
                "p50": _part(waits[4:], 0.5),
                "p95": _part(waits[4:], 0.95),
                "most": round(max(waits[4:]), 3),
            }
    return found


def idle(folder: Path, databases: int, tables: int, seconds: float) -> dict[str, Any]:
    """The start, the memory and the share of one core of a service whose tables are idle; when it sees a fresh file."""
    root = folder / "root"
    say(f"making {databases * tables} tables")
    _make_tables(root, databases, tables)
    begun = time.monotonic()
    with lakemirror(root) as target:
        while not _is_ready(target.port):
            time.sleep(0.2)
        ready = time.monotonic() - begun
        say(f"ready after {ready:.0f} s; it becomes idle")
        time.sleep(_SETTLE)
        before = _cpu(target.process)
        time.sleep(seconds)
        share = (_cpu(target.process) - before) / seconds
        memory = _memory(target.process)
        waits = []
        for number in range(0, databases, max(1, databases // 20)):
            database = root / f"sales/db{number}"
            waits.append(_until_committed(database, f"t{number % tables}", 2, _rename_in(database)))
        return {
            "tables": databases * tables,
            "seconds until every database was looked at": round(ready, 1),
            "CPU of one core, %": round(100 * share, 2),
            "service's memory, MB": memory,
            "fresh file: p50": _part(waits, 0.5),
            "fresh file: most": round(max(waits), 3),
        }


def _make_tables(root: Path, databases: int, tables: int) -> None:
    """Databases `db0`, `db1` … with one applied file in each table: one database is applied, the others are copies."""
    data = _change_file(1)
    first = root / "sales/db0"
    for table in range(tables):
        place = first / f"Files/LandingZone/t{table}"
        place.mkdir(parents=True)
        (place / f"{1:020d}.parquet").write_bytes(data)
    words = [sys.executable, "-m", "lakemirror.cli", "sync", str(first)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for database in range(1, databases):
        subprocess.run(["cp", "-a", first, root / f"sales/db{database}"], check=True)


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    finally:
        connection.close()


def _upload(target: Target, path: str, files: int, data: bytes, writers: int) -> float:
    """Seconds until all files are answered. The writers are spread over two processes."""
    program = (
        "import sys; from benchmarks.service import write_files; "
        "write_files(int(sys.argv[1]), sys.argv[2], sys.argv[3], *map(int, sys.argv[4:]))"
    )
    halves = [(0, files // 2), (files // 2, files)]
    words = [str(target.port), path, target.signature, str(writers // 2), str(len(data))]
    processes = [
        subprocess.Popen([sys.executable, "-c", program, *words, str(low), str(high)], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)
        for low, high in halves
    ]  # fmt: skip
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()  # it is ready
    begun = time.monotonic()
    for process in processes:
        process.communicate("go\n")
        assert process.returncode == 0
    return time.monotonic() - begun


def write_files(port: int, path: str, signature: str, writers: int, size: int, low: int, high: int) -> None:
    """One process of `uploads`: says that it is ready, waits for a line, and puts the files `low` to `high`."""
    data = os.urandom(size)
    waiting: SimpleQueue[int] = SimpleQueue()
    for number in range(low, high):
        waiting.put(number)
    failures: list[str] = []

    def write() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            try:
                number = waiting.get_nowait()
            except Empty:
                return
            connection.request("PUT", f"{path}/{number}?{signature}", data, {"x-ms-blob-type": "BlockBlob"})
            answer = connection.getresponse()
            said = answer.read()
            if answer.status != 201:
                failures.append(f"{answer.status} {said[:200]!r}")
                return

    threads = [threading.Thread(target=write) for _ in range(writers)]
    print("ready", flush=True)
    sys.stdin.readline()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise SystemExit(failures[0])


def _change_file(rows: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": range(rows), "amount": [1.5] * rows}), sink)
    return sink.getvalue()


def _paced(count: int, pause: float) -> Iterator[int]:
    """1 to `count`, one every `pause` seconds."""
    begun = time.monotonic()
    for number in range(1, count + 1):
        time.sleep(max(0.0, begun + pause * number - time.monotonic()))
        yield number


def _until_committed(database: Path, table: str, number: int, publish: Callable[[str, int, bytes], None]) -> float:
    """Seconds from the end of `publish` to the commit of version `number - 1`."""
    data = _change_file(100)
    publish(table, number, data)
    begun = time.monotonic()
    commit = database / "Tables" / table / "_delta_log" / f"{number - 1:020d}.json"
    while not commit.exists():
        if time.monotonic() - begun > 60:
            raise SystemExit(f"{commit} does not come")
        time.sleep(0.002)
    return time.monotonic() - begun


def _rename_in(database: Path) -> Callable[[str, int, bytes], None]:
    def publish(table: str, number: int, data: bytes) -> None:
        place = database / "Files/LandingZone" / table
        (place / "_copy").write_bytes(data)
        (place / "_copy").rename(place / f"{number:020d}.parquet")

    return publish


def _part(values: list[float], share: float) -> float:
    return round(sorted(values)[min(len(values) - 1, int(share * len(values)))], 3)


def _memory(process: int, field: str = "VmRSS") -> int:
    """MB of memory that the process has now."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) // 1000


def _peak_memory(process: int) -> int:
    return _memory(process, "VmHWM")


def _cpu(process: int) -> float:
    """Seconds of processor time."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
