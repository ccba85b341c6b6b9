"""Change files as one DataFrame, with their order and row markers, in the types of the table (contract section 6).

Files of one shape are one scan with an explicit schema: nothing is inferred, the footer has said it all. The order is
the file's number and Parquet's own row index, both from `_metadata`, never from how Spark happens to read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakemirror.landing_zone.column_types import FileColumn, table_type

FILE, ROW, MARKER = "__file__", "__row__", "__marker__"

# What the reader relies on; set on the engine's own session, never on a user's
READ_SETTINGS = {
    "spark.sql.caseSensitive": "false",
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    # a batch's plans are small and known: one job each, not one per stage (half a second an apply)
    "spark.sql.adaptive.enabled": "false",
}


@dataclass(frozen=True)
class Scan:
    """Files that one scan reads: their URIs, their columns, and the name of the marker column, if they have one.

    Each file is named by its number. `constants`: columns that no file holds, with the value of each file's number.
    """

    uris: tuple[str, ...]
    columns: tuple[FileColumn, ...]
    marker: str | None
    constants: Mapping[str, Mapping[int, str | None]] = field(default_factory=dict)


def read_changes(spark: SparkSession, scans: Sequence[Scan], table: Sequence[tuple[str, str]]) -> DataFrame:
    """The rows of all files: the table's columns (name, Spark SQL type), then FILE, ROW and MARKER.

    FILE is the file's number, ROW counts from 0 within it. MARKER is the marker as it stands in the file, as a
    string; NULL where there is none. Columns that a file lacks are NULL.
    """
    frames = [_read(spark, scan, table) for scan in scans]
    result = frames[0]
    for frame in frames[1:]:
        result = result.unionAll(frame)
    return result


def _read(spark: SparkSession, scan: Scan, table: Sequence[tuple[str, str]]) -> DataFrame:
    # options: paths are names, not patterns
    reader = spark.read.option("__globPaths__", "false")
    fields = []
    values: dict[str, SparkColumn] = {}
    marker: SparkColumn = F.lit(None)
    for column in scan.columns:
        spark_type = _spark_type(column)
        if spark_type is None:
            continue
        if column.name in scan.constants:
            values[column.name.lower()] = _constant(scan.constants[column.name])
            continue
        fields.append(T.StructField(column.name, spark_type, True))
        if column.name == scan.marker:
            marker = F.col(quoted(column.name))
        else:
            values[column.name.lower()] = _value(column)
    frame = reader.schema(T.StructType(fields)).parquet(*scan.uris)
    selected = [
        values.get(name.lower(), F.lit(None)).cast(type_).alias(name)  # lossless: `fits` has been asked
        for name, type_ in table
    ]
    return frame.select(
        *selected, _number().alias(FILE), F.col("_metadata.row_index").alias(ROW), marker.cast("string").alias(MARKER)
    )


def _number() -> SparkColumn:
    return F.substring(F.col("_metadata.file_name"), 1, 20).cast("bigint")


def _constant(values: Mapping[int, str | None]) -> SparkColumn:
    """The value of the row's file: one array, made once, and an index into it."""
    first = min(values)
    if len(set(values.values())) == 1:
        return F.lit(values[first]).cast("string")
    items = [F.lit(values.get(number)).cast("string") for number in range(first, max(values) + 1)]
    return F.element_at(F.array(*items), (_number() - (first - 1)).cast("int"))


def _value(column: FileColumn) -> SparkColumn:
    value = F.col(quoted(column.name))
    kind = _plain(column.arrow_type)
    if _nested(column.arrow_type):
        return F.to_json(value, {"ignoreNullFields": "false"})
    if column.encoding == "uuid":
        digits = F.lower(F.hex(value))
        return F.regexp_replace(digits, "(.{8})(.{4})(.{4})(.{4})(.{12})", "$1-$2-$3-$4-$5")
    if column.encoding == "int96":
        return value
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return _micros(column.name)
    if pa.types.is_time(kind):
        return _time_text(column.name, kind.unit)
    return value


def _micros(name: str) -> SparkColumn:
    # whole numbers throughout: floor of a negative nanosecond count, as every reader cuts it
    return F.expr(f"timestamp_micros(({quoted(name)} - pmod({quoted(name)}, 1000L)) div 1000L)")


def _time_text(name: str, unit: str) -> SparkColumn:
    per_second = {"s": 1000, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}[unit]  # Parquet has no seconds
    value = quoted(name)
    micros = (
        f"({value} % {per_second}L) * {1_000_000 // per_second}L"
        if per_second <= 1_000_000
        else f"({value} % {per_second}L) div {per_second // 1_000_000}L"
    )
    return F.expr(
        f"concat(lpad(cast({value} div {per_second * 3600}L as string), 2, '0'), ':',"
        f" lpad(cast({value} div {per_second * 60}L % 60 as string), 2, '0'), ':',"
        f" lpad(cast({value} div {per_second}L % 60 as string), 2, '0'),"
        f" if({micros} = 0, '', concat('.', lpad(cast({micros} as string), 6, '0'))))"
    )


def _spark_type(column: FileColumn) -> T.DataType | None:
    """How Spark's reader is asked for a column; None leaves it out."""
    if column.encoding == "enum":
        return T.StringType()
    if column.encoding == "uuid":
        return T.BinaryType()
    if column.encoding == "int96":
        return T.TimestampType()
    return _read_as(column.arrow_type)


def _read_as(arrow_type: Any) -> T.DataType | None:
    """The same for a type, also inside of nested ones; what Spark has no type for is read as the number it is."""
    kind = _plain(arrow_type)
    if pa.types.is_null(kind):
        return None
    if pa.types.is_int8(kind):
        return T.ByteType()
    if pa.types.is_timestamp(kind):
        if kind.unit == "ns":
            return T.LongType()
        return T.TimestampType() if kind.tz else T.TimestampNTZType()
    if pa.types.is_time32(kind):
        return T.IntegerType()
    if pa.types.is_time64(kind):
        return T.LongType()
    if pa.types.is_map(kind):
        key, item = _read_as(kind.key_type), _read_as(kind.item_type)
        return T.MapType(key or T.StringType(), item or T.IntegerType())
    if pa.types.is_struct(kind):
        inner = [kind.field(i) for i in range(kind.num_fields)]
        return T.StructType([T.StructField(f.name, _read_as(f.type) or T.IntegerType()) for f in inner])
    if pa.types.is_nested(kind):
        return T.ArrayType(_read_as(kind.value_type) or T.IntegerType())
    table = table_type(kind)
    return None if table is None else _SPARK_TYPES.get(table) or _decimal(table)


_SPARK_TYPES: dict[str, T.DataType] = {
    "smallint": T.ShortType(),
    "int": T.IntegerType(),
    "bigint": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "boolean": T.BooleanType(),
    "string": T.StringType(),
    "binary": T.BinaryType(),
    "date": T.DateType(),
}


def _decimal(type_: str) -> T.DecimalType:
    precision, scale = type_.removeprefix("decimal(").removesuffix(")").split(",")
    return T.DecimalType(int(precision), int(scale))


def _plain(kind: Any) -> Any:
    """The type without dictionaries and extension types around it."""
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
            kind = kind.value_type
        else:
            return kind


def _nested(kind: Any) -> bool:
    return bool(pa.types.is_nested(_plain(kind)))


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
