"""Changes as rows of a table of changes: every change as it came, and where it came from (history.md section 3).

    rows of change files, markers, names of unchanged columns ─▶ logged ─▶ the rows with lakemirror's own columns

Nothing is folded or looked up: the rows are appended.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.engines.kernels.data_rows import arrow_type
from lakemirror.engines.kernels.version_rows import Changed
from lakemirror.engines.row_work import ChangeUnit, HistoryWork, Target
from lakemirror.keys.key_values import whole_numbers
from lakemirror.landing_zone.reserved_columns import APPLIED_AT, CHANGE_FILE, CHANGE_ROW, LEFT_OUT, OPERATION
from lakemirror.landing_zone.row_markers import DELETE, INSERT, UPDATE, UPSERT

_OPERATIONS = {INSERT: "insert", UPDATE: "update", DELETE: "delete", UPSERT: "upsert"}
_LISTS = pa.list_(pa.field("element", pa.string()))
_TIME = pa.timestamp("us", "UTC")


def logged(
    rows: pa.Table, markers: np.ndarray, names: pa.Array | pa.ChunkedArray | None, origin: tuple[pa.Array, pa.Array],
    history: HistoryWork,
) -> pa.Table:  # fmt: skip
    """The rows as a table of changes holds them.

    `markers`: one a row. `names`: the columns that each row leaves unchanged, as of `read_unchanged`; None: all rows
    are complete. `origin`: file and row of each, as of `origin_of`.
    """
    ours = {
        OPERATION: operations_of(markers),
        CHANGE_FILE: origin[0],
        CHANGE_ROW: origin[1],
        APPLIED_AT: pa.repeat(pa.scalar(history.applied_at, _TIME), rows.num_rows),
        LEFT_OUT: pa.nulls(rows.num_rows, _LISTS) if names is None else _left_out(names),
    }
    for name, values in ours.items():
        rows = rows.append_column(name, values)
    return rows


def operations_of(markers: np.ndarray) -> pa.DictionaryArray:
    """What row markers say, as text."""
    kinds = np.full(max(_OPERATIONS) + 1, -1, np.int8)
    for code, marker in enumerate(_OPERATIONS):
        kinds[marker] = code
    return pa.DictionaryArray.from_arrays(pa.array(kinds[markers]), pa.array(list(_OPERATIONS.values())))


def changed_of(rows: pa.Table, target: Target) -> Changed:
    """Remembered changes as changes with the columns of another table, in the order in which they came."""
    rows = rows.take(pc.sort_indices(rows, [(name, "ascending") for name in (CHANGE_FILE, CHANGE_ROW)]))
    markers = {name: marker for marker, name in _OPERATIONS.items()}
    encoded = rows[OPERATION].combine_chunks().dictionary_encode()
    codes = np.array([markers[name] for name in encoded.dictionary.to_pylist()], np.int8)
    columns = {each.name: arrow_type(each.type) for each in target.sources.columns if each.stored}
    held = set(rows.column_names)
    values = [
        rows[name].cast(kind) if name in held else pa.nulls(rows.num_rows, kind) for name, kind in columns.items()
    ]
    return Changed(pa.table(values, names=list(columns)), codes[np.asarray(encoded.indices)])


def origin_of(runs: Iterable[tuple[ChangeUnit, int, int]], history: HistoryWork) -> tuple[pa.Array, pa.Array]:
    """The file, by its path below the table folder, and the row in it from 0, of each change of some runs.

    `runs`: a unit of the file, the number of the first row in the file, the number of rows.
    """
    found = list(runs)
    files = [unit.name.removeprefix(f"{history.folder}/") for unit, _, _ in found]
    distinct = {file: code for code, file in enumerate(dict.fromkeys(files))}
    codes = np.repeat([distinct[file] for file in files], [rows for _, _, rows in found]).astype(np.int32)
    numbers: Sequence[np.ndarray] = [np.arange(first, first + rows) for _, first, rows in found]
    names = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(list(distinct), pa.string()))
    return names, whole_numbers(np.concatenate([np.zeros(0, np.int64), *numbers]))


def _left_out(names: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The names as lists; NULL for complete rows."""
    whole = names.combine_chunks() if isinstance(names, pa.ChunkedArray) else names
    encoded = whole.dictionary_encode()
    lists = [json.loads(text) for text in encoded.dictionary.to_pylist()]
    return pa.array(lists, _LISTS).take(encoded.indices)
