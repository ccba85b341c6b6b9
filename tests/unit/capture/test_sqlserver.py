"""SQL Server's change tables become rows, without a server: recorded values, an engine as Debezium's."""

from __future__ import annotations

import datetime as dt
import json
import random
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.rounds import rounds
from tests.sqlserver_fake import FIRST, FakeEngine, FakeServer, FakeSession
from tests.table_rows import table_rows

from lakemirror import MirroredDatabase
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.delimited.values import BadValue
from lakemirror.publisher import Landing
from lakemirror.publisher.capture import change_handler, database_capture
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.capture_position import newest_position, read_state
from lakemirror.publisher.capture.capture_status import capture_status
from lakemirror.publisher.capture.database_capture import Capture
from lakemirror.publisher.capture.debezium import _RAW_TYPES
from lakemirror.publisher.capture.postgresql import change_log
from lakemirror.publisher.capture.source_kinds import open_source, source_class
from lakemirror.publisher.capture.sqlserver import change_tables, sqlserver_source
from lakemirror.publisher.capture.sqlserver.change_tables import properties_of, streaming
from lakemirror.publisher.capture.sqlserver.log_positions import position_of, text_of
from lakemirror.publisher.capture.sqlserver.sqlserver_check import needs_of
from lakemirror.publisher.capture.sqlserver.sqlserver_sessions import address_of
from lakemirror.publisher.capture.sqlserver.sqlserver_source import SqlServerSource
from lakemirror.publisher.capture.sqlserver.sqlserver_types import TypeName, source_column
from lakemirror.publisher.capture.table_stream import TableStream

RECORDED = json.loads(Path(__file__).with_name("recorded_sqlserver.json").read_text(encoding="utf-8"))["types"]
SOURCE = "sqlserver://me:sesam@127.0.0.1/shop"
OPTIONS = CaptureOptions(SOURCE)
INT, TEXT, LONG = ("int", 4, 10, 0), ("nvarchar", 100, 0, 0), ("nvarchar", -1, 0, 0)
TYPES = {"id": INT, "v": TEXT, "n": ("decimal", 9, 10, 2)}
UTC = dt.timezone.utc


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    found = FakeServer()

    class Engine(FakeEngine):
        server = found

    def write(file: Path, engine: str, partition: Any, offset: Any) -> None:
        assert (engine, partition) == ("lakemirror_shop", {"server": "lakemirror_shop", "database": "shop"})
        file.write_text(json.dumps(offset))

    for module in (sqlserver_source, change_tables):
        monkeypatch.setattr(module, "DebeziumStream", Engine)
    monkeypatch.setattr(change_tables, "write_offset", write)
    monkeypatch.setattr(sqlserver_source, "opened", found.opened)
    monkeypatch.setattr(change_handler, "PAUSE", 0.0)
    return found


def follow(path: Path, **more: Any) -> list[str]:
    said: list[str] = []
    Capture(Landing(path), CaptureOptions(SOURCE, **more), said.append).run(once=True)
    return said


def rows(path: Path, table: str, names: list[str]) -> dict[tuple[Any, ...], int]:
    result = MirroredDatabase(path, engine="local").sync()
    assert not result.failed, result.failed
    return dict(table_rows(path, table, names))


def test_a_load_and_changes(tmp_path: Path, server: FakeServer) -> None:
    server.add("orders", 11, TYPES)
    server.add("empty", 12, TYPES)
    for number in range(7):
        server.commit(("orders", "c", {"id": number, "v": f"é{number}", "n": "1.50"}))
    said = follow(tmp_path)
    assert "dbo.orders: 7 rows loaded" in said and "dbo.empty: 0 rows loaded" in said
    assert rows(tmp_path, "dbo.orders", ["id", "v", "n"]) == {(n, f"é{n}", Decimal("1.50")): 1 for n in range(7)}
    server.commit(("orders", "d", {"id": 0}), ("orders", "u", {"id": 1, "v": None, "n": "2.00"}))
    server.commit(("empty", "c", {"id": 5, "v": "", "n": None}))
    follow(tmp_path)
    follow(tmp_path)
    found = rows(tmp_path, "dbo.orders", ["id", "v", "n"])
    assert len(found) == 6 and found[1, None, Decimal("2.00")] == 1
    assert rows(tmp_path, "dbo.empty", ["id", "v", "n"]) == {(5, "", None): 1}
    place = Landing(tmp_path).table("empty", schema="dbo").place
    position = newest_position(place).position
    assert position is not None and (position.source, position.last.lsn) == ("sqlserver", server.position)
    assert position.transaction == text_of(server.position) and server.position > 1 << 63
    report = capture_status(Landing(tmp_path))
    assert report is not None and {each["phase"] for each in report["tables"]} == {"streaming"}
    assert not (tmp_path / "Files/LandingZone/_cuts").exists()


def test_a_table_that_gets_a_column_before_its_snapshot_is_read_with_it(
    tmp_path: Path, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The values of the column that are in the snapshot are in no change."""
    table = server.add("orders", 11, {"id": INT})
    server.add("other", 12, {"id": INT})
    server.commit(("orders", "c", {"id": 1}), ("other", "c", {"id": 3}))
    snapshot = SqlServerSource.snapshot

    def after_all(source: Any) -> Any:
        if "v" not in table.types:
            table.types["v"] = TEXT
            table.instances.append((server.position, ("id", "v")))
            server.commit(("orders", "u", {"id": 1, "v": "set"}))
        return snapshot(source)

    monkeypatch.setattr(SqlServerSource, "snapshot", after_all)
    monkeypatch.setattr(database_capture, "_AGAIN", (0.0,) * 4)
    said = follow(tmp_path)
    assert [each for each in said if "dbo.orders was altered as its load began; tried again" in each], said
    assert [each for each in said if "rows loaded" in each] == ["dbo.other: 1 rows loaded", "dbo.orders: 1 rows loaded"]
    assert rows(tmp_path, "dbo.orders", ["id", "v"]) == {(1, "set"): 1}


def test_how_far_a_load_is(tmp_path: Path, server: FakeServer) -> None:
    server.add("orders", 11, TYPES)
    for number in range(7):
        server.commit(("orders", "c", {"id": number, "v": "x", "n": None}))
    seen: list[tuple[str, int, int | None]] = []
    Capture(Landing(tmp_path), CaptureOptions(SOURCE), progress=lambda *at: seen.append(at)).run(once=True)
    assert {name for name, *_ in seen} == {"dbo.orders"} and [rows for _, rows, _ in seen] == sorted(
        rows for _, rows, _ in seen
    )
    assert seen[-1][1] == 7 and all(most is None or most >= rows for _, rows, most in seen)


@pytest.mark.parametrize("seed", range(rounds(3, 12)))
def test_random_changes_through_stops(
    tmp_path: Path, server: FakeServer, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The capture dies before and after a file is published, within transactions of several files too."""
    chance = server.chance = random.Random(seed)
    true = TableStream._publish
    monkeypatch.setattr(change_handler, "MOST_PENDING", 500)

    class Killed(BaseException):
        pass

    def publish(self: TableStream, *given: Any) -> None:
        if chance.random() < 0.2:
            raise Killed
        true(self, *given)
        if chance.random() < 0.2:
            raise Killed

    server.add("a", 11, TYPES)
    server.add("b", 12, TYPES)
    for number in range(3):
        server.commit(("a", "c", {"id": number, "v": "first", "n": None}))
    follow(tmp_path)
    monkeypatch.setattr(TableStream, "_publish", publish)
    for _ in range(8):
        for _ in range(chance.randrange(1, 5)):
            changes = []
            known = {name: {key[0] for key in server.tables["dbo", name].rows} for name in "ab"}
            for _ in range(chance.randrange(1, 9)):
                name, number = chance.choice("ab"), chance.randrange(6)
                if number in known[name] and chance.random() < 0.4:
                    known[name].discard(number)
                    changes.append((name, "d", {"id": number}))
                else:
                    op = "u" if number in known[name] else "c"
                    known[name].add(number)
                    row = {"id": number, "v": chance.choice(["x", None, "ü" * 40]), "n": f"{chance.randrange(99)}.25"}
                    changes.append((name, op, row))
            server.commit(*changes)
        try:
            follow(tmp_path)
        except Killed:
            continue
    monkeypatch.setattr(TableStream, "_publish", true)
    follow(tmp_path)
    for name in "ab":
        expected = {(row["id"], row["v"], row["n"] and Decimal(row["n"])): 1
                    for row in server.tables["dbo", name].rows.values()}  # fmt: skip
        assert rows(tmp_path, f"dbo.{name}", ["id", "v", "n"]) == expected


def test_a_key_that_changes(tmp_path: Path, server: FakeServer) -> None:
    """As one update, too, in case the connector gives it as one; with a value that was not sent."""
    server.add("t", 11, {"id": INT, "v": LONG})
    server.commit(("t", "c", {"id": 1, "v": "long"}))
    follow(tmp_path)
    table = server.tables["dbo", "t"]
    asked: list[tuple[str, tuple[str, ...]]] = []

    def read(self: FakeSession, query: str, values: Any) -> list[tuple[str | None, ...]]:
        if not query.startswith("SELECT [v] FROM [dbo].[t]"):
            return true(self, query, values)
        asked.append((query, values))
        return [("long",)]

    true, FakeSession._setting = FakeSession._setting, read  # type: ignore[method-assign]
    try:
        table.rows = {(2,): {"id": 2, "v": "long"}}
        server.position += 1
        unsent = change_tables.UNSENT
        server.log.append((server.position, [("t", "u", {"id": 1, "v": None}, {"id": 2, "v": unsent})]))
        follow(tmp_path)
    finally:
        FakeSession._setting = true  # type: ignore[method-assign]
    assert asked == [("SELECT [v] FROM [dbo].[t] WHERE [id] = ?", ("2",))]
    assert rows(tmp_path, "dbo.t", ["id", "v"]) == {(2, "long"): 1}
    server.commit(("t", "u", {"id": 2, "v": unsent}))
    follow(tmp_path)
    assert rows(tmp_path, "dbo.t", ["id", "v"]) == {(2, "long"): 1}


def test_a_new_column_comes_with_its_change_table(tmp_path: Path, server: FakeServer) -> None:
    table = server.add("t", 11, TYPES)
    server.commit(("t", "c", {"id": 1, "v": "a", "n": None}))
    follow(tmp_path)
    table.types = {**TYPES, "w": TEXT}
    for row in table.rows.values():
        row["w"] = "by default"
    server.commit(("t", "c", {"id": 2, "v": "b", "n": None}))
    said = follow(tmp_path)
    assert not [each for each in said if "loaded" in each], said
    assert rows(tmp_path, "dbo.t", ["id", "v"]) == {(1, "a"): 1, (2, "b"): 1}
    needs = [need for need in needs_of(FakeSession(server), OPTIONS) if need.table]
    assert [need.is_advice for need in needs] == [True] and "@capture_instance = N'dbo_t_2'" in needs[0].statement
    server.commit(("t", "c", {"id": 3, "v": "c", "n": None, "w": "new"}))
    table.rows[(2,)]["w"] = None
    table.instances.append((server.position + 1, ("id", "v", "n", "w")))
    server.position += 2
    said = follow(tmp_path)
    assert [each for each in said if "w" in each and "loaded again" in each], said
    assert rows(tmp_path, "dbo.t", ["id", "w"]) == {(1, "by default"): 1, (2, None): 1, (3, "new"): 1}


def test_change_tables_that_are_gone(tmp_path: Path, server: FakeServer) -> None:
    first, second = server.add("a", 11, TYPES), server.add("b", 12, TYPES)
    for name in "ab":
        server.commit((name, "c", {"id": 1, "v": name, "n": None}))
    follow(tmp_path)
    server.commit(("b", "c", {"id": 2, "v": "unseen", "n": None}))
    server.log.pop()
    second.instances = [(server.position, tuple(TYPES))]
    said = follow(tmp_path)
    assert [each for each in said if "b: 2 rows loaded" in each] and not [each for each in said if "a: " in each], said
    assert rows(tmp_path, "dbo.b", ["id", "v"]) == {(1, "b"): 1, (2, "unseen"): 1}
    server.position += 0x10_0000
    first.instances = second.instances = [(server.position, tuple(TYPES))]
    with pytest.raises(LakemirrorError, match="capture-position-lost"):
        follow(tmp_path)
    follow(tmp_path, reload=("all",))
    server.position, server.log = FIRST, []
    first.instances = second.instances = [(FIRST, tuple(TYPES))]
    with pytest.raises(LakemirrorError, match=r"capture-position-lost: .*restore"):
        follow(tmp_path)


def test_a_second_capture_of_one_name(server: FakeServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from lakemirror.publisher.capture import source_interface

    monkeypatch.setattr(source_interface, "_WAIT", 0.0)
    server.add("t", 11, TYPES)
    server.locks.add("lakemirror/lakemirror_shop")
    with pytest.raises(LakemirrorError, match="capture-taken"):
        follow(tmp_path)


def test_a_value_that_cannot_be_kept_stops_its_table_alone(tmp_path: Path, server: FakeServer) -> None:
    server.add("bad", 11, {"id": INT, "at": ("datetime2", 8, 23, 3)})
    server.add("good", 12, TYPES)
    server.commit(("bad", "c", {"id": 7, "at": "1582-10-20T00:00:00Z"}), ("good", "c", {"id": 1, "v": "x", "n": None}))
    said = follow(tmp_path)
    assert [each for each in said if "capture-value" in each and "row 7: column at of type datetime2(3)" in each], said
    assert rows(tmp_path, "dbo.good", ["id"]) == {(1,): 1}


def test_a_table_that_the_stream_leaves_out_is_stopped_also_where_it_was_loaded_meanwhile(
    tmp_path: Path, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL's stream leaves out a table with a change that is too large, for as long as the process lives."""

    class Answers:
        """A connection that knows no slot, and the largest change."""

        def execute(self, query: str, values: Any) -> Answers:
            is_asked = query == change_log._LARGEST and not values[2]
            self.row = (12, 240 << 20, 5, [b"R\0\0\0\x0cdbo\0t\0"]) if is_asked else None
            return self

        def fetchone(self) -> Any:
            return self.row

        def fetchall(self) -> Any:
            return []

    class Stream:
        def __init__(self, *_: Any) -> None:
            """Is not reached for the table that is left out."""

    monkeypatch.setattr(change_log, "_LEFT_OUT", {})
    monkeypatch.setattr(change_log, "DebeziumStream", Stream)
    monkeypatch.setattr(change_log.ChangeLog, "properties", lambda self: {})
    log = change_log.ChangeLog(Answers(), "slot")
    error = log._too_large({})
    assert isinstance(error, LakemirrorError) and error.code == "capture-value" and log._too_large({}) is None

    true = sqlserver_source.ChangeTables.stream

    def stream(self: Any, start: int, tables: Any, step: Any) -> Any:
        log.stream(start, tables, step)
        return true(self, start, tables, step)

    monkeypatch.setattr(sqlserver_source.ChangeTables, "stream", stream)
    for number, name in enumerate(("good", "t"), 11):
        server.add(name, number, TYPES)
        server.commit((name, "c", {"id": 1, "v": "x", "n": None}))
    said = follow(tmp_path)  # both are loaded: `t` behind its large change
    assert [
        each for each in said if each.startswith("dbo.t stopped: capture-value: dbo.t: a change that takes 240 MiB")
    ]
    server.commit(("good", "c", {"id": 2, "v": "y", "n": None}))
    follow(tmp_path)
    assert rows(tmp_path, "dbo.good", ["id"]) == {(1,): 1, (2,): 1}
    state = read_state(Landing(tmp_path).table("t", schema="dbo").place)
    assert state is not None and (state.phase, state.error_code) == ("stopped", "capture-value")


def test_a_load_that_does_not_end_is_an_error(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.add("t", 11, TYPES)
    monkeypatch.setattr(FakeEngine, "_load", lambda self: None)
    with SqlServerSource(OPTIONS) as source, pytest.raises(LakemirrorError, match="before its last row"):
        source.load(source.tables()[0], lambda _: 0)


@pytest.mark.parametrize(
    ("setting", "value", "statement"),
    [
        ("cdc", "0", "EXEC sys.sp_cdc_enable_db;"),
        ("snapshot", "0", "ALTER DATABASE [shop] SET ALLOW_SNAPSHOT_ISOLATION ON;"),
        ("agent", "1", "-- start that service"),
        ("cdc_select", "0", "GRANT SELECT ON SCHEMA::cdc TO [me];"),
        ("retention", "60", "EXEC sys.sp_cdc_change_job @job_type = N'cleanup', @retention = 4320;"),
    ],
)
def test_what_the_database_needs(server: FakeServer, tmp_path: Path, setting: str, value: str, statement: str) -> None:
    server.add("t", 11, TYPES)
    server.settings[setting] = value
    found = {need.statement: need for need in needs_of(FakeSession(server), OPTIONS)}
    assert statement in found
    if found[statement].is_advice:
        follow(tmp_path)
        return
    with pytest.raises(LakemirrorError, match="capture-not-ready") as error:
        follow(tmp_path)
    assert error.value.hint == f"Run in the source: {statement}"


def test_check_says_that_no_server_was_tried(server: FakeServer) -> None:
    server.add("t", 11, TYPES)
    first, *others = needs_of(FakeSession(server), OPTIONS)
    assert "was not tried" in first.what and first.is_advice and not others


@pytest.mark.parametrize(
    ("change", "code", "hint"),
    [
        ({"key": ()}, "capture-no-key", "ADD PRIMARY KEY"),
        ({"instances": []}, "capture-not-ready",
         "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = NULL;"),
        ({"instances": [(FIRST, ("v", "n"))]}, "capture-not-ready", "@capture_instance = N'dbo_t_2'"),
        ({"types": {"id": INT, "x": ("xml", -1, 0, 0)}, "instances": [(FIRST, ("id", "x"))]}, "capture-value",
         "--exclude dbo.t"),
    ],
)  # fmt: skip
def test_tables_that_cannot_be_captured(server: FakeServer, change: dict[str, Any], code: str, hint: str) -> None:
    table = server.add("t", 11, TYPES)
    for name, value in change.items():
        setattr(table, name, value)
    with SqlServerSource(OPTIONS) as source:
        (found,) = source.tables()
    assert found.problem is not None and found.problem.code == code
    assert hint in (found.problem.hint or "")


def test_columns_without_values_in_the_log_are_left_out(server: FakeServer) -> None:
    server.add("t", 11, {**TYPES, "sum": INT}, computed=("sum",))
    with SqlServerSource(OPTIONS) as source:
        (found,) = source.tables()
        assert [column.name for column in found.columns] == ["id", "v", "n"] and found.left_out == ("sum",)
        assert set(source.log.types("dbo", "t")) == {"id", "v", "n", "sum"}


def kind_of(name: str) -> TypeName:
    base, *sizes = re.findall(r"\w+", name)
    numbers = [-1 if each == "max" else int(each) for each in sizes]
    if base in ("decimal", "numeric"):
        return TypeName(base, 0, *numbers)
    if base in ("time", "datetime2", "datetimeoffset"):
        return TypeName(base, 8, 0, *numbers)
    length = numbers[0] if numbers else 0
    return TypeName(base, length * 2 if base.startswith("n") and length > 0 else length)


EXPECTED: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bit": (pa.bool_(), [True]),
    "tinyint": (pa.int16(), [255]),
    "smallint": (pa.int16(), [-32768]),
    "int": (pa.int32(), [-(2**31)]),
    "bigint": (pa.int64(), [2**63 - 1]),
    "real": (pa.float32(), [pytest.approx(1.1, abs=1e-7)]),
    "float": (pa.float64(), [0.1]),
    "decimal(38,10)": (pa.decimal128(38, 10), [Decimal("-1234567890123456789012345678.0123456789")]),
    "numeric(6,3)": (pa.decimal128(6, 3), [Decimal("1.120")]),
    "money": (pa.decimal128(19, 4), [Decimal("-922337203685477.5808")]),
    "smallmoney": (pa.decimal128(10, 4), [Decimal("5.3230")]),
    "char(5)": (pa.string(), ["cc"]),
    "nchar(3)": (pa.string(), ["cč"]),
    "varchar(10)": (pa.string(), ["v  "]),
    "nvarchar(max)": (pa.string(), ["tč 🌷"]),
    "uniqueidentifier": (pa.string(), ["6f9619ff-8b86-d011-b42d-00c04fc964ff"]),
    "binary(3)": (pa.binary(), [b"\0\1\xff"]),
    "varbinary(max)": (pa.binary(), [b"\xfe"]),
    "timestamp": (pa.binary(), [b"\0\0\0\0\0\0\x07\xd1"]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    "time(2)": (pa.string(), ["10:23:45.68"]),
    "time(7)": (pa.string(), ["23:59:59.9999999", "00:00:00"]),
    "datetime": (pa.timestamp("us"), [dt.datetime(1753, 1, 1), dt.datetime(2018, 7, 13, 13, 23, 45, 997000)]),
    "smalldatetime": (pa.timestamp("us"), [dt.datetime(2018, 7, 13, 14, 24)]),
    "datetime2(3)": (pa.timestamp("us"), [dt.datetime(1, 1, 1, 0, 0, 0, 1000)]),
    "datetime2(6)": (pa.timestamp("us"), [dt.datetime(9999, 12, 31, 23, 59, 59, 999999)]),
    "datetime2(7)": (pa.string(), ["9999-12-31T23:59:59.9999999", "1969-12-31T23:59:59.1234567"]),
    "datetimeoffset(3)": (pa.timestamp("us", "UTC"), [dt.datetime(2018, 7, 13, 1, 23, 45, 456000, tzinfo=UTC)]),
    "datetimeoffset(7)": (pa.string(), ["2018-07-12T23:53:45.4560001-01:30"]),
    "datetimeoffset(0)": (pa.timestamp("us", "UTC"), [dt.datetime(1960, 1, 1, 1, 2, 3, tzinfo=UTC)]),
    "datetimeoffset(6)": (pa.timestamp("us", "UTC"), [None, None]),
}
"""None: the value cannot be kept. Debezium gives fractions before 1970 a second too late: 01:02:03.5 as 01:02:04.5."""


@pytest.mark.parametrize(("name", "connect", "values"), RECORDED, ids=[each[0] for each in RECORDED])
def test_values_are_exact_or_refused(name: str, connect: str, values: list[Any]) -> None:
    column = source_column("x", kind_of(name))
    kind, expected = EXPECTED[name]
    assert (column.type_name, column.arrow_type) == (name, kind) and not column.refused
    for value, wanted in zip(values, expected, strict=True):
        given = pa.array([None, value], _RAW_TYPES.get(connect, pa.string()))
        if wanted is None:
            with pytest.raises(BadValue) as bad:
                column.from_event(given)
            assert bad.value.place == 1
        else:
            found = column.from_event(given)
            assert found.type == kind and found.to_pylist() == [None, wanted]


@pytest.mark.parametrize(
    "name", ["xml", "text", "ntext", "image", "hierarchyid", "geography", "geometry", "sql_variant", "json"]
)
def test_types_that_are_refused(name: str) -> None:
    assert f"column x of type {name} is not captured" in source_column("x", TypeName(name)).refused


def test_a_type_that_was_changed_is_no_value_of_another() -> None:
    with pytest.raises(BadValue):
        source_column("x", TypeName("varchar", 10)).from_event(pa.array([1], pa.int64()))


@pytest.mark.parametrize("text", ["00000027:00000ac0:0002", "ffffffff:ffffffff:ffff", "00000000:00000000:0000"])
def test_positions(text: str) -> None:
    assert text_of(position_of(text)) == text
    assert position_of(text.replace(":", "").upper()) == position_of(text)
    assert (
        position_of("00000027:00000ac0:0003")
        > position_of("00000027:00000ac0:0002")
        > position_of("00000026:ffffffff:ffff")
    )


def test_the_address_and_its_password() -> None:
    at = address_of(CaptureOptions("sqlserver://me%40x:p%2Fw@db.example:14330/my%20shop?encrypt=true"))
    assert (at.host, at.port, at.database, at.user, at.password) == ("db.example", 14330, "my shop", "me@x", "p/w")
    assert "p/w" not in repr(at) and at.driver == {"encrypt": "true"}
    for wrong in ("sqlserver://me:s3cret@host", "sqlserver://me:s3cret@h/d?password=x", "sqlserver://me:s3cret@h:x/d",
                  "sqlserver://me:s3cret@h/d;e"):  # fmt: skip
        with pytest.raises(LakemirrorError, match="input-invalid") as error:
            address_of(CaptureOptions(wrong))
        assert "s3cret" not in str(error.value)


def test_sqlserver_is_a_kind_of_source() -> None:
    assert isinstance(open_source(OPTIONS), SqlServerSource) and source_class(OPTIONS).asks_by_java
    assert not open_source(OPTIONS).give_back()


def test_names_in_debezium_s_patterns() -> None:
    found = properties_of(OPTIONS, [("dbo", "a,b.c[d]"), ("my schema", "t")])["table.include.list"]
    assert found == r"dbo\.a\,b\.c\[d\],my\ schema\.t"
    assert streaming(OPTIONS, [], Path("/x"))["snapshot.isolation.mode"] == "snapshot"
