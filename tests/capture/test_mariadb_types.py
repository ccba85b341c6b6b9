"""Every type of MariaDB and MySQL through a real log: a row that was loaded and one that was streamed are the same."""

from __future__ import annotations

import os
import struct
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.mariadb import MariaDb, execute

from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.database_capture import Capture
from lakemirror.publisher.capture.source_kinds import check as check_source

KEPT: tuple[tuple[str, str, str, Any], ...] = (
    ("tinyint", "-128", "int16", -128),
    ("tinyint unsigned", "255", "int16", 255),
    ("boolean", "true", "int16", 1),
    ("smallint", "-32768", "int16", -32768),
    ("smallint unsigned", "65535", "int32", 65535),
    ("mediumint", "-8388608", "int32", -8388608),
    ("mediumint unsigned", "16777215", "int32", 16777215),
    ("int", "-2147483648", "int32", -2147483648),
    ("int(5) unsigned zerofill", "7", "int64", 7),
    ("int unsigned", "4294967295", "int64", 4294967295),
    ("bigint", "-9223372036854775808", "int64", -(2**63)),
    ("bigint unsigned", "18446744073709551615", "decimal128(20, 0)", Decimal(2**64 - 1)),
    ("decimal(10,2)", "-1.50", "decimal128(10, 2)", Decimal("-1.50")),
    ("decimal(10,2)", "0", "decimal128(10, 2)", Decimal("0.00")),
    ("decimal(18,9)", "123456789.000000001", "decimal128(18, 9)", Decimal("123456789.000000001")),
    ("decimal(20,0) unsigned", "99999999999999999999", "decimal128(20, 0)", Decimal("99999999999999999999")),
    ("decimal(65,30)", "12345678901234567890123456789012345.123456789012345678901234567890", "string",
     "12345678901234567890123456789012345.123456789012345678901234567890"),
    ("float", "1.1", "float", 1.100000023841858),
    ("float", "-3.4e38", "float", -3.3999999521443642e38),
    ("double", "1/3e0", "double", 1 / 3),
    ("double", "-2.2250738585072014e-308", "double", -2.2250738585072014e-308),
    ("bit(1)", "b'1'", "bool", True),
    ("bit(1)", "b'0'", "bool", False),
    ("bit(10)", "b'1010101010'", "string", "1010101010"),
    ("bit(64)", "b'1'", "string", "1".zfill(64)),
    ("date", "'1000-01-01'", "date32[day]", date(1000, 1, 1)),
    ("date", "'9999-12-31'", "date32[day]", date(9999, 12, 31)),
    ("datetime", "'2026-03-29 02:30:00'", "timestamp[us]", datetime(2026, 3, 29, 2, 30)),
    ("datetime(3)", "'0001-01-01 00:00:00.123'", "timestamp[us]", datetime(1, 1, 1, 0, 0, 0, 123000)),
    ("datetime(6)", "'9999-12-31 23:59:59.999999'", "timestamp[us]", datetime(9999, 12, 31, 23, 59, 59, 999999)),
    ("timestamp(6) null", "'2026-03-29 02:30:00.000001'", "timestamp[us, tz=UTC]",
     datetime(2026, 3, 29, 2, 30, 0, 1, timezone.utc)),
    ("timestamp null", "'1970-01-01 00:00:01'", "timestamp[us, tz=UTC]",
     datetime(1970, 1, 1, 0, 0, 1, 0, timezone.utc)),
    ("time", "'12:30:00'", "string", "12:30:00"),
    ("time(1)", "'-00:00:00.5'", "string", "-00:00:00.5"),
    ("time(3)", "'-12:30:00.500'", "string", "-12:30:00.5"),
    ("time(6)", "'838:59:58.999999'", "string", "838:59:58.999999"),
    ("time(6)", "'-838:59:58.000001'", "string", "-838:59:58.000001"),
    ("time(2)", "'-00:00:01'", "string", "-00:00:01"),
    ("year", "2155", "int16", 2155),
    ("year", "0", "int16", 0),
    ("char(5)", "'ab  '", "string", "ab"),
    ("char(255)", "'ü€😀'", "string", "ü€😀"),
    ("varchar(10)", "'a  '", "string", "a  "),
    ("varchar(300)", "repeat('ü', 300)", "string", "ü" * 300),
    ("varchar(20) character set latin1", "'ü€'", "string", "ü€"),
    ("varchar(20) character set latin1", "x'818d8f909dff'", "string", "\x81\x8d\x8f\x90\x9dÿ"),
    ("varchar(20) character set ucs2", "'ü€'", "string", "ü€"),
    ("varchar(20) character set utf16", "'ü😀'", "string", "ü😀"),
    ("varchar(20) character set utf32", "'ü😀'", "string", "ü😀"),
    ("varchar(20) character set utf8mb3", "'ü€'", "string", "ü€"),
    ("varchar(20) character set ascii", "'\\n\\\\'", "string", "\n\\"),
    ("tinytext", "''", "string", ""),
    ("text character set latin1", "'ü'", "string", "ü"),
    ("mediumtext", "'ü😀'", "string", "ü😀"),
    ("longtext", "repeat('x', 70000)", "string", "x" * 70000),
    ("enum('a','it''s','ü€')", "'ü€'", "string", "ü€"),
    ("enum('a','b') character set latin1", "'b'", "string", "b"),
    ("set('x','y','w')", "'w,x'", "string", "x,w"),
    ("set('x','y')", "''", "string", ""),
    ("binary(4)", "x'61620000'", "binary", b"ab\0\0"),
    ("varbinary(300)", "x'00ff00'", "binary", b"\0\xff\0"),
    ("blob", "x'00ff'", "binary", b"\0\xff"),
    ("longblob", "''", "binary", b""),
    ("point", "point(1, 2)", "binary", bytes.fromhex("000000000101000000000000000000f03f0000000000000040")),
)  # fmt: skip
"""A column's type, a value in SQL, the Arrow type and the value of the change file."""

OWN: dict[str, tuple[tuple[str, str, str, Any], ...]] = {
    "mariadb": (
        ("time(6)", "'838:59:59.999999'", "string", "838:59:59.999999"),
        ("time(6)", "'-838:59:59.000001'", "string", "-838:59:59.000001"),
        ("decimal(38,38)", "-0.00000000000000000000000000000000000012", "decimal128(38, 38)", Decimal("-12e-38")),
        ("json", "'{\"a\":  1.0, \"ü\": [null]}'", "string", '{"a":  1.0, "ü": [null]}'),
        ("uuid", "'D9428888-122b-11e1-b85c-61cd3cbb3200'", "string", "d9428888-122b-11e1-b85c-61cd3cbb3200"),
        ("inet6", "'2001:db8::ff00'", "string", "2001:db8::ff00"),
        ("inet4", "'192.168.0.0'", "string", "192.168.0.0"),
    ),
    "mysql": (
        ("json", "'{\"b\":  1.0, \"ü\": [null]}'", "string", '{"b": 1.0, "ü": [null]}'),
        ("vector(3)", "string_to_vector('[1,-0.5,3e38]')", "binary", struct.pack("<3f", 1, -0.5, 3e38)),
        ("point srid 4326", "st_srid(point(1, 2), 4326)", "binary",
         bytes.fromhex("e61000000101000000000000000000f03f0000000000000040")),
        ("int invisible", "7", "int32", 7),
    ),
}  # fmt: skip
REFUSED = {
    "mariadb": (
        "create table r (id int primary key, c varchar(20) character set sjis)",
        "create table squeezed (id int primary key, c varchar(300) compressed)",
        "create table child (id int primary key, p int, foreign key (p) references parent (id) on delete cascade)",
        "create table old (id int primary key) engine = aria",
        "create table versioned (id int primary key) with system versioning",
        "create table keyless (id int)",
    ),
    "mysql": (
        "create table r (id int primary key, c varchar(20) character set sjis)",
        "create table old (id int primary key) engine = myisam",
        "create table keyless (id int)",
    ),
}
FINE = {"mariadb": ["create sequence s"], "mysql": []}


def files(db: Path, url: str, table: str) -> list[pa.Table]:
    folder = db / f"Files/LandingZone/{url.rpartition('/')[2]}.schema" / table
    return [pq.read_table(file) for file in sorted(folder.glob("0*.parquet"))]


def capture(db: Path, url: str, **options: Any) -> list[str]:
    said: list[str] = []
    Capture(Landing(db), CaptureOptions(url, **options), said.append).run(once=True)
    return said


def test_loaded_and_logged_values_are_the_same(mariadb_server: MariaDb, tmp_path: Path) -> None:
    url = mariadb_server.database()
    kept = (*KEPT, *OWN[mariadb_server.kind])
    columns = ", ".join(f"c{number}" for number in range(len(kept)))
    named = ", ".join(f"c{number} {kind}" for number, (kind, *_) in enumerate(kept))
    values = ", ".join(value for _, value, *_ in kept)
    execute(url, f"create table t (id int primary key, {named})", "set time_zone = '+00:00'",
            f"insert into t (id, {columns}) values (1, {values})")  # fmt: skip
    os.environ["TZ"] = "Asia/Tokyo"
    capture(tmp_path, url)
    execute(url, "set time_zone = '+00:00'", f"insert into t (id, {columns}) values (2, {values})",
            "insert into t (id) values (3)")  # fmt: skip
    capture(tmp_path, url)
    loaded, streamed = files(tmp_path, url, "t")
    streamed = streamed.drop_columns("__rowMarker__")
    assert loaded.schema.equals(streamed.schema)
    for number, (kind, value, arrow, wanted) in enumerate(kept):
        first, second = loaded[f"c{number}"], streamed[f"c{number}"]
        assert str(first.type).replace("large_", "") == arrow, (kind, value)
        assert first.to_pylist() == [wanted], (kind, value)
        assert second.to_pylist() == [wanted, None], (kind, value)


@pytest.mark.full
@pytest.mark.parametrize("infinite", ["", "null"])
def test_zero_dates_are_errors_or_null_and_never_another_day(
    mariadb_server: MariaDb, tmp_path: Path, infinite: str
) -> None:
    url, columns = mariadb_server.database(), ("d date", "t datetime(3)", "s timestamp null", "m date not null")
    zeros = ("'0000-00-00'", "'2020-00-10 01:02:03'", "'0000-00-00'", "'2020-02-00'")
    for number, column in enumerate(columns):
        execute(url, f"create table z{number} (id int primary key, {column})")
    capture(tmp_path, url, infinite=infinite)
    for number, zero in enumerate(zeros):
        execute(url, "set sql_mode = ''", f"insert into z{number} values (1, {zero})")
    capture(tmp_path, url, infinite=infinite)
    for number in range(len(columns)):
        found = files(tmp_path, url, f"z{number}")
        state = (tmp_path / f"Files/LandingZone/{url.rpartition('/')[2]}.schema/z{number}/_capture.json").read_text()
        if infinite:
            assert found[-1].column(1).to_pylist() == [None]
        else:
            assert len(found) == 1 and "capture-value" in state and "it is no date" in state


@pytest.mark.full
def test_what_cannot_be_captured_exactly_is_refused_with_what_helps(mariadb_server: MariaDb, tmp_path: Path) -> None:
    url = mariadb_server.database()
    refused = REFUSED[mariadb_server.kind]
    execute(
        url,
        "create table parent (id int primary key)",
        *refused,
        *FINE[mariadb_server.kind],
        "create view seen as select * from parent",
        "create table fine (id int primary key, twice int as (id * 2) stored, v int as (id) virtual)",
        "insert into fine (id) values (1)",
    )
    needs = {need.table.partition(".")[2]: need for need in check_source(CaptureOptions(url))}
    assert needs.keys() == {each.split()[2] for each in refused}
    assert "child" not in needs or "DROP FOREIGN KEY" in needs["child"].statement
    assert "ENGINE = InnoDB" in needs["old"].statement
    capture(tmp_path, url)
    execute(url, "insert into fine (id) values (2)")
    capture(tmp_path, url)
    assert [each["id"].to_pylist() for each in files(tmp_path, url, "fine")] == [[1], [2]]
    assert files(tmp_path, url, "fine")[0].column_names == ["id"]


@pytest.mark.full
def test_a_server_whose_settings_lack_something_is_refused(tmp_path: Path, mariadb_server: MariaDb) -> None:
    url = mariadb_server.database()
    execute(url, "create table t (id int primary key)", "create user reader@'127.0.0.1'",
            "grant select on *.* to reader@'127.0.0.1'")  # fmt: skip
    found = check_source(CaptureOptions(mariadb_server.url(url.rpartition("/")[2], "reader")))
    assert ["GRANT" in need.statement for need in found] == [True] * {"mariadb": 2, "mysql": 3}[mariadb_server.kind]
    for need in found:
        execute(url, need.statement)
    assert not check_source(CaptureOptions(mariadb_server.url(url.rpartition("/")[2], "reader")))
    execute(url, "set global binlog_row_metadata = MINIMAL")
    try:
        (need,) = check_source(CaptureOptions(url))
        with pytest.raises(LakemirrorError, match="the log does not name columns") as raised:
            capture(tmp_path, url)
        assert raised.value.code == "capture-not-ready"
        execute(url, need.statement)
        assert not check_source(CaptureOptions(url))
    finally:
        execute(url, "set global binlog_row_metadata = FULL")
