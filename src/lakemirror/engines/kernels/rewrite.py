"""Rewrites one data file: the same live rows, with the names, types and partition names of another schema.

    add action ─▶ unsupported_file: can its rows be read here? (footer alone)
               └▶ rewrite_file: live rows, batch by batch ─▶ columns by stored name, nested ones too
                                                               └ narrower types widened, missing fields NULL
                                ─▶ new files of at most 512 MiB, with exact statistics

Nothing is committed. Partition values are copied as the log spells them. Memory: one batch of about 32 MiB and one row
group of the new file, whatever the size of the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.delta.schema import sql_name
from lakemirror.delta.statistics import record_count
from lakemirror.engines.kernels.add_files import legacy_calendar
from lakemirror.engines.kernels.data_rows import place_of
from lakemirror.engines.kernels.live_rows import deleted_rows
from lakemirror.engines.kernels.nested_types import stored_type
from lakemirror.engines.kernels.nested_values import Field, field_of, find_name, shaped
from lakemirror.engines.kernels.write import FileSizes, write_rows
from lakemirror.engines.row_work import Action, Target, TargetColumn
from lakemirror.storage.place import capabilities_of, opened

_MOST_ROWS = 64 * 1024
_BYTES_AT_ONCE = 32 << 20  # decoded, by the footer
_LARGE_GROUP = 32 << 20  # a row group with more stored bytes is read in pieces
_PIECE = 1 << 20
_ID = b"PARQUET:field_id"
_SAME_VALUES = {  # types that Arrow writers name in a file's metadata
    (pa.large_string(), pa.string()), (pa.string_view(), pa.string()), (pa.large_binary(), pa.binary()),
    (pa.binary_view(), pa.binary()),
}  # fmt: skip


@dataclass(frozen=True)
class Unreadable:
    """Why nobody can rewrite a data file: it contradicts the log."""

    reason: str


def unsupported_file(add: Action, footer: pq.FileMetaData, source: Target, *, by_id: bool) -> str | Unreadable | None:
    """Why a data file cannot be rewritten with the same rows, from its footer alone; None if it can. No I/O.

    `by_id`: columns are found by their field ids (column mapping mode `id`). Unreadable if the footer has another
    number of rows than the log says.
    """
    if record_count(add) not in (None, footer.num_rows):
        return Unreadable(f"{add['path']} has {footer.num_rows} rows, but the log says {record_count(add)}")
    columns = _in_files(source)
    if legacy_calendar(footer) and any("date" in each.type or "timestamp" in each.type for each in columns):
        return f"{add['path']} may count days by the legacy calendar"
    try:
        held = footer.schema.to_arrow_schema()
    except (pa.ArrowException, OSError) as error:
        return f"{add['path']} has a schema that Arrow does not read: {error}"
    fields = [field_of(column) for column in columns]
    reason = _misfit(list(held), fields, by_id=by_id)
    return None if reason is None else f"{add['path']}: {reason}"


def rewrite_file(add: Action, source: Target, target: Target) -> list[Action]:
    """Writes the live rows of a data file as new files. Returns the content of their `add` actions.

    `source`: the table as its files are now. `target`: the same columns, with the names and types that the new files
    get. Call `unsupported_file` first.

    Errors: FileNotFoundError if the file does not exist any more; ArrowException or ValueError if a value or its
    deletion vector cannot be read, or NULL is in a NOT NULL column. Then the new files are removed.
    """
    values = add.get("partitionValues") or {}
    stored = {column.name: column.physical_name for column in source.columns}
    partition = {name: values.get(stored[name]) for name in source.partition_columns}
    return write_rows(_live(add, source, target), target, sizes=FileSizes(rows_a_file=1 << 62), partition=partition)


def _live(add: Action, source: Target, target: Target) -> Iterator[pa.RecordBatch]:
    deleted = deleted_rows(add, source)
    begin = 0
    for rows in _rows(add, source, target):
        if deleted is not None and len(deleted):
            low, high = np.searchsorted(deleted, [begin, begin + rows.num_rows])
            keep = np.ones(rows.num_rows, bool)
            keep[deleted[low:high] - begin] = False
            begin += rows.num_rows
            yield rows if keep.all() else rows.filter(pa.array(keep))
        else:
            begin += rows.num_rows
            yield rows
    if deleted is not None and len(deleted) and deleted[-1] >= begin:
        raise ValueError(f"the deletion vector of {add['path']} deletes row {deleted[-1]} of {begin}")


def _rows(add: Action, source: Target, target: Target) -> Iterator[pa.RecordBatch]:
    """All rows of a file, in the target's columns and names."""
    place = place_of(source.path, add["path"])
    with pq.ParquetFile(opened(place, written_once=True), coerce_int96_timestamp_unit="us") as file:
        footer = file.metadata
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    stored = max((sum(g.column(i).total_compressed_size for i in range(g.num_columns)) for g in groups), default=0)
    columns = _in_files(source)
    kinds = {
        column.name: stored_type(column.type, with_ids=column.field_id is not None) for column in _in_files(target)
    }
    with pq.ParquetFile(
        opened(place, written_once=True), metadata=footer, coerce_int96_timestamp_unit="us",
        buffer_size=_PIECE if stored > _LARGE_GROUP else 0,
        pre_buffer=capabilities_of(place).waits and stored <= _LARGE_GROUP,
    ) as file:  # fmt: skip
        names = file.schema_arrow.names
        held = {column.name: name for column in columns if (name := find_name(names, column.physical_name)) is not None}
        for index, group in enumerate(groups):
            if not held:
                yield _nulls(columns, kinds, group.num_rows)
                continue
            at_once = max(1, min(_MOST_ROWS, group.num_rows * _BYTES_AT_ONCE // max(1, group.total_byte_size)))
            for batch in file.iter_batches(at_once, row_groups=[index], columns=list(held.values()), use_threads=False):
                read = dict(zip(batch.schema.names, batch.columns, strict=True))
                values = [
                    shaped(read[held[column.name]], field_of(column), kinds[column.name])
                    if column.name in held
                    else pa.nulls(batch.num_rows, kinds[column.name])
                    for column in columns
                ]
                yield pa.RecordBatch.from_arrays(values, names=[column.name for column in columns])


def _nulls(columns: Sequence[TargetColumn], kinds: Mapping[str, Any], rows: int) -> pa.RecordBatch:
    values = [pa.nulls(rows, kinds[column.name]) for column in columns]
    return pa.RecordBatch.from_arrays(values, names=[column.name for column in columns])


def _in_files(target: Target) -> list[TargetColumn]:
    return [column for column in target.columns if column.name not in target.partition_columns]


def _misfit(held: Sequence[pa.Field], wanted: Sequence[Field], *, by_id: bool) -> str | None:
    """Why fields of a file do not lead to the wanted ones by name; None if they do."""
    names = [each.name for each in held]
    if len(set(names)) < len(names):
        return "two columns have the same name"
    if by_id:
        numbers = {each.name: (each.metadata or {}).get(_ID, b"").decode() for each in held}
        by_name = {name: field.number for field in wanted if (name := find_name(names, field.name)) is not None}
        if any(numbers[name] != str(number) for name, number in by_name.items()):
            return "a column has another field id than the table"
        found = {number for name, number in numbers.items() if name not in by_name}
        if found & {str(field.number) for field in wanted}:
            return "a column has another name than the table"
    for field in wanted:
        name = find_name(names, field.name)
        if name is None:
            continue
        reason = _unfit_type(held[names.index(name)].type, field, by_id=by_id)
        if reason is not None:
            return f"column {field.name!r} {reason}"
    return None


def _unfit_type(held: pa.DataType, field: Field, *, by_id: bool) -> str | None:
    """Why values of a file's type cannot become values of a column; None if each of them can."""
    if not isinstance(field.kind, str):
        which = field.kind["type"]
        if which == "struct" and pa.types.is_struct(held):
            return _misfit(list(held), field.fields(), by_id=by_id)
        if which == "array" and (pa.types.is_list(held) or pa.types.is_large_list(held)):
            return _unfit_type(held.value_type, field.part("elementType"), by_id=by_id)
        if which == "map" and pa.types.is_map(held):
            key = _unfit_type(held.key_type, field.part("keyType"), by_id=by_id)
            return key or _unfit_type(held.item_type, field.part("valueType"), by_id=by_id)
        return f"is stored as {held}"
    kind = stored_type(sql_name(field.kind))
    return None if kind is not None and _fits(held, kind) else f"is stored as {held}"


def _fits(held: pa.DataType, kind: pa.DataType) -> bool:
    """True if every value of `held` is one of `kind`: the same type, or one that Delta widens to it."""
    if pa.types.is_dictionary(held):
        held = held.value_type
    if held == kind or (held, kind) in _SAME_VALUES:
        return True
    if pa.types.is_timestamp(kind):
        if kind.tz is None and held == pa.date32():
            return True
        return bool(pa.types.is_timestamp(held) and held.unit != "s" and (held.tz is None or kind.tz))  # ns: INT96
    signed = pa.types.is_signed_integer(held)
    if pa.types.is_signed_integer(kind):
        return bool(signed and held.bit_width < kind.bit_width)
    if pa.types.is_float64(kind):
        return bool(held == pa.float32() or (signed and held.bit_width <= 32))
    if pa.types.is_decimal(kind):
        if signed:
            return bool(kind.precision - kind.scale >= {8: 3, 16: 5, 32: 10, 64: 19}[held.bit_width])
        whole = pa.types.is_decimal128(held) and held.precision - held.scale <= kind.precision - kind.scale
        return bool(whole and held.scale <= kind.scale)
    return False
