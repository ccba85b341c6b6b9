"""Statistics of a history by Spark, a publisher and ourselves: no reader loses a row by skipping (contract section 10).

Each filter is asked twice of the same reader: as a filter, and as a sum over all rows, by which nothing is skipped.
"""

from __future__ import annotations

import datetime
import re
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lakemirror.delta.commit import commit as put_commit
from lakemirror.delta.deletion_vectors import delete_rows
from lakemirror.delta.log import Action, Snapshot, read_snapshot
from lakemirror.delta.statistics import parse_statistics
from lakemirror.engines.kernels.add_files import add_file, unsupported_reason
from lakemirror.engines.kernels.nested_types import arrow_type
from lakemirror.engines.kernels.write import write_rows
from lakemirror.engines.row_work import ChangeUnit
from lakemirror.engines.target import target_of
from lakemirror.landing_zone.column_types import file_columns

UTC = datetime.timezone.utc
Ask: TypeAlias = Callable[[str], list[tuple[Any, ...]]]
"""A query on the table `t` of one reader, and its rows."""

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
    target = target_of(str(path), snapshot(path).metadata.value)
    theirs = tmp_path / f"{1:020}.parquet"
    pq.write_table(rows(2), theirs, use_dictionary=["s", "i"])
    footer = pq.read_metadata(theirs)
    unit = ChangeUnit(str(theirs), theirs.name, 1, tuple(file_columns(footer)), footer.num_rows, 1)
    assert unsupported_reason(unit, target, footer) is None
    added = add_file(unit, target, footer)
    assert isinstance(added, dict), added
    commit(path, [{"add": each} for each in [added, *write_rows(rows(3).to_batches(), target)]])
    return path


@pytest.mark.parametrize("all_by_spark", [False, pytest.param(True, marks=pytest.mark.full)])
def test_no_reader_loses_a_row(spark: Any, table: Path, all_by_spark: bool) -> None:
    """`all_by_spark`: Spark is asked every filter, too, not one a column; each of its filters takes its time."""
    (old,) = [add for add in snapshot(table).files.values() if parse_statistics(add)["numRecords"] == 6]
    commit(table, delete_rows(table, {"x": old}, {"x": pa.array([5], pa.int64())}))
    (new,) = [add for add in snapshot(table).files.values() if "deletionVector" in add]
    assert re.sub(r',?"tightBounds":\w+', "", new["stats"]) == re.sub(r',?"tightBounds":\w+', "", old["stats"])
    assert parse_statistics(new)["maxValues"]["n"] == Decimal("9007199254740992.99"), "Spark's bound, then our update"
    for add in snapshot(table).files.values():
        check_bounds(table, add)
    filters = [
        (name, operator, f"{{}} {operator} {literal(type_, value)}")
        for name, (type_, _, _, _, wanted) in COLUMNS.items() if type_ != "boolean"
        for value in wanted for operator in ("=", ">", "<", ">=", "<=")
    ]  # fmt: skip
    one_a_column = list({each[0]: each for each in filters if each[1] == "="}.values())
    filters += [(name, "=", text) for name in NAMES for text in ("{} IS NULL", "{} IS NOT NULL")]
    for reader, ask in (("spark", by_spark(spark, table)), ("duckdb", by_duckdb(table)), ("delta-rs", by_rust(table))):
        chosen = one_a_column if reader == "spark" and not all_by_spark else filters
        asked = [text.format(name) for name, _, text in chosen]
        whole = ask("SELECT " + ", ".join(f"sum(CASE WHEN {text} THEN 1 ELSE 0 END)" for text in asked) + " FROM t")[0]
        lost = []
        for begin in range(0, len(asked), 40):
            part = asked[begin : begin + 40]
            branches = (f"SELECT {n} AS n, count(*) AS c FROM t WHERE {text}" for n, text in enumerate(part))
            found = dict(ask(" UNION ALL ".join(branches)))
            lost += [text for n, text in enumerate(part) if found[n] != whole[begin + n]]
        assert not lost, (reader, lost)
    assert not lost_by_polars(table)


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


def by_spark(spark: Any, table: Path) -> Ask:
    spark.read.format("delta").load(str(table)).createOrReplaceTempView("t")
    return lambda text: [tuple(row) for row in spark.sql(text.replace("_TZ", "")).collect()]


def by_duckdb(table: Path) -> Ask:
    package = pytest.importorskip("duckdb_extension_delta")
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    extension = next((Path(package.__file__).parent / "extensions").rglob("*.duckdb_extension*"))
    connection.execute(f"LOAD '{extension}'")
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"CREATE VIEW t AS SELECT * FROM delta_scan('{table}')")
    return lambda text: connection.execute(text.replace("TIMESTAMP_TZ", "TIMESTAMPTZ")).fetchall()


def by_rust(table: Path) -> Ask:
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(table))

    def ask(text: str) -> list[tuple[Any, ...]]:
        found = pa.table(query.execute(text.replace("_TZ", "")))
        return list(zip(*(column.to_pylist() for column in found.columns), strict=True))

    return ask


def lost_by_polars(table: Path) -> list[tuple[str, str, Any]]:
    """The filters that give Polars other rows when it skips; none where it is not installed."""
    try:
        import polars as pl
    except ImportError:
        return []
    scanned = pl.scan_delta(str(table))
    rows = scanned.collect()
    lost = []
    for name, (_, *_, wanted) in COLUMNS.items():
        for value in wanted:
            for operator in ("eq", "gt", "lt", "ge", "le"):
                wanted = getattr(pl.col(name), operator)(pl.lit(value, dtype=rows.schema[name]))
                if scanned.filter(wanted).collect().height != rows.filter(wanted).height:
                    lost.append((name, operator, value))
    return lost
