"""The binary log of MySQL, by events that servers wrote: a server itself is in tests/capture, where one is installed.

Table maps and GTIDs of MySQL 8.0 are those that go-mysql's tests recorded (MIT licence); JSON and vectors are of 9.7.
"""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.capture.test_binlog_packets import event

from lakemirror.errors import LakemirrorError
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.mariadb.binlog_reader import BinlogReader
from lakemirror.publisher.capture.mariadb.binlog_values import column_reader
from lakemirror.publisher.capture.mariadb.json_values import double_text
from lakemirror.publisher.capture.mariadb.logged_types import ColumnType
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
@pytest.mark.parametrize("has_places", [True, False], ids=["", "as-mariadb-11.4-writes-it"])
def test_a_transaction_of_mysql_8(collation: bytes, has_places: bool) -> None:
    """A collation's number above 250 takes three bytes. MariaDB 11.4 says of no event within it where it ends."""
    found = reader(("test", "_prim"))
    list(found.read(event(33, GTID, 340)))
    list(found.read(event(2, struct.pack("<IIBHH", 1, 0, 4, 0, 0) + b"test\0BEGIN", 400 * has_places)))
    list(found.read(event(19, KEYED.replace(b"\2\1\xe0", collation), 480 * has_places)))
    values = struct.pack("<i", -2) + b"\7tulp\xc3\xa9n" + struct.pack("<q", 2**40)
    list(found.read(event(30, rows(0x6C, values), 540 * has_places)))
    list(found.read(event(16, bytes(8), 571)))
    (written,), ended, exchanged = found.take()
    name = "5ccc103344a811eabd590242ac190003:119"
    assert [(each.transaction, each.position) for each in ended] == [("", (3 << 32) + 256), (name, (3 << 32) + 571)]
    assert written.rows["after"].to_pylist() == [{"id2": "-2", "col": "tulpén", "id1": str(2**40)}]
    assert written.rows["transaction"].to_pylist() == [name] and not exchanged
    assert written.rows["moment"].cast(pa.int64()).to_pylist() == [ended[1].milliseconds] != [0]


def test_the_key_is_in_the_table_map() -> None:
    number, table = read_table_map(KEYED, CODECS.get, is_mariadb=False)
    assert (number, table.schema, table.name, table.key, table.missing) == (0x6C, "test", "_prim", (2, 0), "")
    assert [column.name for column in table.columns] == ["id2", "col", "id1"]
    assert "column col" in read_table_map(KEYED, lambda _: None, is_mariadb=False)[1].missing


def test_a_log_of_mysql_5_7_names_no_columns() -> None:
    body = b"w\0\0\0\0\0\1\0\4test\0\5_prim\0\3\3\x0f\b\2x\0\2"
    assert "binlog_row_metadata" in read_table_map(body, CODECS.get, is_mariadb=False)[1].missing


def test_parts_of_json_values_let_their_table_be_loaded_again() -> None:
    found = reader(("test", "_prim"))
    list(found.read(event(33, GTID, 340)))
    list(found.read(event(19, KEYED, 480)))
    list(found.read(event(39, rows(0x6C, b""), 540)))
    events, _, (changed,) = found.take()
    assert changed.table == ("test", "_prim") and "PARTIAL_JSON" in changed.why and not events


def test_a_transaction_whose_name_has_a_tag_is_named_by_its_place() -> None:
    found = reader(("test", "_prim"))
    list(found.read(event(42, bytes(40), 340)))
    list(found.read(event(16, bytes(8), 571)))
    assert [each.transaction for each in found.take()[1]] == ["", f"3:{340 - 19 - 40 - 4}"]


def inner(kind: int, body: bytes) -> bytes:
    return struct.pack("<IBIIIH", 1, kind, 1, 19 + len(body), 0, 0) + body


def payload(*events: bytes, algorithm: int = 0) -> bytes:
    content = b"".join(events)
    packed = pa.compress(content, codec="zstd", asbytes=True) if algorithm == 0 else content
    size = b"\xfd" + len(packed).to_bytes(3, "little")
    named = bytes((algorithm,)) if algorithm < 251 else b"\xfc" + algorithm.to_bytes(2, "little")
    return b"\2" + bytes((len(named),)) + named + b"\1\4" + size + b"\0" + packed


@pytest.mark.parametrize("algorithm", [0, 255])
def test_a_compressed_transaction_is_read_event_by_event(algorithm: int) -> None:
    """Its position is that behind the event that holds it."""
    found = reader(("test", "_prim"))
    list(found.read(event(33, GTID, 340)))
    begin = inner(2, struct.pack("<IIBHH", 1, 0, 4, 0, 0) + b"test\0BEGIN")
    values = struct.pack("<i", -2) + b"\1x" + struct.pack("<q", 3)
    written = inner(30, rows(0x6C, values))
    body = payload(begin, inner(19, KEYED), written, written, inner(16, bytes(8)), algorithm=algorithm)
    steps = found.read(event(40, body, 700))
    for _ in range(3):
        next(steps)
    (first,), ended, _ = found.take()
    assert first.rows.num_rows == 1 and [each.transaction for each in ended] == [""]
    list(steps)
    (second,), (end,), _ = found.take()
    assert second.rows["order"].to_pylist() == [2] and end.position == (3 << 32) + 700


@pytest.mark.parametrize("body", [payload(b"", algorithm=7), payload(inner(16, bytes(8))[:-1]), payload()[:-9] + b"x"])
def test_a_compressed_transaction_that_cannot_be_read(body: bytes) -> None:
    with pytest.raises(LakemirrorError, match="compressed") as raised:
        list(reader(("test", "_prim")).read(event(40, body, 300)))
    assert raised.value.code == "capture-source-failed"


JSON = {
    "000200370012000100130002000215000c340061c3bc05001f000501000713000b1700040100040000c063ffff000000000000f03f02780a":
        r'{"a": [1, -40000, 1.0, true, null], "ü": "x\n"}',
    "0205003b000f13000f19000f23000f2d000f3700f604030281320a08000000000044a5190b08e05ef83b3fffffff0c08c0270905317e0219"
    "0f0200ff": '[1.50, "2020-01-02", "-12:03:04.500000", "1969-12-31 03:04:05.600000", "base64:type15:AP8="]',
    "": "null",
}  # fmt: skip


@pytest.mark.parametrize("raw", JSON)
def test_json_is_the_text_of_a_query(raw: str) -> None:
    read = column_reader(ColumnType(245, (4, 0)), None)
    assert read is not None
    data = bytes.fromhex(raw)
    sized = len(data).to_bytes(4, "little") + data
    assert read(b"\7" + sized + b"\7", 1) == (JSON[raw], len(sized) + 1)
    with pytest.raises(IndexError):
        read(sized[:-1] if data else b"\1\0\0\0", 0)


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "1.0"), (-0.0, "-0.0"), (1e14, "100000000000000.0"), (1e15, "1e15"),
     (1234567890123456.7, "1234567890123456.8"), (1.5e20, "1.5e20"),
     (1e-15, "0.000000000000001"), (1.5e-17, "1.5e-17"), (0.1, "0.1"), (5e-324, "5e-324"),
     (9007199254740992.0, "9.007199254740992e15"), (-1.7976931348623157e308, "-1.7976931348623157e308")],
)  # fmt: skip
def test_numbers_of_json_are_printed_as_the_server_prints_them(value: float, text: str) -> None:
    assert double_text(value) == text


def test_a_vector_has_a_place_among_the_character_sets() -> None:
    """Of 9.7: create table vec (v vector(2), a varchar(3) character set latin1, id int primary key)."""
    body = (b"\xe8\3\0\0\0\0\1\0\3rec\0\3vec\0\3\xf2\x0f\3\3\4\3\0\3\1\1\0\3\2?\b\r\1\2"
            b"\4\7\1v\1a\2id\b\1\2\f\1\xe0")  # fmt: skip
    _, table = read_table_map(body, {8: "cp1252", 63: "latin-1"}.get, is_mariadb=False)
    assert [column.source_type for column in table.columns] == ["vector", "varchar", "int"] and not table.missing
    assert table.readers[1](b"\1\xfc", 0) == ("ü", 2)
    assert table.readers[0](b"\4\0\0\0abcd", 0) == ("YWJjZA==", 8)


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
