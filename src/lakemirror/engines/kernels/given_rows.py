"""Reads given rows of a data file in the table's columns, at the cost of the pages that they are in.

rows ─▶ flat columns with a page index ─▶ their pages (`parquet/page_rows`) ─┐
    └─▶ nested columns, files without an index ─▶ whole row groups           ├─▶ the rows
    └─▶ keys in the cache, values of partition folders ──────────────────────┘
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.engines.kernels.data_rows import (
    DataFile,
    RowGroup,
    constant_rows,
    opened,
    rows_of,
    stored_arrow_type,
    stored_names,
)
from lakemirror.engines.kernels.nested_values import field_of, shaped
from lakemirror.engines.row_work import TargetColumn
from lakemirror.keys.look_up import LATELY_READ
from lakemirror.parquet.page_index import PagesOfFile, has_page_index, pages_of_file
from lakemirror.parquet.page_rows import Apart, read_rows, share_of_pages
from lakemirror.storage.place import capabilities_of, read_pieces

_AT_ONCE = 64 << 20  # bytes of row groups whose pages are read together
_MOST = 256 << 20  # of a row group of more bytes no pages are read: they might be all of it
_GAPS = Apart(16 << 10, sys.maxsize)
_GAPS_OF_STORE = 64 << 10
_LEAST_ROWS = 256  # of a page, as lakemirror writes them
_WORTH_IT = 0.6  # on a disk, a column is read whole if more of its rows are in the pages that are needed


class Given(NamedTuple):
    """Rows of a row group: their places (ascending) in it. `keys`: their keys, if they need not be read."""

    group: RowGroup
    places: np.ndarray
    keys: pa.Table | None = None


def given_rows(
    parquet: pq.ParquetFile, pages: PagesOfFile | None, rows: Sequence[Given], columns: Sequence[TargetColumn]
) -> Iterator[pa.Table]:
    """These rows of a data file, in their order. `pages`: None if its pages are not known."""
    names = [column.name for column in columns]
    encoded: pq.ParquetFile | None = None
    for part in _parts(parquet.metadata, rows):
        keys = pa.concat_tables([each.keys for each in part]) if part[0].keys is not None else None
        known = set(keys.column_names if keys is not None else ()).intersection(names)
        left = [column for column in columns if column.name not in known]
        if not left and keys is not None:
            yield keys.select(names)
            continue
        found = None if pages is None else _by_pages(parquet, pages, part, left)
        if found is None:
            encoded = encoded or opened(part[0].group.file, parquet.metadata, encoded=_texts(parquet.metadata))
            tables = (table for each in part for table in rows_of(encoded, each.group, left, places=each.places))
        else:
            tables = (table for table in [found])
        begin = 0
        for table in tables:
            end = begin + table.num_rows
            for name in known:
                assert keys is not None
                table = table.append_column(name, keys[name].slice(begin, end - begin))
            yield table.select(names) if known else table
            begin = end
    if encoded is not None:
        encoded.close()


def are_many(rows: Sequence[Given]) -> bool:
    """True if these rows are in nearly all pages of their row groups, so that no page index need be read."""
    if not rows or capabilities_of(rows[0].group.file.place).waits:
        return False
    touched = sum(1 + np.count_nonzero(np.diff(each.places // _LEAST_ROWS)) for each in rows)
    return bool(touched * _LEAST_ROWS > _WORTH_IT * sum(each.group.rows for each in rows))


def kept_pages(file: DataFile, version: object, footer: pq.FileMetaData) -> PagesOfFile | None:
    """Where the pages of a data file are, from the cache or its page index; None if it has none that can be used."""
    name = "pages", file.place, version
    kept = LATELY_READ.get(name)
    if isinstance(kept, PagesOfFile):
        return kept
    found = pages_of_file(footer, partial(read_pieces, file.place)) if has_page_index(footer) else None
    if found is not None:
        LATELY_READ.put(name, found)
    return found


def _parts(footer: pq.FileMetaData, rows: Sequence[Given]) -> Iterator[list[Given]]:
    """The row groups that are read together: not too many bytes, and all or none with keys."""
    part: list[Given] = []
    size = 0
    for each in rows:
        its = footer.row_group(each.group.index).total_byte_size
        if part and (size + its > _AT_ONCE or (each.keys is None) != (part[0].keys is None)):
            yield part
            part, size = [], 0
        part.append(each)
        size += its
    if part:
        yield part


def _by_pages(
    parquet: pq.ParquetFile, pages: PagesOfFile, rows: Sequence[Given], columns: Sequence[TargetColumn]
) -> pa.Table | None:
    """The rows by their pages; None if that is not possible for any column, or a page is not what the index says."""
    file, groups = rows[0].group.file, [each.group.index for each in rows]
    if any(parquet.metadata.row_group(group).total_byte_size > _MOST for group in groups):
        return None
    held = stored_names(parquet, file, columns)
    wanted = [(each.group.index, each.places) for each in rows]
    shares = {name: share_of_pages(pages, stored, wanted) for name, stored in held.items()}
    waits = capabilities_of(file.place).waits
    flat = {name: held[name] for name, share in shares.items() if share is not None and (waits or share <= _WORTH_IT)}
    if not flat:
        return None
    apart = Apart(_GAPS_OF_STORE, len(groups) + 2) if waits else _GAPS
    read = read_rows(pages, list(flat.values()), wanted, partial(read_pieces, file.place), apart)
    if read is None:
        return None
    whole = [column for column in columns if column.name in held and column.name not in flat]
    absent = [column for column in columns if column.name not in held]
    others = [constant_rows(sum(len(each.places) for each in rows), file, absent)]
    if whole:
        others.append(
            pa.concat_tables(t for each in rows for t in rows_of(parquet, each.group, whole, places=each.places))
        )
    values = {name: column for table in others for name, column in zip(table.column_names, table.columns, strict=True)}
    for column in columns:
        if column.name in flat:
            kind = stored_arrow_type(column)
            field = field_of(column)
            values[column.name] = pa.chunked_array(
                [shaped(chunk, field, kind) for chunk in read[flat[column.name]]], kind
            )
    schema = pa.schema([(column.name, stored_arrow_type(column)) for column in columns])
    return pa.table([values[column.name] for column in columns], schema=schema)


def _texts(footer: pq.FileMetaData) -> list[str]:
    """The columns of texts whose row groups all have a dictionary: few of their texts are written out."""
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    leaves = [(leaf, footer.schema.column(leaf)) for leaf in range(footer.num_columns)]
    return [
        column.path for leaf, column in leaves
        if column.physical_type == "BYTE_ARRAY" and column.max_repetition_level == 0
        and all(group.column(leaf).has_dictionary_page for group in groups)
    ]  # fmt: skip
