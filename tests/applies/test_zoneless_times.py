"""The setting `zoneless`: what times without a zone become, in every reader's eyes, and that it is said (section 6)."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.landing import MARKER, declare, folder, put
from tests.table_rows import read_table

from lakemirror import MirroredDatabase
from lakemirror.delta.checkpoint import write_checkpoint
from lakemirror.delta.log import read_snapshot
from lakemirror.delta.schema import from_delta
from lakemirror.errors import LakemirrorError
from lakemirror.lint import check
from lakemirror.settings.settings import converted
from lakemirror.verify import verify_database
from lakemirror.verify.proof import Options

UTC = dt.timezone.utc
MORNING = dt.datetime(2026, 7, 1, 9, 0, 0, 5)
BERLIN = "Europe/Berlin"
AS = {  # setting: the column's type, its recorded zone, the value of MORNING
    "utc": ("timestamp", "UTC", MORNING.replace(tzinfo=UTC)),
    "ntz": ("timestamp_ntz", "", MORNING),
    BERLIN: ("timestamp", BERLIN, MORNING.replace(hour=7, tzinfo=UTC)),
}


def sync(database: Path, **settings: Any) -> dict[str, LakemirrorError]:
    return MirroredDatabase(database, engine="local", **settings).sync().failed


def local(*times: dt.datetime | None) -> pa.Array:
    return pa.array(times, pa.timestamp("us"))


def column(database: Path, name: str = "at") -> tuple[str, str]:
    """A column's type and zone."""
    snapshot = read_snapshot(database / "Tables/t")
    assert snapshot is not None
    return next((c.type, c.zone) for c in from_delta(snapshot.metadata.value["schemaString"]) if c.name == name)


def values(database: Path, name: str = "at") -> list[Any]:
    """A column as delta-rs reads it, in the order of `id`."""
    import deltalake

    from_table = deltalake.DeltaTable(str(database / "Tables/t"))
    rows = pa.table(deltalake.QueryBuilder().register("t", from_table).execute(f"select id, {name} from t order by id"))
    return [each if each is None or each.tzinfo is None else each.astimezone(UTC) for each in rows[name].to_pylist()]


def said(database: Path) -> list[str]:
    """What the table's warnings say of its times."""
    (table,) = json.loads((database / "Files/Monitoring/tables.json").read_text())["tables"]
    return [each["message"] for each in table["warnings"] if "zone" in each["message"]]


def sound(database: Path) -> None:
    found = verify_database(MirroredDatabase(database).storage, options=Options(against_files=True))
    assert [each for table in found.tables for each in table.findings] == []


def csv(database: Path, number: int, text: str) -> None:
    declare(
        database, "t", ["id"], fileFormat="CSV",
        SchemaDefinition={"Columns": [{"Name": "id", "DataType": "Int32"}, {"Name": "at", "DataType": "DateTime"}]},
    )  # fmt: skip
    (folder(database, "t") / f"{number:020}.csv").write_text(f"id,at\r\n{text}")


@pytest.mark.parametrize("setting", AS)
def test_parquet_files(tmp_path: Path, setting: str) -> None:
    kind, zone, value = AS[setting]
    declare(tmp_path, "t", ["id"])
    winter = dt.datetime(2026, 1, 1, 12)
    put(tmp_path, "t", 1, {"id": [1, 2], "at": local(MORNING, None), "n": pa.array([0, 1], pa.timestamp("ns"))})
    put(tmp_path, "t", 2, {"id": [1, 3], "at": local(winter, MORNING), MARKER: [4, 4]})
    assert sync(tmp_path, zoneless=setting, batch_files=1) == {}
    assert column(tmp_path) == (kind, zone)
    late = winter.replace(hour=11, tzinfo=UTC) if setting == BERLIN else winter.replace(tzinfo=value.tzinfo)
    assert values(tmp_path) == [late, None, value]
    expected = (
        [] if setting == "ntz" else [f"column {c}: its times have no zone and are read in {zone}" for c in ("at", "n")]
    )
    assert [each.removesuffix(" (setting zoneless)") for each in said(tmp_path)] == expected, "once a column"
    sound(tmp_path)


@pytest.mark.parametrize("setting", AS)
def test_delimited_text(tmp_path: Path, setting: str) -> None:
    kind, zone, value = AS[setting]
    csv(tmp_path, 1, "1,2026-07-01 09:00:00.000005\r\n2,\r\n")
    csv(tmp_path, 2, "3,2026-07-01T09:00:00.000005\r\n")
    assert sync(tmp_path, zoneless=setting, settle=0, batch_files=1) == {}
    assert column(tmp_path) == (kind, zone)
    assert values(tmp_path) == [value, None, value]
    assert len(said(tmp_path)) == (setting != "ntz")
    sound(tmp_path)


def test_text_that_names_its_zone_says_nothing(tmp_path: Path) -> None:
    csv(tmp_path, 1, "1,2026-07-01 09:00:00.000005+02:00\r\n")
    assert sync(tmp_path, settle=0) == {}
    assert (column(tmp_path), values(tmp_path), said(tmp_path)) == (("timestamp", ""), [AS[BERLIN][2]], [])


def test_text_with_a_zone_is_no_time_without_one(tmp_path: Path) -> None:
    csv(tmp_path, 1, "1,2026-07-01 09:00\r\n2,2026-07-01 09:00Z\r\n")
    error = sync(tmp_path, zoneless="ntz", settle=0)["t"]
    assert (error.code, error.row, error.column) == ("value-invalid", 3, "at")
    assert "'2026-07-01 09:00Z' names a time zone" in error.message


@pytest.mark.parametrize("text", [False, True], ids=["parquet", "text"])
def test_a_time_that_never_occurs_stops_the_table(tmp_path: Path, text: bool) -> None:
    if text:
        csv(tmp_path, 1, "1,2026-03-29 01:30\r\n2,2026-03-29 02:30\r\n")
    else:
        put(
            tmp_path,
            "t",
            1,
            {"id": [1, 2], "at": local(dt.datetime(2026, 3, 29, 1, 30), dt.datetime(2026, 3, 29, 2, 30))},
        )
    error = sync(tmp_path, zoneless=BERLIN, settle=0)["t"]
    assert (error.code, error.row, error.column) == ("value-invalid", 3 if text else 2, "at")
    assert "does not occur in Europe/Berlin" in error.message


@pytest.mark.parametrize("later", AS)
@pytest.mark.parametrize("first", AS)
@pytest.mark.parametrize("text", [False, True], ids=["parquet", "text"])
def test_a_column_keeps_its_way_when_the_setting_changes(tmp_path: Path, text: bool, first: str, later: str) -> None:
    for number, setting in ((1, first), (2, later)):
        if text:
            csv(tmp_path, number, f"{number},2026-07-01 09:00:00.000005\r\n")
        else:
            put(tmp_path, "t", number, {"id": [number], "at": local(MORNING)})
        assert sync(tmp_path, zoneless=setting, settle=0) == {}
    kind, zone, value = AS[first]
    assert (column(tmp_path), values(tmp_path)) == ((kind, zone), [value, value])
    sound(tmp_path)


def test_a_column_that_had_only_instants_takes_the_setting_of_its_first_time_without_zone(tmp_path: Path) -> None:
    put(tmp_path, "t", 1, {"id": [1], "at": pa.array([MORNING], pa.timestamp("us", "UTC"))})
    sync(tmp_path, zoneless="ntz")
    assert column(tmp_path) == ("timestamp", "")
    put(tmp_path, "t", 2, {"id": [2], "at": local(MORNING)})
    sync(tmp_path, zoneless=BERLIN)
    put(tmp_path, "t", 3, {"id": [3], "at": local(MORNING)})
    sync(tmp_path)
    assert column(tmp_path) == ("timestamp", BERLIN)
    assert values(tmp_path) == [AS["utc"][2], AS[BERLIN][2], AS[BERLIN][2]]
    sound(tmp_path)


def test_instants_do_not_fit_into_times_without_zone(tmp_path: Path) -> None:
    put(tmp_path, "t", 1, {"id": [1], "at": local(MORNING)})
    put(tmp_path, "t", 2, {"id": [2], "at": pa.array([MORNING], pa.timestamp("us", "UTC"))})
    error = sync(tmp_path, zoneless="ntz", on_type_change="widen")["t"]
    assert error.code == "type-changed" and "holds times without a zone" in error.hint
    assert values(tmp_path) == [MORNING]


def test_a_folder_that_is_made_again_takes_the_setting_anew(tmp_path: Path) -> None:
    put(tmp_path, "t", 1, {"id": [1], "at": local(MORNING)})
    sync(tmp_path)
    for each in folder(tmp_path, "t").iterdir():
        each.unlink()
    put(tmp_path, "t", 1, {"id": [1], "at": local(MORNING), "b": [1]})
    assert sync(tmp_path, zoneless="ntz") == {}
    assert (column(tmp_path), values(tmp_path)) == (("timestamp_ntz", ""), [MORNING])


def test_int96_is_an_instant_whatever_the_setting(tmp_path: Path) -> None:
    put(tmp_path, "t", 1, {"id": [1], "at": local(MORNING)}, use_deprecated_int96_timestamps=True)
    assert sync(tmp_path, zoneless=BERLIN) == {}
    assert (column(tmp_path), values(tmp_path), said(tmp_path)) == (("timestamp", ""), [AS["utc"][2]], [])
    sound(tmp_path)


@pytest.mark.parametrize("setting", ["ntz", BERLIN])
def test_times_as_keys_through_everything_that_reads_tables(tmp_path: Path, setting: str) -> None:
    """Key look-ups, statistics, change feed, a checkpoint, compaction, and every reader that is installed."""
    polars = pytest.importorskip("polars")
    declare(tmp_path, "t", ["at"])
    count = 40
    times = [MORNING + dt.timedelta(days=place) for place in range(count)]
    settings: dict[str, Any] = {"zoneless": setting, "change_data_feed": True, "maintenance": False}
    for number in range(10):
        part = slice(4 * number, 4 * number + 4)
        put(tmp_path, "t", number + 1, {"at": local(*times[part]), "id": list(range(count))[part]})
        sync(tmp_path, **settings)
    put(tmp_path, "t", 11, {"at": local(times[0], times[1]), "id": [-1, None], MARKER: [1, 2]})
    sync(tmp_path, **settings)
    table = tmp_path / "Tables/t"
    snapshot = read_snapshot(table)
    assert snapshot is not None
    assert list((table / "_change_data").iterdir())
    write_checkpoint(snapshot)
    put(tmp_path, "t", 12, {"at": local(times[2]), "id": [-2], MARKER: [4]})
    sync(tmp_path, **{**settings, "maintenance": True})
    snapshot = read_snapshot(table)
    assert snapshot is not None
    assert ("timestampNtz" in (snapshot.protocol.reader_features or ())) == (setting == "ntz")
    summer = dt.timedelta(hours=2) if setting == BERLIN else dt.timedelta()
    wanted = sorted([(-1, times[0] - summer), (-2, times[2] - summer)] + [
        (place, times[place] - summer) for place in range(3, count)
    ])  # fmt: skip
    assert [
        (a, b.replace(tzinfo=None)) for a, b in zip(sorted(r[0] for r in wanted), values(tmp_path), strict=True)
    ] == wanted
    found = read_table(table, ["id", "at"])
    assert sorted((row["id"], row["at"].replace(tzinfo=None)) for row in found.to_pylist()) == wanted
    assert (found.schema.field("at").type.tz is None) == (setting == "ntz")
    frame = polars.scan_delta(str(table)).sort("id").collect()
    assert [(a, b.replace(tzinfo=None)) for a, b in frame.select("id", "at").rows()] == wanted
    assert (frame.schema["at"].time_zone is None) == (setting == "ntz")
    sound(tmp_path)


def test_a_declared_reader_that_cannot_read_such_a_column(tmp_path: Path) -> None:
    put(tmp_path, "t", 1, {"id": [1], "at": local(MORNING)})
    error = sync(tmp_path, zoneless="ntz", readers="delta-rs@0.15")["t"]
    assert error.code == "type-unsupported" and "declared reader cannot read" in error.message
    assert sync(tmp_path, readers="delta-rs@0.15") == {}


@pytest.mark.parametrize("setting", AS)
def test_check_says_it_once_a_column(tmp_path: Path, setting: str) -> None:
    (tmp_path / "mirroring.json").write_text(json.dumps({"lakemirror": {"zoneless": setting}}))
    for number in (1, 2):
        put(tmp_path, "t", number, {"id": [number], "at": local(MORNING)})
    csv_folder = tmp_path / "other"
    csv(csv_folder, 1, "1,2026-07-01 09:00\r\n")
    csv(csv_folder, 2, "2,2026-07-01 09:00\r\n")
    (csv_folder / "mirroring.json").write_text(json.dumps({"lakemirror": {"zoneless": setting}}))
    for database in (tmp_path, csv_folder):
        found = [each.message for each in check(database) if each.code == "value-converted"]
        zone = AS[setting][1]
        wanted = f"column at: its times have no zone and are read in {zone} (setting zoneless)"
        assert found == ([] if setting == "ntz" else [wanted])


def test_the_setting_is_checked() -> None:
    assert [converted("zoneless", each) for each in ("UTC", "Ntz", BERLIN)] == ["utc", "ntz", BERLIN]
    for wrong in ("Europe/Berln", "../../etc/passwd", "", "Europe"):
        with pytest.raises(LakemirrorError) as caught:
            converted("zoneless", wrong)
        assert caught.value.code == "setting-invalid"
