"""A process that is killed at a place of an apply, in a bucket: nothing is lost, nothing is applied twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter

import pytest
from tests import preloaded
from tests.databases import Database, parquet
from tests.landing import MARKER
from tests.object_stores import StoreServer

from lakemirror.failpoints import NAMES, OPERATION_NAMES, STORE_NAMES
from lakemirror.storage import connections
from lakemirror.verify import verify_database
from lakemirror.verify.proof import Options

SHORT = ("apply.before-commit", "apply.after-commit")
OTHERS = ("quarantine.after-move", "move.before-move", "merge.before-commit", "soft-deletes.before-commit")
LONG = tuple(name for name in NAMES if name not in (*SHORT, *OTHERS))
ZONE = "Files/LandingZone/orders"


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


HISTORY = {"deletes": "soft", "sequence": "n", "history": ["scd2", "changes"]}
VERSIONS = [(1, "a", 1, 3), (1, "late", 3, 5), (1, "b", 5, None), (2, "a", 1, 4), (3, "c", 4, None)]


@pytest.mark.parametrize("number", [2, *(pytest.param(each, marks=pytest.mark.full) for each in (1, 3))])
def test_a_kill_between_the_commits_of_a_table_and_its_history(server: StoreServer, number: int) -> None:
    """Behind each history table's commit: each table gets what it lacks, once."""
    database = Database(f"{server.bucket()}/shop", server.options)
    try:
        database.declare("orders", ["id"], lakemirror=HISTORY)
        database.put("orders", 1, {"id": [1, 2], "v": ["a", "a"], "n": [1, 1]})
        database.sync()
        database.put("orders", 2, {"id": [1, 2, 3], "v": ["b", None, "c"], "n": [5, 4, 4], MARKER: [4, 2, 4]})
        database.put("orders", 3, {"id": [1], "v": ["late"], "n": [3], MARKER: [4]})
        killed = sync(database, LAKEMIRROR_FAILPOINT=f"history.after-commit:{number}")
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert sync(database).returncode == 0
        found = database.bag("orders__history", ["id", "v", "__START_AT", "__END_AT"])
        assert found == Counter(VERSIONS)
        assert database.bag("orders__changes", ["__file", "__row"]).total() == 6
        assert set(database.bag("orders", ["id", "v", "__deleted"])) == {
            (1, "b", False),
            (2, "a", True),
            (3, "c", False),
        }
        report = verify_database(database.storage, [], Options(True, True, None, 1))
        assert len(report.tables) == 4 and not [each for each in report.findings if each.severity == "error"]
    finally:
        connections.forget_all()


@pytest.mark.full
@pytest.mark.parametrize("failpoint", OTHERS)
def test_a_kill_while_a_file_or_a_table_is_moved_or_merged(server: StoreServer, failpoint: str) -> None:
    database = Database(f"{server.bucket()}/shop", server.options)
    try:
        count, table = 40 if failpoint.startswith("merge.") else 3, "orders"
        environment = {"LAKEMIRROR_BATCH_FILES": "1", "LAKEMIRROR_ON_BAD_FILE": "quarantine"}
        database.declare("orders", [])
        for number in range(1, count + 1):
            database.put("orders", number, {"id": [number]})
        expected = Counter({(number,): 1 for number in range(1, count + 1)})
        if failpoint.startswith("quarantine."):
            database.put("orders", count + 1, {"id": [9], MARKER: [9]})
            database.put("orders", count + 2, {"id": [count + 2]})
            expected[count + 2,] = 1
        if failpoint.startswith("move."):
            database.sync()
            definition = {"properties": {"target": {"typeProperties": {"defaultSchema": "dbo"}}}}
            database.storage.write("mirroring.json", json.dumps(definition).encode())
            table = "dbo.orders"
        if failpoint.startswith("soft-"):
            database.declare("orders", ["id"])
            database.sync()
            database.declare("orders", ["id"], lakemirror={"deletes": "soft"})
            database.put("orders", count + 1, {"id": [1, 2], MARKER: [2, 2]})
            expected = Counter({(number, number < 3): 1 for number in range(1, count + 1)})
        assert sync(database, **environment, LAKEMIRROR_FAILPOINT=failpoint).returncode == -signal.SIGKILL
        done = sync(database, **environment)
        assert done.returncode == 0, done.stderr
        assert Counter({row[:2]: found for row, found in database.bag(table).items()}) == expected  # without times
        assert table == "orders" or not database.files("Tables/orders")
        aside = [path for path in database.files(f"{ZONE}/_QuarantinedFiles") if path.endswith(".parquet")]
        assert len(aside) == failpoint.startswith("quarantine.")
    finally:
        connections.forget_all()


@pytest.mark.full
@pytest.mark.parametrize("failpoint", OPERATION_NAMES)
def test_an_act_that_was_killed_is_done_by_doing_it_again(server: StoreServer, failpoint: str) -> None:
    """Though an engine has looked in between."""
    database = Database(f"{server.bucket()}/shop", server.options)
    act = "resume" if failpoint.startswith("act.") else failpoint.partition(".")[0]
    try:
        for table in ("orders", "others"):
            database.declare(table, [])
            for number in range(1, 4):
                database.put(table, number, {"id": [number]})
        _prepare(database, act)
        words = [sys.executable, "-m", "lakemirror.cli", act, database.address, "orders"]
        environment = {**process_environment(database), "LAKEMIRROR_FAILPOINT": failpoint}
        killed = preloaded.run(words, env=environment, capture_output=True, text=True, timeout=120)
        assert killed.returncode == -signal.SIGKILL, (killed.stdout, killed.stderr)
        database.sync()
        getattr(database.opened(), act)("orders")
        if act == "pause":
            version = database.version("orders")
            database.put("orders", 4, {"id": [4]})
            database.sync()
            assert database.version("orders") == version
            database.storage.delete(f"{ZONE}/{4:020}.parquet")
            database.opened().resume("orders")
        if act != "restore":
            database.sync()
        assert database.bag("orders") == Counter({(number,): 1 for number in range(1, 4)})
    finally:
        connections.forget_all()


def _prepare(database: Database, act: str) -> None:
    """Brings a database to where the act makes sense."""
    if act == "resume":
        database.opened().pause("orders")
    elif act == "resync":
        database.sync()
    elif act == "replay":
        database.write(f"orders/{2:020}.parquet", b"PAR1 no rows PAR1")
        database.sync(on_bad_file="quarantine", settle=0.0)
        database.write(f"orders/_QuarantinedFiles/{2:020}.parquet", parquet({"id": [2]}))  # somebody has corrected it
    elif act == "restore":
        database.sync()
        database.storage.delete(ZONE)
        assert [database.sync().dropped for _ in range(2)] == [[], ["Tables/orders"]]


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
@pytest.mark.parametrize("count", [2, 5])
def test_several_engines_apply_every_file_once(server: StoreServer, count: int) -> None:
    database = Database(f"{server.bucket()}/shop", server.options)
    try:
        database.declare("orders", [])
        for number in range(1, 13):
            database.put("orders", number, {"id": [number], "v": ["a"]})
        database.declare("keyed", ["id"])
        for number in range(1, 13):
            database.put("keyed", number, {"id": [number % 5], "v": [number], MARKER: [4]})
        environment = {**process_environment(database), "LAKEMIRROR_BATCH_FILES": "1"}
        engines = [subprocess.Popen(command(database), env=environment) for _ in range(count)]
        assert [each.wait(300) for each in engines] == [0] * count
        assert database.bag("orders") == Counter({(number, "a"): 1 for number in range(1, 13)})
        assert database.bag("keyed") == Counter({(n % 5, n): 1 for n in range(8, 13)})
    finally:
        connections.forget_all()


def sync(database: Database, **environment: str) -> subprocess.CompletedProcess[str]:
    found = {**process_environment(database), **environment}
    return preloaded.run(command(database), env=found, capture_output=True, text=True, timeout=120)


def command(database: Database) -> list[str]:
    return [sys.executable, "-m", "lakemirror.cli", "sync", database.address, "--engine", "local"]


def process_environment(database: Database) -> dict[str, str]:
    return {**os.environ, **database.options, "LAKEMIRROR_DROP_AFTER": "0"}
