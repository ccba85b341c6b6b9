"""Publishers of a service that is killed again and again, and what must be in its tables afterwards.

publishers (threads) ─▶ lakemirror serve ROOT (a process) ◀─ kill -9, start again
                     └─ every row that was acknowledged is in its table once, every other one at most once
"""

from __future__ import annotations

import io
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.free_ports import free_port

from lakemirror.delta.log import read_snapshot
from lakemirror.engines.kernels.live_rows import live_rows
from lakemirror.engines.target import target_of
from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing
from lakemirror.publisher.folders.endpoint import Endpoint
from lakemirror.service.auth.principals import Principals
from lakemirror.service.own_folder import IN_STORE
from lakemirror.storage import Place, place
from lakemirror.storage.place import served_files

WORKSPACE = "storm"


@dataclass
class Storm:
    """A service with `databases` and, spread over them, `publishers` with a table each.

    `address`: of a root in a store that has the service's own files, too: each start is on a machine that has nothing.
    `memory`: the most memory that a service process had, in bytes, one for each process. `lasting`: the memory of the
    last process, every five seconds for as long as it is left alone.
    """

    root: Path
    databases: int
    publishers: int
    seed: int = 1
    address: str = ""
    acknowledged: dict[str, set[int]] = field(default_factory=dict)
    tried: dict[str, int] = field(default_factory=dict)
    memory: list[int] = field(default_factory=list)
    lasting: list[int] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        self._random = random.Random(self.seed)
        self._served = place(self.address) if self.address else self.root
        principals = Principals(self._served, IN_STORE if self.address else None)
        self._principal = principals.add("loader", [f"{WORKSPACE}=contribute"]).shown()
        for number in range(self.databases):
            folder = self._served / WORKSPACE / f"db{number}"
            if not self.address:
                Path(str(folder)).mkdir(parents=True)
            served_files(folder).make_folder("Files/LandingZone")
        self._starts = 0
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._over = threading.Event()
        self.log = (self.root / "serve.log").open("ab")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def run(self, kills: int, pause: tuple[float, float], lasting: float = 0.0) -> None:
        """Publishes while the service is killed `kills` times, each `pause` (from, to) seconds after its start; then
        for `lasting` seconds at one process."""
        self._start()
        threads = [threading.Thread(target=self._publish, args=(n,), daemon=True) for n in range(self.publishers)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(kills):
                time.sleep(self._random.uniform(*pause))
                self._kill()
                self._start()
            time.sleep(pause[0])
            until = time.monotonic() + lasting
            while time.monotonic() < until:
                self.lasting.append(self._memory("VmRSS"))
                time.sleep(min(5.0, max(0.0, until - time.monotonic())))
        finally:
            self._over.set()
            for thread in threads:
                thread.join(180)
        assert not any(thread.is_alive() for thread in threads), "a publisher hangs"
        assert not self.failures, self.failures

    def check(self, patience: float = 60.0) -> int:
        """Waits until all that is acknowledged is applied, and compares; the number of acknowledged rows."""
        deadline = time.monotonic() + patience
        for table, wanted in self.acknowledged.items():
            while True:
                found = Counter(rows_of(self._served / WORKSPACE / table.replace("/", "/Tables/")))
                if wanted <= found.keys() or time.monotonic() > deadline:
                    break
                time.sleep(0.2)
            assert wanted <= found.keys(), (table, sorted(wanted - found.keys())[:10])
            assert max(found.values(), default=1) == 1, (table, found.most_common(3))
            assert max(found, default=0) <= self.tried.get(table, 0), table
        return sum(map(len, self.acknowledged.values()))

    def end(self) -> int:
        """Ends the service by SIGTERM; its exit code."""
        assert self._process is not None
        self._note_memory()
        self._process.terminate()
        code = self._process.wait(60)
        self.log.close()
        return code

    def abandon(self) -> None:
        """Ends the service at once, where the test has failed."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
        self.log.close()

    def _start(self) -> None:
        words = [
            sys.executable,
            "-m",
            "lakemirror.cli",
            "serve",
            str(self._served),
            "--http",
            "--port",
            str(self._port),
        ]
        environment = dict(os.environ)
        if self.address:
            self._starts += 1
            words += ["--state", IN_STORE]
            environment["LAKEMIRROR_CACHE_DIR"] = str(self.root / f"machine{self._starts}")
        self._process = subprocess.Popen(words, stderr=self.log, env=environment)
        deadline = time.monotonic() + 120  # a machine that does much else
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self._port)) == 0:
                    return
            assert self._process.poll() is None, (self.root / "serve.log").read_text()[-2000:]
            time.sleep(0.05)
        raise AssertionError("the service does not listen")

    def _kill(self) -> None:
        assert self._process is not None
        self._note_memory()
        self._process.send_signal(signal.SIGKILL)
        assert self._process.wait(10) == -signal.SIGKILL

    def _note_memory(self) -> None:
        self.memory.append(self._memory("VmHWM"))

    def _memory(self, name: str) -> int:
        """Bytes, as the system's status of the process has them under this name."""
        assert self._process is not None
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024

    def _publish(self, number: int) -> None:
        """One publisher: with our library, or as the vendor's programs do it, file by file."""
        database, table = f"db{number % self.databases}", f"t{number}"
        key = f"{database}/{table}"
        self.acknowledged[key] = set()
        address = f"{self.url}/{WORKSPACE}/{database}"
        try:
            by_uploads = None if number % 2 else self._by_uploads(address, table)
            act = by_uploads or self._by_library(address, table)
            row = 0
            while not self._over.is_set():
                row += 1
                self.tried[key] = row
                try:
                    act(row)
                except LakemirrorError as error:
                    if not error.retry:
                        raise
                    if act is by_uploads:
                        row -= 1  # the same file again: the engine waits for a number that is missing
                    continue
                self.acknowledged[key].add(row)
        except BaseException as error:
            self.failures.append(error)

    def _by_library(self, address: str, table: str) -> Any:
        landing = Landing(address, self._principal).table(table, keys=["id"])
        return lambda row: landing.insert([{"id": row}])

    def _by_uploads(self, address: str, table: str) -> Any:
        endpoint = Endpoint(address, self._principal)
        folder = f"Files/LandingZone/{table}"

        def upload(name: str, data: bytes) -> None:
            for _ in range(20):
                path = f"{folder}/{name}"
                half = len(data) // 2
                steps = [
                    endpoint.ask("PUT", path, {"resource": "file"}).status == 201
                    and endpoint.ask("PATCH", path, _append(0), None, data[:half]).status == 202
                    and endpoint.ask("PATCH", path, _append(half), None, data[half:]).status == 202
                    and endpoint.ask("PATCH", path, {"action": "flush", "position": str(len(data))}).status == 200
                ]
                if all(steps):
                    return
            raise AssertionError(f"{name} cannot be uploaded")

        def publish(row: int) -> None:
            sink = io.BytesIO()
            pq.write_table(pa.table({"id": pa.array([row], pa.int64())}), sink)
            upload(f"{row:020d}.parquet", sink.getvalue())

        upload("_metadata.json", json.dumps({"keyColumns": ["id"]}).encode())
        return publish


def rows_of(table: Place) -> list[int]:
    """The ids in a Delta table; none where there is no table yet."""
    try:
        snapshot = read_snapshot(table)
    except OSError:
        snapshot = None
    if snapshot is None:
        return []
    target = target_of(str(table), snapshot.metadata.value)
    found: list[int] = []
    for add in snapshot.files.values():
        try:
            for rows in live_rows(add, target):
                found += rows["id"].to_pylist()
        except FileNotFoundError:  # merged and removed meanwhile: read again
            return rows_of(table)
    return found


def _append(position: int) -> dict[str, str]:
    return {"action": "append", "position": str(position)}


def minutes() -> float:
    """How long the soak takes: LAKEMIRROR_SOAK_MINUTES."""
    return float(os.environ.get("LAKEMIRROR_SOAK_MINUTES", "1"))
