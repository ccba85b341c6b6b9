"""Writes change files as data files without encoding them again: their column chunks are copied, footers are new.

    change file ─▶ has its columns as the table's files have them? ─▶ row groups: pages checked, copied, decoded once
        └ no, or a row group is not as it should be ─▶ what is left of it, for `write_rows`

What is decoded and counted is the very bytes that are written, under the footer that is written, in the table's types.
So a chunk that is copied was checked as strictly as one that is written again, and its statistics are those of its
rows. Not copied: the row marker, columns of partition folders, bounds, page indexes and Bloom filters of the publisher.
Whatever is unusual is left to `write_rows`, which also says what is wrong with it.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Context, Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.delta.data_files import partition_value
from lakemirror.delta.schema import Column
from lakemirror.delta.statistics import Tally
from lakemirror.engines.kernels.add_files import kept_type, legacy_calendar
from lakemirror.engines.kernels.copied_files import CopiedFiles, Form, Piece, counted_columns, footers_of
from lakemirror.engines.kernels.decode import MOST_ROWS, TooLarge
from lakemirror.engines.kernels.read import source_of
from lakemirror.engines.kernels.row_reader import Reading
from lakemirror.engines.kernels.wanted_columns import Wanted, wanted_columns
from lakemirror.engines.kernels.write import FileSizes
from lakemirror.engines.row_work import Action, ChangeUnit, Target, TargetColumn
from lakemirror.engines.units import Shared
from lakemirror.errors import Bad, LakemirrorError
from lakemirror.landing_zone.row_markers import INSERT
from lakemirror.parquet.copied_chunks import MAGIC, CopiedChunk, CopiedGroup, Footers, chunk_of
from lakemirror.parquet.footer import read_footer
from lakemirror.parquet.pages import begin_of, checked_pages

_FEWEST_ROWS = 32 * 1024  # of a row group, on average: smaller ones are written together, which is faster to read
_LARGEST_GROUP = 64 << 20  # bytes as stored; the copy is in memory
_PART_OF_MEMORY = 8  # a row group that may need more than 1/8 of the memory is decoded in parts instead
_WIDEST = 16  # bytes of a decoded value, beside the bytes of a text
_LONGEST_BOUND = 256  # bytes of a text that a footer tells as a bound
_NUMBERS = {
    "int": "<i", "date": "<i", "bigint": "<q", "timestamp": "<q", "timestamp_ntz": "<q", "float": "<f", "double": "<d",
}  # fmt: skip
_COPIED = {*_NUMBERS, "boolean", "string", "binary"}
_DIGITS = Context(prec=76)
_UNUSUAL = (Bad, LakemirrorError, TooLarge, MemoryError, OSError, pa.ArrowException, ValueError, LookupError)


def copy_chunks(shared: Shared, files: Sequence[ChangeUnit], sizes: FileSizes) -> tuple[list[Action], list[ChangeUnit]]:
    """Copies what it can of change files, all of whose rows are inserted, into new data files.

    Returns the content of their `add` actions, and what is left to be written by `write_rows`: files, or their last row
    groups. `sizes`: a data file ends at about `rows_a_file` rows. After an error, the written files are removed. Errors
    of the change files are left, too; those of the table's storage are raised.
    """
    copies, left = CopiedFiles(shared.target, sizes), list[ChangeUnit]()
    try:
        for unit in files:
            left += _copied(shared, unit, copies)
        return copies.close(), left
    except BaseException:
        copies.remove()
        raise


class _Opened(NamedTuple):
    """A change file to be copied. `leaves`: where it has the columns of its form. `counted`: the table's columns."""

    source: pa.NativeFile
    footer: pq.FileMetaData
    form: Form
    leaves: tuple[int, ...]
    counted: Sequence[Column]


def _copied(shared: Shared, unit: ChangeUnit, copies: CopiedFiles) -> list[ChangeUnit]:
    """Copies a file from its first row group on. Returns what is left of it: nothing, its last row groups, or all."""
    groups: Sequence[int] = ()
    done = rows = 0
    with contextlib.ExitStack() as stack:
        opened = None
        with contextlib.suppress(*_UNUSUAL):
            opened = _opened(shared, unit, stack.enter_context(source_of(unit)))
        if opened is None:
            return [unit]
        footers = footers_of(opened.form.columns, opened.form.required)
        groups = range(opened.footer.num_row_groups) if unit.row_groups is None else unit.row_groups
        for number in groups:
            with _piece(shared, opened, number, footers) as piece:
                if piece is None:
                    break
                copies.add(opened.form, piece)
            done, rows = done + 1, rows + piece.group.rows
    if done == len(groups):
        return []
    if not done:
        return [unit]
    left = unit.rows - rows
    return [
        replace(
            unit, row_groups=tuple(groups[done:]), first_row=unit.first_row + rows, rows=left,
            bytes=unit.bytes * left // max(1, unit.rows),
        )
    ]  # fmt: skip


def _opened(shared: Shared, unit: ChangeUnit, source: pa.NativeFile) -> _Opened | None:
    """The file, if its footer allows that it is copied, and every row may be inserted."""
    if isinstance(source, pa.PythonFile) and source.size() <= _LARGEST_GROUP // 4:
        source = pa.BufferReader(source.read_buffer())  # one request to its store
    footer = read_footer(source)
    groups = [footer.row_group(n) for n in (unit.row_groups or range(footer.num_row_groups))]
    rows = sum(group.num_rows for group in groups)
    if legacy_calendar(footer) or rows != unit.rows or rows < _FEWEST_ROWS * len(groups) or not rows:
        return None
    found = _form(shared.target, unit, footer)
    if found is None:
        return None
    source.seek(0)  # a small file is read from here
    for changes in Reading(unit, shared, source, ()).changes():
        if shared.append_only and (changes.marker != INSERT).any():
            return None
    return _Opened(source, footer, *found, counted_columns(shared.target))


def _form(target: Target, unit: ChangeUnit, footer: pq.FileMetaData) -> tuple[Form, tuple[int, ...]] | None:
    """The file's form and the places of its columns; None if a value or a name of it needs a conversion."""
    wanted = wanted_columns(footer, unit, target.columns, target.key_columns)
    given, types = dict(unit.constants), {column.name: column.type for column in target.columns}
    if given.keys() != set(target.partition_columns):
        return None
    if any(name in given for name in wanted.conversions) or any(types.get(name) != "string" for name in given):
        return None
    columns = tuple(column for column in target.columns if column.name in wanted.conversions)
    if any(not each.nullable and each not in columns and not given.get(each.name) for each in target.columns):
        return None
    held = [wanted.conversions[column.name][0] for column in columns]
    if not columns or not all(map(_is_kept, columns, held)):
        return None
    leaves = tuple(each.first_leaf for each in held)
    schema = footer.schema
    required = tuple(schema.column(leaf).max_definition_level == 0 for leaf in leaves)
    form = Form(columns, required, tuple(partition_value(given[name]) for name in target.partition_columns))
    wished = footers_of(columns, required).schema
    for place_, leaf in enumerate(leaves):
        ours, theirs = wished.column(place_), schema.column(leaf)
        if (ours.physical_type, ours.length, ours.max_definition_level, ours.max_repetition_level) != (
            theirs.physical_type, theirs.length, theirs.max_definition_level, theirs.max_repetition_level
        ):  # fmt: skip
            return None
    return form, leaves


def _is_kept(column: TargetColumn, held: Wanted) -> bool:
    """True if the values of a file's column are those of the table's column, bit by bit."""
    if not column.stored or not (column.type in _COPIED or column.type.startswith("decimal")):
        return False
    kind = kept_type(held.column)
    return kind == column.type or (kind == "timestamp_ntz" and column.type == "timestamp" and column.zone == "UTC")


@contextlib.contextmanager
def _piece(shared: Shared, opened: _Opened, number: int, footers: Footers) -> Iterator[Piece | None]:
    """A row group in memory, while the block runs; None if it must be written again."""
    needed = 0
    try:
        piece = None
        with contextlib.suppress(*_UNUSUAL):
            found = _chunks(opened, number)
            needed = _bytes_needed(found[1], opened, number) if found is not None else 0
            if needed > shared.budget.size // _PART_OF_MEMORY or not shared.budget.take(needed):
                needed = 0
            elif found is not None:
                piece = _checked(opened, number, footers, *found)
        yield piece
    finally:
        shared.budget.give(needed)


def _chunks(opened: _Opened, number: int) -> tuple[list[bytes], list[CopiedChunk]] | None:
    """The chunks of a row group as they are stored, and what their pages say; None if one cannot be copied."""
    told = opened.footer.row_group(number)
    metas = [told.column(leaf) for leaf in opened.leaves]
    if sum(meta.total_compressed_size for meta in metas) > _LARGEST_GROUP:
        return None
    stored, chunks = [], []
    for leaf, meta, is_required in zip(opened.leaves, metas, opened.form.required, strict=True):
        begin = begin_of(meta.data_page_offset, meta.dictionary_page_offset if meta.has_dictionary_page else None)
        data: bytes = opened.source.read_at(meta.total_compressed_size, begin)
        pages = checked_pages(_reader(data, begin), opened.footer, number, leaf)
        chunk = chunk_of(meta, pages, optional=not is_required)
        if chunk is None:
            return None
        stored.append(data)
        chunks.append(chunk)
    return stored, chunks


def _reader(data: bytes, begin: int) -> Callable[[int, int], bytes]:
    return lambda at, size: data[at - begin : at - begin + size]


def _bytes_needed(chunks: Sequence[CopiedChunk], opened: _Opened, number: int) -> int:
    """An upper bound for the bytes that copying a row group takes: text stays in dictionaries, where it is in one."""
    rows = min(MOST_ROWS, opened.footer.row_group(number).num_rows)
    return sum(2 * chunk.stored + 2 * chunk.size + _WIDEST * rows for chunk in chunks)


def _checked(
    opened: _Opened, number: int, footers: Footers, stored: Sequence[bytes], chunks: Sequence[CopiedChunk]
) -> Piece | None:
    """The row group as it will be written, decoded and counted. ValueError, ArrowException if it is not sound."""
    columns, rows = opened.form.columns, opened.footer.row_group(number).num_rows
    group = CopiedGroup(rows, len(MAGIC), tuple(chunks))
    data = b"".join((MAGIC, *stored, footers.footer([group])))
    tally = Tally(opened.counted)
    texts = [
        column.physical_name for column, chunk in zip(columns, chunks, strict=True)
        if chunk.data_page and column.type in ("string", "binary")
    ]  # fmt: skip
    with pq.ParquetFile(
        pa.BufferReader(data), read_dictionary=texts, page_checksum_verification=True, pre_buffer=False
    ) as file:
        for batch in file.iter_batches(MOST_ROWS, use_threads=False):
            for values in batch.columns:
                if pa.types.is_dictionary(values.type):
                    values.dictionary.validate(full=True)  # readers may check all of it
                elif pa.types.is_decimal(values.type):
                    values.validate(full=True)
            tally.add(batch)
            del batch, values
        tally.check(file.metadata.row_group(0), number)
    if any(not column.nullable and tally.nulls[column.physical_name] for column in columns):
        return None
    told = [
        _told(chunk, tally, column, footers.length(place_))
        for place_, (column, chunk) in enumerate(zip(columns, chunks, strict=True))
    ]
    return Piece(group._replace(chunks=tuple(told)), data, tally)


def _told(chunk: CopiedChunk, tally: Tally, column: TargetColumn, length: int) -> CopiedChunk:
    """The chunk with what a footer tells of its values. `length`: of a value, if the type has a fixed one."""
    found = tally.exact_bounds(column.physical_name)
    low = high = None
    if found is not None:
        low, high = _stored(found[0], column.type, length, up=False), _stored(found[1], column.type, length, up=True)
    if low is None or high is None:
        low = high = None
    return chunk._replace(nulls=tally.nulls[column.physical_name], low=low, high=high)


def _stored(value: Any, kind: str, length: int, *, up: bool) -> bytes | None:
    """A bound as Parquet stores it; None if it is left out."""
    if value is None or isinstance(value, bool | bytes):
        return None
    if isinstance(value, str):
        text = value.encode()
        return text if len(text) <= _LONGEST_BOUND else None
    if isinstance(value, Decimal):
        scale = int(kind[len("decimal(") : -1].split(",")[1])
        return int(value.scaleb(scale, _DIGITS)).to_bytes(length, "big", signed=True)
    if value == 0 and isinstance(value, float):
        value = 0.0 if up else -0.0  # both zeros are equal, and readers may compare their bits
    return struct.pack(_NUMBERS[kind], value)
