"""Partial rows (contract section 3a): where the values are that they leave out (`fills.py` reads them).

    keys, markers, names of columns ─▶ partial_rows: where the values are
    firsts, rows of the table       ─▶ with_keys: which row has which key

No value is read before all sources are known. Everything is done by column, not by row.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from lakemirror.engines.row_work import FILE, ROW, ChangeUnit, Target
from lakemirror.keys.key_values import comparable, key_codes, order_of, whole_numbers
from lakemirror.landing_zone.reserved_columns import NEVER_COLUMNS
from lakemirror.landing_zone.row_markers import DELETE

IN_TABLE, NOWHERE = -1, -2
"""Sources: the row that the table has with this key; no row, so that the value is NULL."""

FIRST = "__lakemirror_first__"
"""Column: the position of the first change of a row's key, where that one is partial, too."""


class PartialRows(NamedTuple):
    """The partial rows of some keys. All positions are among all changes of the batch.

    `kept`: for each inserted row that takes values from elsewhere its ROW, FIRST, and for each column named in any row
    the position of the change that has the value, or IN_TABLE, or NOWHERE; NULL where the row has its own value.
    `firsts`: keys, or their codes, and ROW of the partial rows that are the first change of their key: the table must
    have their key. `gone`: ROW of the partial rows right after a delete of their key. `late`: positions of late ones,
    which need no row of their key.
    """

    kept: pa.Table
    firsts: pa.Table
    gone: pa.Table
    late: np.ndarray = np.zeros(0, np.int64)


def may_name(target: Target, unit: ChangeUnit) -> dict[str, str]:
    """The columns that partial rows of a unit may name, as of `read_unchanged`. Values of an `unwritten` column cannot
    be kept.
    """
    known = {column.name.lower(): column.name for column in target.columns}
    named = {column.name.lower() for column in unit.columns} | known.keys() if unit.known is None else unit.known
    never = {name.lower() for name in NEVER_COLUMNS} | {column.name.lower() for column in target.unwritten}
    return {name: known.get(name, "") for name in named - never}


def without_named(values: pa.Array, name: str, unchanged: pa.Array) -> pa.Array:
    """The values of a column of a change file, NULL where the row leaves the column unchanged: nobody reads those."""
    encoded = unchanged.dictionary_encode()
    codes = [code for code, text in enumerate(encoded.dictionary.to_pylist()) if name in json.loads(text)]
    takes = np.isin(np.asarray(encoded.indices.fill_null(-1)), codes)
    return values.take(pa.array(np.arange(len(values)), mask=takes)) if takes.any() else values


def partial_rows(
    keys: pa.Table, markers: np.ndarray, unchanged: pa.ChunkedArray, kept: np.ndarray, positions: np.ndarray
) -> PartialRows:
    """The partial rows among all changes of some keys, in their order.

    `unchanged`: as from `read_unchanged`. `kept`: the numbers of the changes that are inserted. `positions`: of the
    changes among all of the batch.
    """
    names = unchanged.combine_chunks().dictionary_encode()
    named = np.asarray(names.indices.fill_null(-1)).astype(np.int64)
    codes = key_codes(comparable(keys))
    of_partial = np.zeros(int(codes.max(initial=-1)) + 1, bool)
    of_partial[codes[named >= 0]] = True
    changes = np.flatnonzero(of_partial[codes])
    changes = changes[order_of(codes[changes])]  # by key, then in their order
    count = len(changes)
    code, named, places = codes[changes], named[changes], np.arange(count)
    is_first = np.ones(count, bool)
    is_first[1:] = code[1:] != code[:-1]
    begin = np.maximum.accumulate(np.where(is_first, places, 0))
    is_delete = markers[changes] == DELETE
    is_gone = (named >= 0) & ~is_first & np.roll(is_delete, 1)
    is_kept = np.zeros(len(markers), bool)
    is_kept[kept] = True
    chosen = np.flatnonzero(is_kept[changes] & (named >= 0))
    at = positions[changes]
    chosen = chosen[np.argsort(at[chosen])]
    columns: dict[str, pa.Array] = {}
    lists = [frozenset(json.loads(text)) for text in names.dictionary.to_pylist()]
    for name in sorted(frozenset().union(*lists)):
        takes = np.array([*(name in each for each in lists), False])[named]
        last = np.maximum.accumulate(np.where(takes, -1, places))  # the last change that has a value of its own
        found = np.where(last >= begin, last, -1)
        source = np.where(found < 0, IN_TABLE, np.where(is_delete[found], NOWHERE, at[found]))
        columns[name] = pa.array(source[chosen], pa.int64(), mask=~takes[chosen])
    first_partial = is_first & (named >= 0)
    first = np.where(first_partial[begin], at[begin], -1)
    rows = {ROW: whole_numbers(at[chosen]), FIRST: pa.array(first[chosen], pa.int64()), **columns}
    firsts = keys.take(whole_numbers(changes[first_partial])).append_column(ROW, whole_numbers(at[first_partial]))
    return PartialRows(pa.table(rows), firsts, pa.table({ROW: whole_numbers(at[is_gone])}))


def together(parts: Sequence[PartialRows]) -> PartialRows:
    """The partial rows of all keys. `parts`: at least one."""
    kept = pa.concat_tables([part.kept for part in parts], promote_options="default")
    return PartialRows(
        kept.sort_by(ROW), pa.concat_tables([part.firsts for part in parts]),
        pa.concat_tables([part.gone for part in parts]), np.concatenate([part.late for part in parts]),
    )  # fmt: skip


def with_keys(firsts: pa.Table, old: pa.Table) -> pa.Table:
    """The rows of the table that have the keys of `firsts`: FIRST, FILE, ROW. `old`: keys, FILE and ROW of rows."""
    names = [name for name in firsts.column_names if name != ROW]
    keys = comparable(pa.concat_tables([firsts.select(names), old.select(names)]).combine_chunks())
    codes = key_codes(keys)
    wanted, held = codes[: firsts.num_rows], codes[firsts.num_rows :]
    first = np.full(int(codes.max(initial=-1)) + 1, -1, np.int64)
    first[wanted] = np.asarray(firsts[ROW].combine_chunks())
    hits = np.flatnonzero(first[held] >= 0)
    found = old.select([FILE, ROW]).take(whole_numbers(hits))
    return pa.table({FIRST: whole_numbers(first[held][hits]), FILE: found[FILE], ROW: found[ROW]})
