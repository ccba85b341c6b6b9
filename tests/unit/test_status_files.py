"""The status files (contract section 11)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemirror.landing_zone.change_file import Waiting
from lakemirror.landing_zone.metadata import Warned
from lakemirror.status import status
from lakemirror.status.status import (
    REPLICATOR,
    TABLES,
    DatabaseStatus,
    EngineProcess,
    TableStatus,
    format_time,
    render,
    rewrite_status,
    write_status,
)
from lakemirror.status.status_reader import parse_time, read_status
from lakemirror.storage import LocalStorage

SYNCED = 1747699344.2389983
CUSTOMERS = TableStatus(
    id="a" * 32,
    status="Failed",
    table="customers",
    schema="sales",
    error_code="row-marker-invalid",
    error_message="row marker '7' is not one of 0, 1, 2, 4",
    error_file="Files/LandingZone/sales.schema/customers/7.parquet",
    error_hint="Replace the file.",
    processed_rows=5,
    processed_bytes=60,
    last_sync=SYNCED,
    position=6,
    pending_files=3,
    waiting_for=Waiting("number 8", 1000.5),
    warnings=(Warned("property-unknown", "colour is not known", "Files/x", 1000.5),),
)
ORDERS = TableStatus(id="b" * 32, status="Replicating", table="orders")
SHOP = DatabaseStatus("Running", tables=(ORDERS, CUSTOMERS))


def test_of_a_table_two_rows_are_kept_as_text() -> None:
    """The newest one and the one before, however often the table changes."""
    table = replace(ORDERS, id="of a busy table")
    for position in range(100):
        before, now = (replace(SHOP, tables=(replace(table, position=each),)) for each in (position, position + 1))
        assert b'"position": %d,' % position in render(before)[TABLES]
        assert b'"position": %d,' % (position + 1) in render(now)[TABLES]
    assert [each.position for each, _ in status._rows["of a busy table", "", "orders"]] == [100, 99]


def test_the_files_have_the_contracts_fields() -> None:
    files = {path: json.loads(data) for path, data in render(SHOP).items()}
    assert files[REPLICATOR] == {"status": "Running", "errorCode": "", "errorMessage": ""}
    assert files[TABLES]["tables"][1] == {
        "id": "a" * 32,
        "status": "Failed",
        "errorCode": "row-marker-invalid",
        "errorMessage": "row marker '7' is not one of 0, 1, 2, 4",
        "normalizedTableName": "sales.customers",
        "sourceTableName": "customers",
        "sourceSchemaName": "sales",
        "sourceObjectType": "Table",
        "metrics": {
            "processedRowCount": 5,
            "processedByte": 60,
            "lastSourceCommitTimeUtc": "0001-01-01T00:00:00",
            "lastSyncTimeUtc": format_time(SYNCED),
        },
        "position": 6,
        "pendingFiles": 3,
        "waitingFor": {"what": "number 8", "since": "1970-01-01T00:16:40.5000000Z"},
        "warnings": [
            {
                "code": "property-unknown",
                "message": "colour is not known",
                "file": "Files/x",
                "since": "1970-01-01T00:16:40.5000000Z",
            }
        ],
        "errorFile": "Files/LandingZone/sales.schema/customers/7.parquet",
        "errorHint": "Replace the file.",
    }
    assert files[TABLES]["tables"][0]["normalizedTableName"] == "orders"
    assert files[TABLES]["tables"][0]["waitingFor"] is None


def test_the_same_status_gives_the_same_bytes_in_whatever_order() -> None:
    assert render(SHOP) == render(DatabaseStatus("Running", tables=(CUSTOMERS, ORDERS)))


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    status = DatabaseStatus("Stopped", "internal", "it broke", (ORDERS, CUSTOMERS), (Warned("folder-skipped", "x"),))
    assert write_status(storage, status)
    found = read_status(storage)
    assert found is not None
    assert found.tables[1].last_sync == pytest.approx(SYNCED, abs=1e-6)
    assert found.tables[1].__dict__ | {"last_sync": SYNCED} == CUSTOMERS.__dict__
    assert (found.status, found.error_code, found.error_message) == ("Stopped", "internal", "it broke")
    assert (found.tables[0], found.warnings) == (ORDERS, status.warnings)


def test_nothing_is_written_where_nothing_changed(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    assert write_status(storage, SHOP)
    before = (tmp_path / TABLES).stat().st_mtime_ns, (tmp_path / TABLES).stat().st_ino
    assert not write_status(storage, SHOP)
    assert ((tmp_path / TABLES).stat().st_mtime_ns, (tmp_path / TABLES).stat().st_ino) == before
    assert write_status(storage, DatabaseStatus("Stopped", tables=SHOP.tables))
    assert (tmp_path / TABLES).stat().st_ino == before[1]
    (tmp_path / TABLES).unlink()
    assert write_status(storage, DatabaseStatus("Stopped", tables=SHOP.tables))


def test_nothing_but_the_two_files_is_left(tmp_path: Path) -> None:
    write_status(LocalStorage(tmp_path), SHOP)
    write_status(LocalStorage(tmp_path), DatabaseStatus("Stopped"))
    files = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    assert files == [REPLICATOR, TABLES]


def test_no_status_yet(tmp_path: Path) -> None:
    assert read_status(LocalStorage(tmp_path)) is None


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"[" * 100_000, b"\xff", b'{"tables": 3}',
     b'{"tables": [1, {"metrics": [], "warnings": {"a": 1}}]}',
     b'{"tables": [{"position": "x", "waitingFor": {"since": 4}, "warnings": [3]}]}'],
)  # fmt: skip
def test_status_files_that_make_no_sense_are_no_error(tmp_path: Path, content: bytes) -> None:
    storage = LocalStorage(tmp_path)
    for path in (TABLES, REPLICATOR):
        storage.write(path, content)
    found = read_status(storage)
    assert found is None or all(table.position == 0 for table in found.tables)


def test_the_vendors_own_file_is_understood(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.write(
        TABLES,
        b'{"tables": [{"id": "db54958b", "status": "Replicating", "errorCode": "", "errorMessage": "",'
        b'"normalizedTableName": "abc.12345", "sourceTableName": "12345", "sourceSchemaName": "abc",'
        b'"sourceObjectType": "Table", "metrics": {"processedRowCount": 5, "processedByte": 60,'
        b'"lastSourceCommitTimeUtc": "0001-01-01T00:00:00", "lastSyncTimeUtc": "2025-05-20T00:02:24.2389983Z"}}]}',
    )
    found = read_status(storage)
    assert found is not None
    table = found.tables[0]
    assert (table.name, table.processed_rows, table.last_source_commit) == ("abc.12345", 5, None)
    assert table.last_sync == pytest.approx(SYNCED, abs=1e-6)


def test_names_that_are_no_unicode_come_back_as_they_were(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    write_status(storage, DatabaseStatus("Running", tables=(TableStatus("x", "Initialized", "t\udcff", "é"),)))
    found = read_status(storage)
    assert found is not None
    assert (found.tables[0].table, found.tables[0].schema) == ("t\udcff", "é")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "1970-01-01T00:00:00.0000000Z"),
        (1747699344.25, "2025-05-20T00:02:24.2500000Z"),
        (1.99999999, "1970-01-01T00:00:02.0000000Z"),
        (-1.5, "1969-12-31T23:59:58.5000000Z"),
        (None, "0001-01-01T00:00:00"),
        (float("nan"), "0001-01-01T00:00:00"),
        (float("inf"), "0001-01-01T00:00:00"),
        (1e30, "0001-01-01T00:00:00"),
    ],
)
def test_times_as_the_vendor_writes_them(seconds: float | None, text: str) -> None:
    assert format_time(seconds) == text


@pytest.mark.parametrize("text", ["2025-05-20T00:02:24Z", "2025-05-20T00:02:24", "2025-05-20T00:02:24.000000000+00:00"])
def test_times_in_other_iso_forms(text: str) -> None:
    assert parse_time(text) == 1747699344.0


@pytest.mark.parametrize("text", ["", None, 3, "yesterday", "2025-13-20T00:02:24Z", "0001-01-01T00:00:00"])
def test_times_that_are_none(text: object) -> None:
    assert parse_time(text) is None


@settings(deadline=None)
@given(st.floats(0, 4e9))
def test_times_round_trip(seconds: float) -> None:
    assert parse_time(format_time(seconds)) == pytest.approx(seconds, abs=1e-6)


def test_a_heartbeat_writes_no_tables_unless_they_are_gone(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    status = DatabaseStatus("Running", tables=(TableStatus("1", "Replicating", "orders"),))
    alive = replace(status, process=EngineProcess.this())
    assert not rewrite_status(storage, alive, status, heartbeat=True) and not any(tmp_path.iterdir())
    write_status(storage, status)
    (tmp_path / TABLES).write_bytes(b"mine")
    assert rewrite_status(storage, alive, status, heartbeat=True)
    assert (tmp_path / TABLES).read_bytes() == b"mine"
    found = read_status(storage)
    assert found is not None and found.process is not None
    (tmp_path / TABLES).unlink()
    assert not rewrite_status(storage, alive, status, heartbeat=True)


def test_rows_are_as_if_all_were_dumped_at_once() -> None:
    waiting = Waiting("number 7", 1.5)
    tables = (
        TableStatus("1", "Failed", "b\u00fc", error_message='a "b"\n c', warnings=(Warned("x", "y\n", "z"),)),
        TableStatus("2", "Replicating", "a", schema="s", waiting_for=waiting),
    )
    for some in ((), tables[:1], tables):
        data = render(DatabaseStatus("Running", tables=some))[TABLES]
        assert data == json.dumps(json.loads(data), indent=1).encode() + b"\n"
