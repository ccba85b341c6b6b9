"""Statistics of a history by Spark, a publisher and ourselves: no reader loses a row by skipping (contract section 10).

Each filter is asked twice of the same reader: as it is, and in a form by which nothing can be skipped.
"""

from __future__ import annotations

import datetime
import re
import struct
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lakemirror.delta.commit import put_commit
from lakemirror.delta.log import Action, Snapshot, read_snapshot
from lakemirror.delta.row_deletes import delete_rows
from lakemirror.delta.statistics import parse_statistics
from lakemirror.engines.kernels.add_files import add_file, arrow_type, unsupported_reason
from lakemirror.engines.kernels.write import write_rows
from lakemirror.engines.row_work import ChangeUnit
from lakemirror.landing_zone.column_types import file_columns
from lakemirror.replication.table_commit import target_of

UTC = datetime.timezone.utc
NAN = float("nan")


def moment(micro: int) -> datetime.datetime:
    return datetime.datetime(2020, 1, 1, tzinfo=UTC) + datetime.timedelta(microseconds=micro)


# by column: its type, then the values of the file by Spark, of the publisher's and of ours, and what is looked for
COLUMNS: dict[str, tuple[str, list[Any], list[Any], list[Any], list[Any]]] = {
    "i": ("int", [-3, 5], [2**31 - 1, None], [-(2**31), 7], [5, 2**31 - 1]),
    "l": ("bigint", [2**53 + 1, 3], [2**63 - 1, None], [-(2**63), 2**53 + 3], [2**53 + 1, 2**53 + 3, 2**63 - 1]),
    "n": ("decimal(38,4)", [Decimal("9007199254740992.9900"), Decimal(1)], [Decimal("9" * 34 + ".9999"), None],
          [Decimal("-" + "9" * 34 + ".9999"), Decimal("9007199254740993.0100")],
          [Decimal("9007199254740992.5000"), Decimal("9" * 34 + ".9998"), Decimal("9007199254740993.0099")]),
    "d": ("double", [0.1, 5.5], [1e300, 0.0], [-0.0, -0.0], [0.0, 0.1, 1e299]),
    "e": ("double", [1.0, 2.0], [3.0, 4.0], [NAN, 0.5], [2.5, 100.0]),
    "f": ("float", [0.5, 1.5], [16777216.0, None], [-0.0, -0.0], [0.0, 16777215.0]),
    "t": ("timestamp", [moment(5000), moment(9000)], [moment(20_001), None], [moment(30_999), moment(10_001)],
          [moment(20_001), moment(30_998), moment(10_001)]),
    "a": ("date", [moment(0).date(), datetime.date(1600, 1, 1)], [datetime.date(9999, 12, 31), None],
          [datetime.date(1, 1, 1), datetime.date(1500, 3, 3)], [datetime.date(9999, 12, 31), datetime.date(1, 1, 1)]),
    "s": ("string", ["b" * 40, "c"], ["é" * 33, "\U0001f600" * 40], ["a" * 31 + "\x7f" * 9, "zz"],
          ["b" * 40, "é" * 33, "\U0001f600" * 40, "a" * 31 + "\x7f" * 9]),
    "b": ("boolean", [True, False], [None, None], [True, True], []),
    "w": ("smallint", [1, 2], [32767, None], [-32768, 3], [32767]),
}  # fmt: skip
NAMES = list(COLUMNS)


def rows(place: int) -> pa.Table:
    return pa.table({
        name: pa.array(values[place - 1], arrow_type(type_)) for name, (type_, *values) in COLUMNS.items()
    })  # fmt: skip


def snapshot(table: Path) -> Snapshot:
    found = read_snapshot(table)
    assert found is not None
    return found


def commit(table: Path, actions: list[Action]) -> None:
    info = {"timestamp": 1, "operation": "WRITE", "operationParameters": {}, "txnId": str(uuid.uuid4())}
    assert put_commit(str(table), snapshot(table), [{"commitInfo": info}, *actions]) is not None


@pytest.fixture
def table(spark: Any, tmp_path: Path) -> Path:
    """A table with a file of each writer; of the one by Spark, of 3 rows, we delete the last."""
    path = tmp_path / "t"
    columns = ", ".join(f"{name} {type_}" for name, (type_, *_) in COLUMNS.items())
    spark.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta "
              "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")  # fmt: skip
    given = tmp_path / "given.parquet"
    # pyarrow's own conversion to a data frame shifts what is before 1582
    pq.write_table(pa.concat_tables([rows(1), rows(1).slice(0, 1)]), given)
    for _ in range(2):
        spark.read.parquet(str(given)).coalesce(1).write.format("delta").mode("append").save(str(path))
    spark.sql(f"OPTIMIZE delta.`{path}`")
    target = target_of(snapshot(path).metadata.value, (), str(path))
    theirs = tmp_path / f"{1:020}.parquet"
    pq.write_table(rows(2), theirs, use_dictionary=["s", "i"])
    footer = pq.read_metadata(theirs)
    unit = ChangeUnit(str(theirs), theirs.name, 1, tuple(file_columns(footer)), footer.num_rows, 1)
    assert unsupported_reason(unit, target, footer) is None
    added = add_file(unit, target, footer)
    assert isinstance(added, dict), added
    commit(path, [{"add": each} for each in [added, *write_rows(rows(3).to_batches(), target)]])
    return path


def test_no_reader_loses_a_row(spark: Any, table: Path) -> None:
    (old,) = [add for add in snapshot(table).files.values() if parse_statistics(add)["numRecords"] == 6]
    commit(table, delete_rows(table, {"x": old}, {"x": pa.array([5], pa.int64())}))
    (new,) = [add for add in snapshot(table).files.values() if "deletionVector" in add]
    assert re.sub(r',?"tightBounds":\w+', "", new["stats"]) == re.sub(r',?"tightBounds":\w+', "", old["stats"])
    assert parse_statistics(new)["maxValues"]["n"] == Decimal("9007199254740992.99"), "Spark's bound, then our update"
    for add in snapshot(table).files.values():
        check_bounds(table, add)
    filters = [
        (name, f"{{}} {operator} {literal(type_, value)}")
        for name, (type_, _, _, _, sought) in COLUMNS.items() if type_ != "boolean"
        for value in sought for operator in ("=", ">", "<", ">=", "<=")
    ]  # fmt: skip
    filters += [(name, text) for name in NAMES for text in ("{} IS NULL", "{} IS NOT NULL")]
    for reader, count in (
        ("spark", by_spark(spark, table)),
        ("duckdb", by_duckdb(table)),
        ("delta-rs", by_rust(table)),
    ):
        plain = [text.format(name) for name, text in filters]
        hidden = [text.format(f"(CASE WHEN RANDOM() >= 0 THEN {name} END)") for name, text in filters]
        lost = [what for what, one, other in zip(plain, count(plain), count(hidden), strict=True) if one != other]
        assert not lost, (reader, lost)


def literal(type_: str, value: Any) -> str:
    if isinstance(value, datetime.datetime):
        return f"CAST('{value:%Y-%m-%d %H:%M:%S.%f}+00:00' AS TIMESTAMP)".replace("TIMESTAMP", "TIMESTAMP_TZ")
    if isinstance(value, datetime.date):
        return f"CAST('{value.isoformat()}' AS DATE)"
    if type_ == "string":
        return f"'{value}'"
    return f"CAST('{value}' AS {type_.upper()})"


def check_bounds(table: Path, add: Action) -> None:
    """Every bound bounds, every count counts."""
    stats = parse_statistics(add)
    data = pq.read_table(table / add["path"])
    assert stats["numRecords"] == data.num_rows
    for name, nulls in stats["nullCount"].items():
        assert data[name].null_count == nulls, name
    for name in stats["minValues"]:
        type_, values = COLUMNS[name][0], data[name].drop_null()
        assert not pa.types.is_floating(values.type) or not pc.any(pc.is_nan(values)).as_py()
        if type_ == "timestamp":  # Spark writes INT96
            values = values.cast(pa.timestamp("us", "UTC"))
        for value in values.to_pylist():
            low, high = (typed(type_, stats[bound][name]) for bound in ("minValues", "maxValues"))
            assert low <= value <= high, (name, low, value, high)


def typed(type_: str, bound: Any) -> Any:
    if type_ == "timestamp":
        return datetime.datetime.fromisoformat(bound.replace("Z", "+00:00"))
    if type_ == "date":
        return datetime.date.fromisoformat(bound)
    if type_ == "float":
        return struct.unpack("f", struct.pack("f", bound))[0]
    return float(bound) if type_ == "double" else bound


def by_spark(spark: Any, table: Path) -> Any:
    def count(filters: list[str]) -> list[int]:
        found = {}
        for begin in range(0, len(filters), 40):
            branches = " UNION ALL ".join(
                f"SELECT {n} AS n, count(*) AS c FROM delta.`{table}` WHERE {filters[n].replace('_TZ', '')}"
                for n in range(begin, min(begin + 40, len(filters)))
            )
            found.update({row["n"]: row["c"] for row in spark.sql(branches).collect()})
        return [found[n] for n in range(len(filters))]

    return count


def by_duckdb(table: Path) -> Any:
    package = pytest.importorskip("duckdb_extension_delta")
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    extension = next((Path(package.__file__).parent / "extensions").rglob("*.duckdb_extension*"))
    connection.execute(f"LOAD '{extension}'")
    connection.execute("SET TimeZone = 'UTC'")

    def count(filters: list[str]) -> list[int]:
        return [
            connection.execute(
                f"SELECT count(*) FROM delta_scan('{table}') WHERE {text.replace('TIMESTAMP_TZ', 'TIMESTAMPTZ')}"
            ).fetchone()[0]  # type: ignore[index]
            for text in filters
        ]

    return count


def by_rust(table: Path) -> Any:
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(table))

    def count(filters: list[str]) -> list[int]:
        return [
            pa.table(query.execute(f"SELECT count(*) AS c FROM t WHERE {text.replace('_TZ', '')}"))["c"][0].as_py()
            for text in filters
        ]

    return count
