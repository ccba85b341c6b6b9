"""The binary log of MySQL 8.0: events that such servers wrote. None could be had for these tests.

Table maps and GTIDs are those that go-mysql's tests recorded (MIT licence).
"""

from __future__ import annotations

import struct
from typing import Any

import pytest
from tests.unit.capture.test_binlog_packets import event

from lakemirror.errors import LakemirrorError
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.mariadb.binlog_reader import BinlogReader
from lakemirror.publisher.capture.mariadb.mariadb_check import settings_needed
from lakemirror.publisher.capture.mariadb.mariadb_sessions import failing
from lakemirror.publisher.capture.mariadb.table_maps import read_table_map

KEYED = b"l\0\0\0\0\0\1\0\4test\0\5_prim\0\3\3\x0f\b\2x\0\2\1\1\0\2\1\xe0\4\f\3id2\3col\3id1\b\2\2\0"
"""create table _prim (id2 int, col varchar(30), id1 bigint, primary key (id1, id2))"""
GTID = bytes.fromhex(
    "005ccc103344a811eabd590242ac190003770000000000000002780000000000000079000000000000006a30b13e78a005fcc30393380100"
)  # 5ccc1033-44a8-11ea-bd59-0242ac190003:119
CODECS = {224: "utf-8", 255: "utf-8"}  # utf8mb4_unicode_ci, utf8mb4_0900_ai_ci


def reader(*tables: tuple[str, str]) -> BinlogReader:
    found = BinlogReader(tables, CODECS.get, is_mariadb=False)
    list(found.read(event(4, struct.pack("<Q", 4) + b"binlog.000003", 0)))
    list(found.read(event(15, bytes(40) + b"\1", 256)))
    return found


def rows(number: int, values: bytes) -> bytes:
    """A WRITE_ROWS event, version 2, of three columns that are all there."""
    return number.to_bytes(6, "little") + struct.pack("<HH", 1, 2) + b"\3\xff" + b"\0" + values


@pytest.mark.parametrize(
    "collation", [b"\2\1\xe0", b"\2\3\xfc\xff\0"], ids=["utf8mb4_unicode_ci", "utf8mb4_0900_ai_ci"]
)
def test_a_transaction_of_mysql_8(collation: bytes) -> None:
    """A collation's number above 250 takes three bytes."""
    found = reader(("test", "_prim"))
    list(found.read(event(33, GTID, 340)))
    list(found.read(event(2, struct.pack("<IIBHH", 1, 0, 4, 0, 0) + b"test\0BEGIN", 400)))
    list(found.read(event(19, KEYED.replace(b"\2\1\xe0", collation), 480)))
    values = struct.pack("<i", -2) + b"\7tulp\xc3\xa9n" + struct.pack("<q", 2**40)
    list(found.read(event(30, rows(0x6C, values), 540)))
    list(found.read(event(16, bytes(8), 571)))
    (written,), ended, exchanged = found.take()
    name = "5ccc103344a811eabd590242ac190003:119"
    assert [(each.transaction, each.position) for each in ended] == [("", (3 << 32) + 256), (name, (3 << 32) + 571)]
    assert written.rows["after"].to_pylist() == [{"id2": "-2", "col": "tulpén", "id1": str(2**40)}]
    assert written.rows["transaction"].to_pylist() == [name] and not exchanged


def test_the_key_is_in_the_table_map() -> None:
    number, table = read_table_map(KEYED, CODECS.get, is_mariadb=False)
    assert (number, table.schema, table.name, table.key, table.missing) == (0x6C, "test", "_prim", (2, 0), "")
    assert [column.name for column in table.columns] == ["id2", "col", "id1"]
    assert "column col" in read_table_map(KEYED, lambda _: None, is_mariadb=False)[1].missing


def test_a_log_of_mysql_5_7_names_no_columns() -> None:
    body = b"w\0\0\0\0\0\1\0\4test\0\5_prim\0\3\3\x0f\b\2x\0\2"
    assert "binlog_row_metadata" in read_table_map(body, CODECS.get, is_mariadb=False)[1].missing


@pytest.mark.parametrize(("kind", "setting"), [(39, "PARTIAL_JSON"), (40, "binlog_transaction_compression")])
def test_events_in_forms_that_cannot_be_read(kind: int, setting: str) -> None:
    with pytest.raises(LakemirrorError, match=setting) as raised:
        list(reader(("test", "_prim")).read(event(kind, bytes(8), 300)))
    assert raised.value.code == "capture-not-ready"


class Session:
    """A server with these variables."""

    is_mariadb, kind = False, "mysql"

    def __init__(self, version: tuple[int, int], **settings: str) -> None:
        self.version, self._settings = version, settings

    def setting(self, name: str) -> str | None:
        return self._settings.get(name)


SETTINGS = {"log_bin": "ON", "binlog_format": "ROW", "binlog_row_metadata": "FULL"}


@pytest.mark.parametrize(
    ("version", "change", "wanted"),
    [
        ((8, 0), {}, []),
        ((8, 4), {"binlog_row_value_options": "PARTIAL_JSON"}, ["SET GLOBAL binlog_row_value_options = '';"]),
        ((8, 0), {"binlog_row_metadata": "MINIMAL"}, ["SET GLOBAL binlog_row_metadata = FULL;"]),
        ((5, 7), {"binlog_row_metadata": None}, ["-- upgrade the server"]),
    ],
)  # fmt: skip
def test_what_a_server_of_mysql_needs(version: tuple[int, int], change: dict[str, Any], wanted: list[str]) -> None:
    given = {name: value for name, value in {**SETTINGS, **change}.items() if value is not None}
    session: Any = Session(version, **given)
    found = list(settings_needed(session))
    assert [need.statement.partition("; --")[0].removesuffix(";") for need in found] == [
        each.removesuffix(";") for each in wanted
    ]


def test_caching_sha2_password_without_its_package_says_which_one() -> None:
    """The driver needs it to log in without TLS."""
    options = CaptureOptions("mysql://me:tulip@h/shop")
    with pytest.raises(LakemirrorError, match="cryptography") as raised, failing(options):
        raise RuntimeError("'cryptography' package is required for sha256_password or caching_sha2_password")
    assert raised.value.code == "capture-source-failed"
