"""Times without a zone from every source: what they become by `zoneless`, and that it is said once a column."""

from __future__ import annotations

import datetime as dt
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from tests.commands import CommandRunner

from lakemirror import MirroredDatabase
from lakemirror.cli.publish import publish
from lakemirror.cli.verify import verify
from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing, LandingTable
from lakemirror.publisher.sources.file_options import FileOptions
from lakemirror.publisher.sources.files import publish_files
from lakemirror.publisher.sql import publish_sql

UTC = dt.timezone.utc
MORNING = dt.datetime(2026, 7, 1, 9)
BERLIN = "Europe/Berlin"
INSTANT = {"utc": MORNING.replace(tzinfo=UTC), BERLIN: MORNING.replace(hour=7, tzinfo=UTC)}
SETTINGS = ["", "utc", "ntz", BERLIN]


def arrow(table: LandingTable, _: Path) -> None:
    table.upsert(pa.table({"id": [1], "at": pa.array([MORNING], pa.timestamp("ns"))}))


def rows(table: LandingTable, _: Path) -> None:
    table.upsert([{"id": 1, "at": MORNING}])


def text(table: LandingTable, folder: Path) -> None:
    (folder / "t.csv").write_text("id,at\n1,2026-07-01 09:00:00\n")
    publish_files(table, [folder / "t.csv"])


def german_text(table: LandingTable, folder: Path) -> None:
    (folder / "t.csv").write_text("id;at\n1;01.07.2026 09:00\n")
    publish_files(table, [folder / "t.csv"], options=FileOptions(delimiter=";", timestamp_format="dd.MM.yyyy HH:mm"))


def workbook(table: LandingTable, folder: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["id", "at"], [1, MORNING]):
        book.active.append(row)
    book.save(folder / "t.xlsx")
    publish_files(table, [folder / "t.xlsx"])


def json_lines(table: LandingTable, folder: Path) -> None:
    (folder / "t.jsonl").write_text('{"id": 1, "at": "2026-07-01 09:00"}\n')
    table.columns["at"] = pa.timestamp("us", None if table.zoneless in ("", "ntz") else "UTC")
    publish_files(table, [folder / "t.jsonl"])


def duckdb(table: LandingTable, folder: Path) -> None:
    module = pytest.importorskip("duckdb")
    if not (folder / "t.db").exists():
        module.connect(str(folder / "t.db")).close()
    publish_sql(table, f"duckdb:///{folder}/t.db", "select 1 as id, timestamp '2026-07-01 09:00' as at", "upsert")


SOURCES: list[Callable[[LandingTable, Path], None]] = [
    arrow, rows, text, german_text, workbook, json_lines, duckdb,
]  # fmt: skip


def said(action: Callable[[], object]) -> list[str]:
    """What is warned of about times without a zone."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        action()
    return [str(each.message) for each in caught if "without a zone" in str(each.message)]


def newest(table: LandingTable) -> pa.ChunkedArray:
    return pq.read_table(max(table.folder.glob("0*.parquet")))["at"]


@pytest.mark.parametrize("zoneless", SETTINGS)
@pytest.mark.parametrize("source", SOURCES, ids=lambda each: each.__name__)
def test_each_source(tmp_path: Path, source: Callable[[LandingTable, Path], None], zoneless: str) -> None:
    """The first time, and again in the types of the first time by a new process."""
    for _ in range(2):
        table = Landing(tmp_path).table("t", ["id"], zoneless=zoneless)
        about = said(lambda: source(table, tmp_path))  # noqa: B023
        assert len(about) == (not zoneless), about
        assert all("column at has times without a zone" in each for each in about)
        column = newest(table)
        found = column[0].as_py()
        if zoneless in INSTANT:
            assert (column.type.tz, found) == ("UTC", INSTANT[zoneless])
        elif found.tzinfo is not None:  # text that is read as declared: as UTC, as it always was
            assert (source, found, zoneless) == (german_text, INSTANT["utc"], "")
        else:
            assert found == MORNING


@pytest.mark.parametrize("zoneless", ["", "utc", "ntz", BERLIN])
@pytest.mark.parametrize("plain", [True, False])
def test_text_into_a_column_of_instants(tmp_path: Path, plain: bool, zoneless: str) -> None:
    """Such a column is what it is: `ntz` has no say, and what it cannot say is said."""
    Landing(tmp_path).table("t", ["id"]).upsert(
        pa.table({"id": [0], "at": pa.array([MORNING], pa.timestamp("us", "UTC"))})
    )
    (tmp_path / "t.csv").write_text("id,at\n1,2026-07-01 09:00:00\n2,2026-07-01T09:00:00+01:00\n")
    table = Landing(tmp_path).table("t", ["id"], zoneless=zoneless)
    form = FileOptions() if plain else FileOptions(thousands="_")
    about = said(lambda: publish_files(table, [tmp_path / "t.csv"], options=form))
    assert len(about) == (zoneless in ("", "ntz"))
    first = INSTANT.get(zoneless, INSTANT["utc"])
    assert newest(table).to_pylist() == [first, MORNING.replace(hour=8, tzinfo=UTC)]


def test_a_workbook_into_a_column_of_instants(tmp_path: Path) -> None:
    Landing(tmp_path).table("t", ["id"]).upsert(
        pa.table({"id": [0], "at": pa.array([MORNING], pa.timestamp("us", "UTC"))})
    )
    assert len(said(lambda: workbook(Landing(tmp_path).table("t"), tmp_path))) == 1
    table = Landing(tmp_path).table("t", zoneless=BERLIN)
    assert said(lambda: workbook(table, tmp_path)) == []
    assert newest(table).to_pylist() == [INSTANT[BERLIN]]


def test_times_that_never_occur_are_refused(tmp_path: Path) -> None:
    table = Landing(tmp_path).table("t", ["id"], zoneless=BERLIN)
    with pytest.raises(LakemirrorError) as caught:
        table.upsert([{"id": 1, "at": dt.datetime(2026, 3, 29, 2, 30)}])
    assert (caught.value.code, caught.value.column) == ("value-invalid", "at")
    (tmp_path / "t.csv").write_text("id;at\n1;2026-03-29 02:30\n")
    with pytest.raises(LakemirrorError, match="does not occur in Europe/Berlin"):
        publish_files(table, [tmp_path / "t.csv"], options=FileOptions(delimiter=";"))
    assert not list(tmp_path.rglob("0*.parquet"))
    with pytest.raises(LakemirrorError) as caught:
        Landing(tmp_path).table("t", zoneless="Mars/Olympus")
    assert caught.value.code == "setting-invalid"


@pytest.mark.parametrize("source", [arrow, rows, text], ids=lambda each: each.__name__)
def test_what_times_are_can_be_said_later(tmp_path: Path, source: Callable[[LandingTable, Path], None]) -> None:
    """The warning asks for it. A column that is said to keep its times takes no instants."""
    said(lambda: source(Landing(tmp_path).table("t", ["id"]), tmp_path))
    assert said(lambda: source(Landing(tmp_path).table("t", ["id"], zoneless=BERLIN), tmp_path)) == []
    table = Landing(tmp_path).table("t", ["id"], zoneless="ntz")
    assert newest(table).to_pylist() == [INSTANT[BERLIN]]
    with pytest.raises(LakemirrorError) as caught:
        table.upsert(pa.table({"id": [1], "at": pa.array([MORNING], pa.timestamp("us", "UTC"))}))
    assert caught.value.code == "type-changed"


@pytest.mark.parametrize("declared", [False, True])
def test_python_rows_into_a_column_of_instants(tmp_path: Path, declared: bool) -> None:
    """Times and text, in the type of before and in a named one."""
    kind = pa.timestamp("us", "UTC")
    Landing(tmp_path).table("t", ["id"]).upsert(pa.table({"id": [0], "at": pa.array([MORNING], kind)}))
    columns = pa.schema([("at", kind)]) if declared else None
    table = Landing(tmp_path).table("t", ["id"], columns=columns, zoneless=BERLIN)
    table.upsert([{"id": 1, "at": MORNING}])
    assert newest(table).to_pylist() == [INSTANT[BERLIN]]
    table.upsert([{"id": 1, "at": "2026-07-01 09:00:00"}, {"id": 2, "at": "2026-07-01T09:00:00+01:00"}])
    assert newest(table).to_pylist() == [INSTANT[BERLIN], MORNING.replace(hour=8, tzinfo=UTC)]
    with pytest.raises(LakemirrorError, match=r"row 1, column at: .* does not occur in Europe/Berlin"):
        table.upsert([{"id": 1, "at": dt.datetime(2026, 3, 29, 2, 30)}])


def test_text_of_sqlite_in_a_zone(tmp_path: Path) -> None:
    import sqlite3

    sqlite3.connect(tmp_path / "s.db").close()
    columns = pa.schema([("at", pa.timestamp("us", "UTC"))])
    table = Landing(tmp_path).table("t", ["id"], columns=columns, zoneless=BERLIN)
    publish_sql(table, f"sqlite:///{tmp_path}/s.db", "select 1 as id, '2026-07-01 09:00' as at", "upsert")
    assert newest(table).to_pylist() == [INSTANT[BERLIN]]


def test_a_snapshot_whose_zone_changes_is_refused(tmp_path: Path) -> None:
    content = pa.table({"id": [1], "at": pa.array([MORNING], pa.timestamp("us"))})
    said(lambda: Landing(tmp_path).table("t", ["id"]).publish_snapshot(content))
    with pytest.raises(LakemirrorError) as caught:
        Landing(tmp_path).table("t", ["id"], zoneless=BERLIN).publish_snapshot(content)
    assert caught.value.code == "type-changed" and "recreate" in caught.value.hint


def test_the_command_takes_it_and_verify_too(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    (tmp_path / "t.csv").write_text("id,at\n1,2026-07-01 09:00:00\n")
    app = typer.Typer()
    app.command()(publish)
    db = str(tmp_path / "shop")
    arguments = [db, "t", "--from", str(tmp_path / "t.csv"), "--keys", "id", "--create"]
    wrong = CommandRunner().invoke(app, [*arguments, "--zoneless", "Mars"])
    assert wrong.exit_code == 2 and "setting-invalid" in wrong.output
    assert "without a zone" in CommandRunner().invoke(app, [*arguments, "--mode", "load"]).output
    done = CommandRunner().invoke(app, [*arguments, "--zoneless", BERLIN, "--recreate"])
    assert done.exit_code == 0 and "without a zone" not in done.output
    MirroredDatabase(db, engine="local").sync()
    against = tmp_path / "source.parquet"
    pq.write_table(pa.table({"id": [1], "at": pa.array([MORNING], pa.timestamp("us"))}), against)
    app = typer.Typer()
    app.command()(verify)
    assert CommandRunner().invoke(app, [db, "t", "--against", str(against), "--zoneless", BERLIN]).exit_code == 0
    assert CommandRunner().invoke(app, [db, "t", "--against", str(against)]).exit_code == 3


@pytest.fixture(scope="module")
def times(postgres: str) -> str:
    """A table with every odd date and time that PostgreSQL has."""
    execute(
        postgres, "create table times (id int, at timestamp, day date, hour time)",
        "insert into times values (1, '2026-07-01 09:00', '2026-07-01', '24:00'), "
        "(2, 'infinity', '-infinity', '00:00'),"
        " (3, '0044-03-15 12:00 BC', '0044-03-15 BC', '12:30:00.5')",
    )  # fmt: skip
    return postgres


def execute(url: str, *statements: str) -> None:
    import adbc_driver_postgresql.dbapi

    with adbc_driver_postgresql.dbapi.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        for each in statements:
            cursor.execute(each)


def test_postgresql_by_a_watermark(times: str, tmp_path: Path) -> None:
    """The last value, an instant, is asked for as the source has it."""
    execute(
        times,
        "create table growing_times (id int, at timestamp)",
        "insert into growing_times values (1, '2026-07-01 09:00')",
    )
    table = Landing(tmp_path).table("t", ["id"], zoneless=BERLIN)
    query = "select * from growing_times"
    assert publish_sql(table, times, query, watermark="at") is not None
    execute(times, "insert into growing_times values (2, '2026-07-01 09:30')")
    assert publish_sql(table, times, query, watermark="at") is not None
    assert newest(table).to_pylist() == [dt.datetime(2026, 7, 1, 7, 30, tzinfo=UTC)]
    assert publish_sql(table, times, query, watermark="at") is None


def against(database: Path, url: str, query: str, *more: str) -> Any:
    app = typer.Typer()
    app.command()(verify)
    return CommandRunner().invoke(app, [str(database), "t", "--against", url, "--query", query, *more])


@pytest.mark.parametrize("database", ["postgresql", "duckdb"])
def test_the_end_of_a_day(times: str, tmp_path: Path, database: str) -> None:
    """Once the text `<value out of range: 86400000000>`, on both sides of `verify --against`."""
    url, query = times, "select id, hour from times"
    if database == "duckdb":
        module = pytest.importorskip("duckdb")
        with module.connect(str(tmp_path / "t.db")) as made:
            made.execute("create table times as select * from (values (1, time '24:00'), (2, time '00:00'), "
                         "(3, time '12:30:00.5')) t(id, hour)")  # fmt: skip
        url = f"duckdb:///{tmp_path}/t.db"
    table = Landing(tmp_path).table("t", ["id"])
    with pytest.warns(UserWarning, match="HH:MM:SS"):
        publish_sql(table, url, query)
    found = pq.read_table(table.folder / f"{1:020}.parquet")
    assert dict(zip(found["id"].to_pylist(), found["hour"].to_pylist(), strict=True)) == {
        1: "24:00:00", 2: "00:00:00", 3: "12:30:00.500000",
    }  # fmt: skip
    MirroredDatabase(tmp_path, engine="local").sync()
    done = against(tmp_path, url, query)
    assert done.exit_code == 0, done.output
    if database == "postgresql":
        wrong = against(
            tmp_path, url, "select id, case when id = 1 then '00:00'::time else hour end as hour from times"
        )
        assert wrong.exit_code == 3, "24:00 is not 00:00"


@pytest.mark.parametrize("zoneless", ["ntz", "America/New_York"])
def test_infinity_and_years_before_1(times: str, tmp_path: Path, zoneless: str) -> None:
    query = "select id, at, day from times where id <> 3 or '{zone}' = 'ntz'".replace("{zone}", zoneless)
    table = Landing(tmp_path).table("t", ["id"], zoneless=zoneless)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        publish_sql(table, times, query)
    about = sorted(str(each.message) for each in caught)
    assert sum("infinite dates and times" in each for each in about) == 1
    far = [each for each in about if "outside of the years 1 to 9999" in each]
    assert len(far) == (2 if zoneless == "ntz" else 0), about
    found = pq.read_table(table.folder / f"{1:020}.parquet")
    by_id = {number: row for row, number in enumerate(found["id"].to_pylist())}
    last = found["at"][by_id[2]].as_py().replace(tzinfo=None)
    assert (last, found["day"][by_id[2]].as_py()) == (dt.datetime.max, dt.date.min)
    if zoneless == "ntz":
        assert found["day"].cast(pa.int32())[by_id[3]].as_py() == -735_160  # 44 BC in today's calendar
    else:
        refused = pytest.raises(LakemirrorError, match="years 1 to 9999")
        with refused, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            publish_sql(table, times, "select id, at, day from times")


def test_dates_and_times_as_text_are_as_the_database_writes_them(times: str, tmp_path: Path) -> None:
    columns = pa.schema([("at", pa.string()), ("day", pa.string())])
    table = Landing(tmp_path).table("t", ["id"], columns=columns)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        publish_sql(table, times, "select id, at, day from times order by id")
    found = pq.read_table(table.folder / f"{1:020}.parquet")
    assert found["at"].to_pylist() == ["2026-07-01 09:00:00", "infinity", "0044-03-15 12:00:00 BC"]
    assert found["day"].to_pylist() == ["2026-07-01", "-infinity", "0044-03-15 BC"]
