"""Copies a change file into the table as a data file, if it already has the right form. Its rows are not rewritten.

    unsupported_reason(unit, target, footer)   why the file cannot be a data file, from its footer alone; or None
    add_file(unit, target, footer)             a copy in the table's folder, read once, and its `add` action

Such a file may contain only what Spark, DuckDB, delta-rs and Polars can all read. Files are copied and never linked,
because a publisher may write into its file again (`docs/decisions/020-adoption.md`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.delta import exact_json
from lakemirror.delta.data_files import logged_path, new_name, partition_value
from lakemirror.delta.schema import Column
from lakemirror.delta.statistics import UnsafeBounds, statistics, statistics_of_own, statistics_told
from lakemirror.engines.kernels.nested_types import indexed_leaves
from lakemirror.engines.row_work import Action, ChangeUnit, Target
from lakemirror.errors import Bad, LakemirrorError, Rejected
from lakemirror.keys.look_up import RisingKeys, row_groups, version_of
from lakemirror.landing_zone.column_types import FileColumn
from lakemirror.landing_zone.row_markers import NEVER_COLUMNS
from lakemirror.parquet.footer import read_footer
from lakemirror.parquet.pages import POINTING, extents, pages_of_group
from lakemirror.parquet.unchecked import encodings_told, hides_values, is_read_wholly, reason_to_rewrite
from lakemirror.storage.durable import copy as copy_to
from lakemirror.storage.durable import make_folders, opened_new, read_together, status_of_new
from lakemirror.storage.place import Place, opened, place

SMALLEST_BYTES = 8 << 20  # smaller files are written together as one, which is faster to read
_FEW = 4
_SMALLEST_OF_FEW = 1 << 20
_LARGEST_GROUP_BYTES = 512 << 20  # a reader holds a row group in memory
_MANY_GROUPS, _SMALLEST_GROUP_ROWS = 16, 1024  # each row group costs a reader time
_CODECS = {"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"}
_ENCODINGS = {"PLAIN", "RLE", "PLAIN_DICTIONARY", "RLE_DICTIONARY"}
_LEVELS = "BIT_PACKED"  # parquet-mr names this encoding of repetition levels even for flat columns, which have none
_PHYSICAL = {
    "boolean": ("BOOLEAN",), "smallint": ("INT32",), "int": ("INT32",), "bigint": ("INT64",), "float": ("FLOAT",),
    "double": ("DOUBLE",), "string": ("BYTE_ARRAY",), "binary": ("BYTE_ARRAY",), "date": ("INT32",),
    "timestamp": ("INT64",), "timestamp_ntz": ("INT64",), "decimal": ("INT32", "INT64", "FIXED_LEN_BYTE_ARRAY"),
}  # fmt: skip
_SAME_TYPE = {
    pa.bool_(): "boolean", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint", pa.float32(): "float",
    pa.float64(): "double", pa.string(): "string", pa.binary(): "binary", pa.date32(): "date",
    pa.large_string(): "string", pa.large_binary(): "binary",
}  # fmt: skip


def large_enough(sizes: Sequence[int]) -> bool:
    """True if each of these files is large enough to be a data file: 8 MiB, or 1 MiB if there are at most four."""
    return min(sizes, default=0) >= (_SMALLEST_OF_FEW if len(sizes) <= _FEW else SMALLEST_BYTES)


def unsupported_reason(
    unit: ChangeUnit, target: Target, footer: pq.FileMetaData, *, trust_footer: bool = False
) -> str | None:
    """Why the file of a unit cannot be a data file of the table, from its footer alone; None if it can.

    `trust_footer`: accepts what lakemirror cannot check against the rows: page indexes, Bloom filters, sorting columns.
    """
    name = unit.name
    if unit.row_groups is not None:
        return f"{name} is read in parts"
    if legacy_calendar(footer):
        return f"{name} uses the legacy calendar for dates"
    if any(each.stored and (each.field_id is not None or each.physical_name != each.name) for each in target.columns):
        return "the table maps its columns"
    if any(not column.nullable for column in target.columns):
        return "the table has NOT NULL columns"
    if missing := set(target.partition_columns) - {column for column, _ in unit.constants}:
        return f"{name} is in no folder of partition column {min(missing)!r}"
    types = {column.name: column.type for column in target.columns if column.stored}
    for given, _ in unit.constants:
        if given not in target.partition_columns:
            return f"column {given!r} of the file's folder is not a partition column of the table"
        if types.get(given) != "string":
            return f"partition column {given!r} is not a string"
    held = _held(unit)
    for found in held:
        if found.name in NEVER_COLUMNS:
            return f"{name} has the column {found.name}"
        if found.name in target.partition_columns:
            return f"{name} contains the partition column {found.name!r}"
        if types.get(found.name) is None or kept_type(found) != types[found.name]:
            return f"{name}: column {found.name!r} has another form than the table needs"
    try:
        return _unreadable_somewhere(unit.name, {each.name: types[each.name] for each in held}, footer, trust_footer)
    except (pa.ArrowException, OSError, RuntimeError, ValueError, LookupError) as error:
        return f"{name}: its footer cannot be read: {error}"


def add_file(
    unit: ChangeUnit,
    target: Target,
    footer: pq.FileMetaData,
    *,
    trust_footer: bool = False,
    is_own: bool = False,
) -> Action:
    """Copies the file of a unit into the table's folder. Returns the content of the copy's `add` action.

    The copy is read completely once. A file that cannot be decoded, or contradicts its footer, is Bad with
    `file-unreadable`. A file whose footer would make a reader miss rows is Bad with `try_as` rows: its rows are
    correct. Then the copy is removed; the copy of a killed process is removed by VACUUM.

    `footer`: the footer as read before. `trust_footer`: rows are not decoded, and statistics come from the footer.
    `is_own`: this process has just written the file, so its footer is correct. Call `unsupported_reason` first. Error:
    `concurrent-commit` if the file does not exist any more, or has another footer.
    """
    values = {column: partition_value(dict(unit.constants)[column]) for column in target.partition_columns}
    below = new_name(values, codec="", version=target.version)
    top = place(target.path)
    copy = top / below
    keys = _KeysSeen(target)
    try:
        if "/" in below:
            make_folders(copy.parent, top)
        copy_to(unit.path, copy, unit.listed.size if unit.listed else 0)
        stats = _statistics(copy, unit, target, footer, keys, trust_footer=trust_footer, is_own=is_own)
        status = status_of_new(copy)
    except BaseException as error:
        with contextlib.suppress(OSError, LakemirrorError):
            copy.unlink(missing_ok=True)
        failure = _failure(unit, error)
        if failure is error:
            raise
        raise failure from error
    add = {
        "path": logged_path(below),
        "partitionValues": values,
        "size": status.st_size,
        "modificationTime": int(status.st_mtime * 1000),
        "dataChange": True,
        "stats": exact_json.text(stats),
    }
    keys.keep(add, footer)
    return add


def _failure(unit: ChangeUnit, error: BaseException) -> BaseException:
    """Why the file of a unit is not copied: Bad, or what may be tried again."""
    if isinstance(error, FileNotFoundError):
        return LakemirrorError("concurrent-commit", f"{unit.name} is gone")
    if isinstance(error, UnsafeBounds):
        return Bad(Rejected("value-invalid", f"{unit.name}: {error}", unit.name, try_as="rows"))
    if isinstance(error, OSError) and error.errno is not None:
        return LakemirrorError("storage-unavailable", f"{unit.name}: {error.strerror or error}")
    if isinstance(error, pa.ArrowException | OSError | ValueError):
        return Bad(Rejected("file-unreadable", f"{unit.name}: its rows cannot be read: {error}", unit.name))
    return error


class _KeysSeen:
    """The keys of a file's row groups, taken from the rows that are checked: the first look-up need not read them."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._found: dict[int, RisingKeys] = {}

    def see(self, group: int, rows: pa.RecordBatch) -> None:
        found = self._found.setdefault(group, RisingKeys(self._target))
        if found.rises and found.column is not None and found.column.physical_name in rows.schema.names:
            found.add(pa.chunked_array([rows.column(found.column.physical_name)]))

    def keep(self, add: Action, footer: pq.FileMetaData) -> None:
        for group in row_groups(add, self._target, None, footer):
            if group.index in self._found:
                self._found[group.index].keep(group, self._target, version_of(add))


def _check_same(footer: pq.FileMetaData, planned: pq.FileMetaData, unit: ChangeUnit) -> None:
    if not footer.equals(planned):
        raise LakemirrorError("concurrent-commit", f"{unit.name} was replaced by another file", file=unit.name)


def _statistics(
    copy: Place, unit: ChangeUnit, target: Target, footer: pq.FileMetaData, keys: _KeysSeen, *, trust_footer: bool,
    is_own: bool,
) -> dict[str, Any]:  # fmt: skip
    """The statistics of a copy: of its rows or, for a trusted footer, as the footer says. Parameters as in `add_file`.

    Errors: as in `_checked_statistics`.
    """
    held = [each for each in target.columns if each.stored and each.name not in target.partition_columns]
    columns = [Column(each.name, each.type) for each in held]
    names = {leaf.path[0] for leaf in indexed_leaves(target) if len(leaf.path) == 1}
    indexed = [column for column in columns if column.name in names]
    if is_own:
        return statistics_of_own(copy, indexed)
    if trust_footer:
        found = pq.read_metadata(opened(copy))
        _check_same(found, footer, unit)
        return statistics_told(found, indexed)
    return _checked_statistics(copy, columns, footer, unit, names, keys)


def _checked_statistics(
    copy: Place,
    columns: Sequence[Column],
    planned: pq.FileMetaData,
    unit: ChangeUnit,
    indexed: Collection[str],
    keys: _KeysSeen,
) -> dict[str, Any]:
    """The statistics of a copy, computed from its rows.

    Each row group's pages are compared with the footer, then its rows are read, so that bytes come from a store once.
    Errors: ValueError and ArrowException if they differ; `concurrent-commit` if the footer is not the `planned` one.
    """
    with opened_new(copy) as (pages, source):
        footer = read_footer(pages)
        _check_same(footer, planned, unit)
        if not is_read_wholly(footer, pages):
            raise UnsafeBounds("its footer has what cannot be read")
        told = encodings_told(footer)

        def dictionaries(group: int) -> set[str]:
            read_together(pages, extents(footer.row_group(group)))
            found = pages_of_group(pages, footer, group)
            if hides_values(told[group], found.values()):
                raise UnsafeBounds(f"its footer hides encodings in row group {group}")
            return {
                path for path, each in found.items() if all(page.encoding in POINTING for page in each if page.is_data)
            }

        return statistics(source, columns, footer.num_rows, dictionaries, indexed=indexed, see=keys.see)


def _held(unit: ChangeUnit) -> list[FileColumn]:
    """The columns in the file itself, without those of its partition folders."""
    given = {name for name, _ in unit.constants}
    return [column for column in unit.columns if not (column.name in given and column.encoding)]


def _unreadable_somewhere(name: str, types: dict[str, str], footer: pq.FileMetaData, trust_footer: bool) -> str | None:
    """Why not every reader reads the file correctly; None if all do. What cannot be checked is also a reason."""
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
    reason = None if trust_footer else reason_to_rewrite(footer, types)
    return reason and f"{name} {reason}"


def legacy_calendar(footer: pq.FileMetaData) -> bool:
    """True for a file whose dates before 1582 are in the Julian calendar: Spark converts them, Arrow does not."""
    told = footer.metadata or {}
    version = told.get(b"org.apache.spark.version", b"3")
    marked = any(key in told for key in (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"))
    return marked or not version[:1].isdigit() or int(version.split(b".")[0]) < 3


def kept_type(column: FileColumn) -> str | None:
    """The table type that the column has without a conversion; None if it needs one."""
    if column.encoding or column.note or column.unsupported:
        return None
    kind = column.arrow_type
    if pa.types.is_timestamp(kind):
        return column.table_type if kind.unit == "us" else None
    if pa.types.is_decimal128(kind):
        return column.table_type
    return _SAME_TYPE.get(kind)
