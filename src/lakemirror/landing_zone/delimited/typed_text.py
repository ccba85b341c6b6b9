"""Columns of text as values of their table types, and the error for the first text that is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.errors import TableError
from lakemirror.landing_zone.delimited.hints import hint_for_value
from lakemirror.landing_zone.delimited.plain_values import converted_as_written
from lakemirror.landing_zone.delimited.values import BadValue
from lakemirror.landing_zone.metadata import DelimitedFormat
from lakemirror.landing_zone.reserved_columns import ROW_MARKER, UNCHANGED
from lakemirror.landing_zone.row_markers import column_names
from lakemirror.landing_zone.zoneless import Zones


@dataclass(frozen=True)
class TypedText:
    """The table type of each column, in the file's order, and how numbers and times are written."""

    types: Mapping[str, str]
    form: DelimitedFormat
    zones: Zones

    def values(self, texts: pa.RecordBatch) -> pa.RecordBatch:
        """The rows in their types; a column that is no text has its type already. `BadValue` of the first bad row.

        What a partial row holds in the columns that it leaves out is not read (contract section 3a).
        """
        arrays, bad = [], []
        left_out = _left_out(texts.column(list(self.types).index(UNCHANGED))) if UNCHANGED in self.types else {}
        for texts_of_column, (name, kind) in zip(texts.columns, self.types.items(), strict=True):
            if name.lower() in left_out and texts_of_column.type == pa.string():
                nobody_reads = pa.array(left_out[name.lower()])
                texts_of_column = pc.if_else(nobody_reads, pa.scalar(None, pa.string()), texts_of_column)
            try:
                arrays.append(self._column(texts_of_column, name, kind))
            except BadValue as value:
                bad.append(BadValue(value.place, value.text, value.why, name))
        if bad:
            raise min(bad, key=lambda value: value.place)
        return pa.RecordBatch.from_arrays(arrays, names=list(self.types))

    def error(self, bad: BadValue, file: str, line: int) -> TableError:
        """`value-invalid`, or `row-marker-invalid`, with the line."""
        name, text, kind = bad.column, bad.text, self.types[bad.column]
        shown = text if len(text) <= 100 else text[:99] + "…"
        code = "row-marker-invalid" if name == ROW_MARKER else "value-invalid"
        what = bad.why or f"is not {'an integer' if name == ROW_MARKER else kind}"
        return TableError(
            code, f"{file}, line {line}, column {name}: {shown!r} {what}", file=file, row=line, column=name,
            hint=hint_for_value(text, kind, self.form) or None,
        )  # fmt: skip

    def _column(self, texts: pa.Array, name: str, kind: str) -> pa.Array:
        """One column's values. Row markers are plain numbers in any form."""
        if texts.type != pa.string():
            return texts
        return converted_as_written(
            texts, kind, DelimitedFormat() if name == ROW_MARKER else self.form, name, self.zones
        )


def _left_out(texts: pa.Array) -> dict[str, np.ndarray]:
    """By column, in lower case: which rows leave it out."""
    encoded = texts.dictionary_encode()
    codes = np.asarray(encoded.indices.fill_null(-1))
    rows: dict[str, np.ndarray] = {}
    for code, text in enumerate(encoded.dictionary.to_pylist()):
        for name in column_names(text) or ():
            lower = name.lower()
            rows[lower] = rows.get(lower, np.zeros(len(codes), bool)) | (codes == code)
    return rows
