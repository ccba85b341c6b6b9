"""A change file that already is what a data file of the table would be: it is copied, its rows are not written again.

    unsupported_reason(unit, target, footer)   why the file cannot be a data file, from its footer alone; or None
    add_file(unit, target, footer)             a copy in the table's folder, read once, and its `add` action

What may be in such a file is a list of what Spark, DuckDB, delta-rs and Polars all read, not of what Arrow reads.
Copied, never linked: a publisher may write into its file again (`docs/decisions/020-adoption.md`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.delta.data_files import logged_path, new_name, partition_value
from lakemirror.delta.schema import Column
from lakemirror.delta.statistics import UnsafeBounds, statistics, statistics_of_own, statistics_text, statistics_told
from lakemirror.engines.row_work import Action, BadRow, ChangeUnit, Target
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.column_types import FileColumn
from lakemirror.landing_zone.footer import read_footer
from lakemirror.landing_zone.pages import check_all_pages
from lakemirror.landing_zone.row_markers import ROW_MARKER
from lakemirror.storage import copy_file
from lakemirror.storage.addresses import parse_address
from lakemirror.storage.inside import make_folders
from lakemirror.storage.place import Place, StorePath, opened, place

SMALLEST_BYTES = 8 << 20  # below it, folding many files into one is kinder to readers
_FEW = 4
_SMALLEST_OF_FEW = 1 << 20
_LARGEST_GROUP_BYTES = 512 << 20  # a reader holds a row group in memory
_MANY_GROUPS, _SMALLEST_GROUP_ROWS = 16, 1024  # a reader pays for each row group
_CODECS = {"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"}
_ENCODINGS = {"PLAIN", "RLE", "PLAIN_DICTIONARY", "RLE_DICTIONARY"}
_LEVELS = "BIT_PACKED"  # of repetition levels, which flat columns do not have; parquet-mr names it all the same
_PHYSICAL = {
    "boolean": ("BOOLEAN",), "smallint": ("INT32",), "int": ("INT32",), "bigint": ("INT64",), "float": ("FLOAT",),
    "double": ("DOUBLE",), "string": ("BYTE_ARRAY",), "binary": ("BYTE_ARRAY",), "date": ("INT32",),
    "timestamp": ("INT64",), "decimal": ("INT32", "INT64", "FIXED_LEN_BYTE_ARRAY"),
}  # fmt: skip
_AS_THEY_ARE = {
    pa.bool_(): "boolean", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint", pa.float32(): "float",
    pa.float64(): "double", pa.string(): "string", pa.binary(): "binary", pa.date32(): "date",
    pa.large_string(): "string", pa.large_binary(): "binary",
}  # fmt: skip
_WRITTEN_ONLY = {"tinyint": pa.int8(), "timestamp_ntz": pa.timestamp("us")}  # no change file gives a column these


@dataclass(frozen=True)
class NotAdded:
    """Why a file cannot be a data file although its rows are right: they are written as any others."""

    reason: str


def large_enough(sizes: Sequence[int]) -> bool:
    """True where files of so many bytes are worth a data file each: 8 MiB, or 1 MiB where there are at most four."""
    return min(sizes, default=0) >= (_SMALLEST_OF_FEW if len(sizes) <= _FEW else SMALLEST_BYTES)


def unsupported_reason(
    unit: ChangeUnit, target: Target, footer: pq.FileMetaData, *, trust_footer: bool = False
) -> str | None:
    """Why the file of a unit cannot be a data file of the table; None where nothing in its footer speaks against it.

    `trust_footer`: page indexes are believed, which nothing here can compare with the rows.
    """
    name = unit.name
    if unit.row_groups is not None:
        return f"{name} is taken in parts"
    if legacy_calendar(footer):
        return f"{name} counts days by the legacy calendar"
    if any(each.stored and (each.field_id is not None or each.physical_name != each.name) for each in target.columns):
        return "the table maps its columns"
    if any(not column.nullable for column in target.columns):
        return "the table has NOT NULL columns"
    if missing := set(target.partition_columns) - {column for column, _ in unit.constants}:
        return f"{name} is in no folder of partition column {min(missing)!r}"
    types = {column.name: column.type for column in target.columns if column.stored}
    for given, _ in unit.constants:
        if given not in target.partition_columns:
            return f"column {given!r}, which the folder gives, is no partition column of the table"
        if types.get(given) != "string":
            return f"partition column {given!r} is no string"
    held = _held(unit)
    for found in held:
        if found.name == ROW_MARKER:
            return f"{name} has a row marker column"
        if found.name in target.partition_columns:
            return f"{name} holds the partition column {found.name!r} itself"
        if types.get(found.name) is None or kept_type(found) != types[found.name]:
            return f"{name}: column {found.name!r} is not in the file as the table needs it"
    try:
        return _unreadable_somewhere(unit.name, {each.name: types[each.name] for each in held}, footer, trust_footer)
    except (pa.ArrowException, OSError, RuntimeError) as error:
        return f"{name}: its footer cannot be read: {error}"


def add_file(
    unit: ChangeUnit,
    target: Target,
    footer: pq.FileMetaData,
    *,
    folder: str | None = None,
    trust_footer: bool = False,
    is_own: bool = False,
) -> Action | NotAdded | BadRow:
    """Copies the file of a unit into the table's folder; the content of the copy's `add` action.

    The copy is read once as a whole: a file that does not decode, or is not what its footer says, is BadRow
    `file-unreadable`; one whose bounds make a reader lose rows is NotAdded. With `trust_footer` the footer is
    believed. `is_own`: this process has just written the file, so its footer is right. Where there is no action there
    is no copy either. A killed process leaves its copy to VACUUM.

    `footer`: as it was read when the file was looked at. To be called after `unsupported_reason`. LakemirrorError
    `concurrent-commit` where the file is gone.
    """
    values = {column: partition_value(dict(unit.constants)[column]) for column in target.partition_columns}
    below = new_name(values, codec="")
    top = place(folder or target.path)
    copy = top / below
    held = [each for each in target.columns if each.stored and each.name not in target.partition_columns]
    columns = [Column(each.name, each.type) for each in held]
    try:
        if "/" in below:
            make_folders(copy.parent, top)
        _copy(unit.path, copy)
        dictionaries: set[str] = set()
        if not is_own:
            with _source(copy) as source:
                dictionaries = check_all_pages(source, read_footer(source))
        if is_own:
            stats = statistics_of_own(copy, columns)
        elif trust_footer:
            found = pq.read_metadata(opened(copy))
            if not found.equals(footer):
                raise ValueError("it was written again while it was copied")
            stats = statistics_told(found, columns)
        else:
            stats = statistics(copy, columns, footer.num_rows, dictionaries)
        status = copy.stat()
    except BaseException as error:
        with contextlib.suppress(OSError, LakemirrorError):
            copy.unlink(missing_ok=True)
        if isinstance(error, FileNotFoundError):
            raise LakemirrorError("concurrent-commit", f"{unit.name} is gone") from error
        if isinstance(error, UnsafeBounds):
            return NotAdded(f"{unit.name}: {error}")
        if isinstance(error, OSError) and error.errno is not None:
            raise LakemirrorError("storage-unavailable", f"{unit.name}: {error.strerror or error}") from error
        if isinstance(error, pa.ArrowException | OSError | ValueError):
            return BadRow("file-unreadable", unit.name, f"{unit.name}: its rows cannot be read: {error}")
        raise
    return {
        "path": logged_path(below),
        "partitionValues": values,
        "size": status.st_size,
        "modificationTime": int(status.st_mtime * 1000),
        "dataChange": True,
        "stats": statistics_text(stats),
    }


def _copy(source: str, target: Place) -> None:
    if isinstance(target, StorePath):
        target.store.copy(StorePath(*parse_address(source)).key, target.key)
    else:
        copy_file(source, target)


def _source(path: Place) -> pa.NativeFile:
    return pa.PythonFile(opened(path), mode="r") if isinstance(path, StorePath) else pa.OSFile(str(path))


def _held(unit: ChangeUnit) -> list[FileColumn]:
    """The columns that the file itself holds."""
    given = {name for name, _ in unit.constants}
    return [column for column in unit.columns if not (column.name in given and column.encoding)]


def _unreadable_somewhere(name: str, types: dict[str, str], footer: pq.FileMetaData, trust_footer: bool) -> str | None:
    """What in the file not every reader reads, or what a reader believes that nobody can check."""
    schema = footer.schema
    for leaf in range(footer.num_columns):
        column = schema.column(leaf)
        wanted = _PHYSICAL.get(types.get(column.path, "").partition("(")[0], ())
        if column.physical_type not in wanted or column.max_repetition_level or column.max_definition_level > 1:
            return f"{name}: column {column.path!r} is stored as {column.physical_type}"
    if footer.num_row_groups > _MANY_GROUPS and footer.num_rows < footer.num_row_groups * _SMALLEST_GROUP_ROWS:
        return f"{name} has {footer.num_row_groups} small row groups"
    for index in range(footer.num_row_groups):
        group = footer.row_group(index)
        if group.total_byte_size > _LARGEST_GROUP_BYTES:
            return f"{name} has a row group of {group.total_byte_size} bytes"
        for leaf in range(group.num_columns):
            chunk = group.column(leaf)
            encodings = set(chunk.encodings)
            if chunk.compression not in _CODECS:
                return f"{name} is compressed with {chunk.compression}"
            if other := encodings - _ENCODINGS - ({_LEVELS} if "RLE" in encodings else set()):
                return f"{name}: column {chunk.path_in_schema!r} is encoded as {min(other)}"
            if chunk.file_path:
                return f"{name} has rows in another file"
            if chunk.has_column_index and not trust_footer:
                return f"{name} has bounds of pages, which cannot be checked"
    return None


def legacy_calendar(footer: pq.FileMetaData) -> bool:
    """True for a file that counts days before 1582 by the Julian calendar: Spark shifts them, Arrow does not."""
    told = footer.metadata or {}
    version = told.get(b"org.apache.spark.version", b"3")
    marked = any(key in told for key in (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"))
    return marked or not version[:1].isdigit() or int(version.split(b".")[0]) < 3


def arrow_type(type_: str) -> pa.DataType | None:
    """The type in which the kernels hold a column of a table, given as Spark SQL writes it; None for nested ones."""
    if type_ == "timestamp":
        return pa.timestamp("us", "UTC")
    if type_.startswith("decimal"):
        precision, scale = type_[len("decimal(") : -1].split(",")
        return pa.decimal128(int(precision), int(scale))
    return next((kind for kind, name in _AS_THEY_ARE.items() if name == type_), _WRITTEN_ONLY.get(type_))


def kept_type(column: FileColumn) -> str | None:
    """The table's type whose Parquet form the column already has; None where it needs a conversion."""
    if column.encoding or column.note or column.unsupported:
        return None
    kind = column.arrow_type
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.unit == "us" and kind.tz is not None else None
    if pa.types.is_decimal128(kind):
        return column.table_type
    return _AS_THEY_ARE.get(kind)
