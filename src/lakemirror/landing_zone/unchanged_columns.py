"""The column `__unchangedColumns__` of change files: which columns a partial row leaves out (contract section 3a)."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.landing_zone.row_markers import UPDATE, UPSERT, column_names


def read_unchanged(
    values: pa.Array, marker: npt.NDArray[np.int8], may_name: Mapping[str, str], keys: Collection[str],
    sequence: Collection[str] = (),
) -> tuple[pa.Array | None, tuple[int, str] | None]:  # fmt: skip
    """The columns of the table that keep their values, for each row as JSON text; None if all rows are complete.

    A complete row has NULL. Also the first row that is wrong, and why. Ignore the rows after it. `may_name`: by name in
    lower case the table's name of each column that a row may name, empty for one that the table does not have yet.
    `keys`, `sequence`: the columns of key and sequence, in lower case, which no row may leave out. ArrowException if
    the column is no list of strings.
    """
    texts, bad = _texts(values)
    encoded = texts.dictionary_encode()
    kept, whys = _known_names(encoded.dictionary.to_pylist(), may_name, keys, sequence)
    codes = np.asarray(encoded.indices.fill_null(len(kept)))
    names = pa.array([*kept, None], pa.string()).take(pa.array(codes))
    wrong = np.array([*(bool(why) for why in whys), False])[codes]
    if bad >= 0:
        wrong[bad] = True
    is_partial = np.asarray(texts.is_valid())
    wrong |= is_partial & (marker != UPDATE) & (marker != UPSERT)
    if wrong.any():
        row = int(wrong.argmax())
        why = "names NULL" if row == bad else whys[codes[row]] if codes[row] < len(whys) else ""
        return names, (row, why or "is on a row that is neither an update nor an upsert")
    return (names if names.null_count < len(names) else None), None


def _texts(values: pa.Array) -> tuple[pa.Array, int]:
    """The names of each row as one text, NULL for none; and the first row that has NULL among them, or -1."""
    while isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_null(values.type):
        return values.cast(pa.string()), -1
    if not pa.types.is_nested(values.type):
        texts = values.cast(pa.string())
        empty = pc.is_in(pc.utf8_trim_whitespace(texts), pa.array(["", "[]", "null"]))
        return pc.if_else(empty, pa.scalar(None, pa.string()), texts), -1
    lists = values.cast(pa.list_(pa.string()))
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    texts = pc.if_else(pc.equal(lengths, 0), pa.scalar(None, pa.string()), pc.binary_join(lists, "\0"))
    # a text of a list begins with NUL, which no JSON does
    bad: int = pc.index(pc.and_(pc.greater(lengths, 0), texts.is_null()), True).as_py()
    return pc.binary_join_element_wise("\0", texts, ""), bad


def _known_names(
    texts: Sequence[str], may_name: Mapping[str, str], keys: Collection[str], sequence: Collection[str]
) -> tuple[list[str | None], list[str]]:
    """For each text its columns of the table as JSON, NULL for none, and why it is wrong, empty if it is not."""
    kept: list[str | None] = []
    whys = []
    for text in texts:
        why, names = "", text[1:].split("\0") if text.startswith("\0") else column_names(text)
        if names is None:
            why, names = "is not a list of column names", []
        for name in names:
            if name.lower() in keys:
                why = why or f"names the key column {name[:100]!r}"
            elif name.lower() in sequence:
                why = why or f"names {name[:100]!r}, a column of the sequence, which orders the row itself"
            elif name.lower() not in may_name:
                why = why or f"names {name[:100]!r}, which is no column of the file or the table"
        chosen = sorted({may_name[name.lower()] for name in names if may_name.get(name.lower())})
        kept.append(json.dumps(chosen) if chosen and not why else None)
        whys.append(why)
    return kept, whys
