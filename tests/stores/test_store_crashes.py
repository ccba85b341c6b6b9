"""A process that is killed at a place of an apply, in a bucket: nothing is lost, nothing is applied twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter

import pytest
from tests.databases import Database
from tests.landing import MARKER
from tests.object_stores import StoreServer

from lakemirror.failpoints import NAMES, STORE_NAMES
from lakemirror.storage import connections
from lakemirror.verify import verify_database
from lakemirror.verify.proof import Options

SHORT = ("apply.before-commit", "apply.after-commit")
LONG = tuple(name for name in NAMES if not name.startswith(("move.", "merge.", "quarantine.")) and name not in SHORT)


@pytest.mark.parametrize("failpoint", [*SHORT, *(pytest.param(name, marks=pytest.mark.full) for name in LONG)])
def test_a_killed_engine_loses_nothing_and_repeats_nothing(server: StoreServer, failpoint: str) -> None:
    database = Database(f"{server.bucket()}/shop", server.options)
    try:
        database.declare("orders", [])  # rows without keys: a file that is applied twice shows
        for number in range(1, 4):
            database.put("orders", number, {"id": [number, number], "v": ["a", None]})
        if failpoint.startswith("drop."):
            database.declare("gone", ["id"])
            database.put("gone", 1, {"id": [1]})
            database.sync()
            database.storage.delete("Files/LandingZone/gone")
            database.sync()
        assert sync(database, LAKEMIRROR_FAILPOINT=failpoint).returncode == -signal.SIGKILL
        done = sync(database)
        assert done.returncode == 0, done.stderr
        assert database.bag("orders") == Counter({(n, v): 1 for n in range(1, 4) for v in ("a", None)})
        assert f"Files/LandingZone/orders/_ProcessedFiles/{2:020}.parquet" in database.files("Files/LandingZone/orders")
        if failpoint.startswith("drop."):
            assert not database.files("Tables/gone")
    finally:
        connections.forget_all()


@pytest.mark.parametrize("failpoint", STORE_NAMES)
def test_killed_while_it_archives(server: StoreServer, failpoint: str) -> None:
    archived = _archived_after(server, LAKEMIRROR_FAILPOINT=failpoint)
    copied = 1 if failpoint == "store.after-copy" else 4
    assert sum(name.endswith(".parquet.1") for name in archived) >= copied  # what the kill left is there beside it


@pytest.mark.full
@pytest.mark.parametrize("failpoint", STORE_NAMES)
def test_a_failing_archive(server: StoreServer, failpoint: str) -> None:
    _archived_after(server, LAKEMIRROR_FAILPOINT=f"{failpoint}:1:error")


def _archived_after(server: StoreServer, **environment: str) -> list[str]:
    """The names in the archive after a sync with a failpoint, and one without: rows are applied once, nothing else is
    left in the folder."""
    database = Database(f"{server.bucket()}/shop", server.options)
    try:
        database.declare("orders", [])
        for number in range(1, 6):
            database.put("orders", number, {"id": [number]})
        first = sync(database, **environment)
        assert first.returncode == (0 if ":error" in environment["LAKEMIRROR_FAILPOINT"] else -signal.SIGKILL)
        assert database.bag("orders") == Counter({(number,): 1 for number in range(1, 6)})  # the commit came before
        names = [path.rpartition("/")[2] for path in database.files("Files/LandingZone/orders")]
        assert names.count(f"{1:020}.parquet") == 2, "the file and its copy"
        done = sync(database)
        assert done.returncode == 0, done.stderr
        assert database.bag("orders") == Counter({(number,): 1 for number in range(1, 6)})
        report = verify_database(database.storage, [], Options(True, True, None, 1))
        assert [finding for table in report.tables for finding in table.findings] == []
        zone = database.files("Files/LandingZone/orders")
        left = [path for path in zone if path.endswith(".parquet") and "_ProcessedFiles" not in path]
        assert left == [f"Files/LandingZone/orders/{5:020}.parquet"]
        return [path.rpartition("/")[2] for path in zone if "_ProcessedFiles" in path]
    finally:
        connections.forget_all()


@pytest.mark.full
def test_two_engines_apply_every_file_once(server: StoreServer) -> None:
    database = Database(f"{server.bucket()}/shop", server.options)
    try:
        database.declare("orders", [])
        for number in range(1, 13):
            database.put("orders", number, {"id": [number], "v": ["a"]})
        database.declare("keyed", ["id"])
        for number in range(1, 13):
            database.put("keyed", number, {"id": [number % 5], "v": [number], MARKER: [4]})
        environment = {**process_environment(database), "LAKEMIRROR_BATCH_FILES": "1"}
        engines = [subprocess.Popen(command(database), env=environment) for _ in range(2)]
        assert [each.wait(120) for each in engines] == [0, 0]
        assert database.bag("orders") == Counter({(number, "a"): 1 for number in range(1, 13)})
        assert database.bag("keyed") == Counter({(n % 5, n): 1 for n in range(8, 13)})
    finally:
        connections.forget_all()


def sync(database: Database, **environment: str) -> subprocess.CompletedProcess[str]:
    found = {**process_environment(database), **environment}
    return subprocess.run(command(database), env=found, capture_output=True, text=True, timeout=120)


def command(database: Database) -> list[str]:
    return [sys.executable, "-m", "lakemirror.cli", "sync", database.address, "--engine", "local"]


def process_environment(database: Database) -> dict[str, str]:
    return {**os.environ, **database.options}
