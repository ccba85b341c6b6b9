"""A store with the relay in front of it, and a folder of the disk: peers run there in processes of their own.

Bench.run         one act of a peer ─▶ its figures
Bench.following   a peer that runs and applies what comes ─▶ `followed`: seconds and requests of each file
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tests.object_stores import StoreServer

from benchmarks import digest
from benchmarks.relay import Relay, Request
from benchmarks.runner import REPOSITORY
from benchmarks.scenarios.scenario import TABLE, Data
from benchmarks.store_work import publish
from lakemirror.storage import place
from lakemirror.storage.connections import give_options
from lakemirror.storage.place import Place, files_below, local_path, names_in, storage_of

STORE, DISK = "store", "disk"
_LIMIT = 900.0  # seconds for one peer
_QUIET = 2.0  # seconds without a request of the table, after which an apply is over

Row = dict[str, Any]


class Bench:
    """A store with the relay in front of it, and a folder of the disk."""

    def __init__(self, server: StoreServer, front: Relay, scratch: Path) -> None:
        self.relay = front
        self.scratch = scratch
        self._server = server
        self._count = 0

    @contextmanager
    def database(self, where: str) -> Iterator[str]:
        """The address of a new database, which is removed when the block ends: there are gigabytes in some."""
        self._count += 1
        if where == DISK:
            folder = self.scratch / f"database-{self._count}"
            (folder / "Files/LandingZone").mkdir(parents=True)
            try:
                yield str(folder)
            finally:
                shutil.rmtree(folder)
            return
        address = f"{self._server.bucket()}/shop"
        give_options(address, self._server.options)  # this process goes to the server itself: it is not counted
        try:
            yield address
        finally:
            storage_of(address).delete("")

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
        with tempfile.TemporaryDirectory(dir=self.scratch) as copy:
            local = table if isinstance(table, Path) else _copied(table, Path(copy))
            row = digest.duckdb_with("delta").execute(digest.sql(f"delta_scan('{local}')")).fetchone()
        return digest.numbers(row) == list(data.expected)


def followed(bench: Bench, address: str, data: Data, where: str) -> tuple[list[float], list[tuple[int, int]]]:
    """Seconds of every file but the first few; of each the requests that belong to its table, and the files touched."""
    waits: list[float] = []
    counts: list[tuple[int, int]] = []
    log = place(address) / "Tables" / TABLE / "_delta_log"
    for number, file in enumerate(data.changes, len(data.load) + 1):
        version = _next_version(log)
        if where == STORE:
            bench.relay.requests()
        publish(address, TABLE, [file], number)
        put = time.monotonic()
        asked: list[Request] = []
        done = 0.0
        while not done:
            time.sleep(0.005 if where == DISK else 0.1)
            if time.monotonic() > put + 60:
                raise SystemExit(f"{log / f'{version:020}.json'} does not come")
            commit = log / f"{version:020}.json"
            if local_path(commit) is None:
                asked += bench.relay.requests()
                puts = [
                    e.answered for e in asked if e.method == "PUT" and _key(e).endswith(f"_delta_log/{commit.name}")
                ]
                done = puts[0] if puts else 0.0
            elif commit.is_file():
                done = time.monotonic()
            if done and not _is_of_rows(commit):
                version, done = version + 1, 0.0
        waits.append(done - put)
        time.sleep(max(data.size.pause, _QUIET))
        if where == STORE:
            asked += bench.relay.requests()
            of_table = [each for each in asked if not _OF_EACH_PASS.search(_key(each))]
            counts.append((len(of_table), len(_touched(of_table))))
    few = max(1, len(waits) // 5)
    return waits[few:], counts[few:]


def _next_version(log: Place) -> int:
    return 1 + max(int(name[:20]) for name, _ in names_in(log) if name[:20].isdigit() and name.endswith(".json"))


def _is_of_rows(commit: Place) -> bool:
    """False for a commit of maintenance, which may come between two files."""
    actions = [json.loads(line) for line in commit.read_bytes().splitlines()]
    return all(each.get("commitInfo", {}).get("operation") != "OPTIMIZE" for each in actions)


_OF_EACH_PASS = re.compile(
    r"prefix=shop/(Tables|Files/LandingZone|Files/_DroppedTables)/($|&)|Files/Monitoring|mirroring\.json"
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


def _copied(table: Place, folder: Path) -> Path:
    for path, _ in files_below(table, lambda _: True):
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes((table / path).read_bytes())
    return folder


def _last(text: str) -> Row:
    lines = [line for line in text.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {"failed": "it said nothing"}


__all__ = ["DISK", "STORE", "Bench", "Row", "followed"]
