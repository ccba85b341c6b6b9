"""What is known of a table while its files are checked, and what the rows of one file show.

rows in batches ─▶ `look_at_…`: the first bad row of each kind, and how many there are ─▶ `row_findings`
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.delta.schema import Column
from lakemirror.errors import TableError
from lakemirror.landing_zone.column_types import FileColumn
from lakemirror.landing_zone.findings import Finding, reported
from lakemirror.landing_zone.row_markers import INSERT, NEVER_COLUMNS, ROW_MARKER, UNCHANGED, UPSERT, marker_number
from lakemirror.landing_zone.unchanged_columns import read_unchanged
from lakemirror.landing_zone.zoneless import how_read
from lakemirror.mirror.schema_evolution import ColumnRules, check_not_added, evolved

_MARKERS = {0, 1, 2, 4}


@dataclass
class SeenColumns:
    """The columns of a table as its files so far make them, by name in lower case."""

    columns: dict[str, Column] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)  # the file in which each was seen first
    said: set[str] = field(default_factory=set)  # columns whose times without a zone were reported
    without_sequence: set[str | None] = field(default_factory=set)  # columns of the sequence that a file lacks

    def take(self, column: FileColumn, file: str, rules: ColumnRules) -> TableError | None:
        """Adds the column as the engine would (`schema_evolution`); the error with which the engine would stop."""
        lower = column.name.lower()
        try:
            check_not_added(column.name, file, rules)
            grown = evolved(self.columns.get(lower), column, file, rules)
        except TableError as error:
            if error.code == "type-changed":
                error.message = f"{error.message} since {self.files[lower].rpartition('/')[2]}"
            return error
        if grown is not None:
            self.columns[lower] = grown
            self.files.setdefault(lower, file)
        return None

    def zone_found(self, name: str, zone: str) -> str | None:
        """What is said once about a column that has times without a zone; None after the first time, and for one that
        keeps them as they are.
        """
        lower = name.lower()
        column = self.columns.get(lower)
        if column is None or column.type != "timestamp" or lower in self.said:
            return None
        self.said.add(lower)
        return how_read(zone or column.zone)


@dataclass(frozen=True)
class Expected:
    """What the table's metadata says about rows; `keys` is None where it is not known, because it does not parse.

    `sequence`: its columns. `times`: the source's time of each change is needed. `rules`, `undeclared`, `memory`:
    settings of the database, as the engine uses them.
    """

    table: str
    keys: tuple[str, ...] | None
    upsert_by_default: bool
    rules: ColumnRules
    sequence: tuple[str, ...]
    times: bool
    undeclared: str
    memory: int


@dataclass
class Rows:
    """What the rows read so far showed: the first row (from 1) of each kind, and how many there were."""

    bad_marker: int | None = None
    bad_value: object = None
    bad_count: int = 0
    needs_key: int | None = None
    null_keys: dict[str, tuple[int, int]] = field(default_factory=dict)
    bad_names: tuple[int, str] | None = None
    without_sequence: tuple[int, str] | None = None

    def bad(self, row: int, value: object, count: int) -> None:
        if self.bad_marker is None:
            self.bad_marker, self.bad_value = row, value
        self.bad_count += count


def row_findings(rows: Rows, keys: dict[str, FileColumn | None], path: str, expected: Expected) -> Iterator[Finding]:
    def found(code: str, message: str, row: int | None, column: str | None = None) -> Finding:
        return reported(code, message, table=expected.table, file=path, row=row, column=column)

    if rows.bad_marker is not None:
        more = f", and {rows.bad_count - 1} more like it" if rows.bad_count > 1 else ""
        message = f"row marker {str(rows.bad_value)[:100]!r} is not one of 0, 1, 2, 4{more}"
        yield found("row-marker-invalid", message, rows.bad_marker, ROW_MARKER)
    if rows.bad_names is not None:
        row, why = rows.bad_names
        yield found("partial-row-invalid", f"{UNCHANGED} {why}", row, UNCHANGED)
    if rows.without_sequence is not None:
        row, name = rows.without_sequence
        yield found("sequence-null", f"column {name!r} is NULL, and it is the sequence of this table", row, name)
    if rows.needs_key is not None and expected.keys == ():
        yield found("key-columns-missing", "an update, delete or upsert needs key columns", rows.needs_key)
    for key, column in keys.items():
        if column is None and rows.needs_key is not None:
            yield found("key-column-absent", f"key column {key} is not in the file", rows.needs_key, key)
        elif column is None:
            yield found("key-null", f"key column {key} is not in the file: its rows get NULL", None, key)
        elif key in rows.null_keys:
            first, count = rows.null_keys[key]
            yield found("key-null", f"key column {key} is NULL in {count} rows", first, key)


def look_at_markers(values: pa.Array, done: int, rows: Rows, upsert_by_default: bool) -> None:
    values = values.storage if isinstance(values, pa.ExtensionArray) else values
    encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    codes: dict[str, list[int]] = {"bad": [], "keyed": []}
    for code, value in enumerate(encoded.dictionary):
        number = _marker_number(value.as_py())
        if value.is_valid and number not in _MARKERS:
            codes["bad"].append(code)
        elif number in (1, 2, 4):
            codes["keyed"].append(code)
    bad = pc.is_in(encoded.indices, value_set=pa.array(codes["bad"], encoded.indices.type))
    count = pc.sum(bad).as_py() or 0
    if count:
        first = pc.index(bad, True).as_py()
        rows.bad(done + first + 1, encoded[first].as_py(), count)
    if rows.needs_key is None:
        keyed = pc.is_in(encoded.indices, value_set=pa.array(codes["keyed"], encoded.indices.type))
        if upsert_by_default:
            keyed = pc.or_(keyed, encoded.is_null())
        first = pc.index(keyed, True).as_py()
        rows.needs_key = done + first + 1 if first >= 0 else None


def look_at_unchanged(
    batch: pa.RecordBatch, done: int, rows: Rows, columns: Sequence[FileColumn], expected: Expected, seen: SeenColumns
) -> None:
    """Finds the first row whose `__unchangedColumns__` the engine rejects."""
    if UNCHANGED not in batch.schema.names or rows.bad_names is not None:
        return
    names = {column.name.lower(): column.name for column in columns if column.name not in NEVER_COLUMNS}
    names |= {lower: column.name for lower, column in seen.columns.items()}
    default = UPSERT if expected.upsert_by_default else INSERT
    markers = np.full(batch.num_rows, default, np.int8)
    if ROW_MARKER in batch.schema.names:
        given = [_marker_number(value) if value is not None else default for value in batch[ROW_MARKER].to_pylist()]
        markers = np.array([value if value in _MARKERS else INSERT for value in given], np.int8)
    _, wrong = read_unchanged(batch[UNCHANGED], markers, names, {key.lower() for key in expected.keys or ()})
    if wrong is not None:
        rows.bad_names = done + wrong[0] + 1, wrong[1]


def look_at_key(key: str, values: pa.Array, done: int, rows: Rows) -> None:
    if values.null_count:
        first = pc.index(values.is_null(), True).as_py()
        earlier, count = rows.null_keys.get(key, (done + first + 1, 0))
        rows.null_keys[key] = (earlier, count + values.null_count)


def look_at_sequence(batch: pa.RecordBatch, done: int, rows: Rows, expected: Expected) -> None:
    ordering = {name.lower() for name in expected.sequence}
    nulls = [
        (done + pc.index(values.is_null(), True).as_py() + 1, name)
        for name, values in zip(batch.schema.names, batch.columns, strict=True)
        if name.lower() in ordering and values.null_count
    ]
    if nulls and rows.without_sequence is None:
        rows.without_sequence = min(nulls)


def _marker_number(value: object) -> int | None:
    """The marker's number; None where it is no whole number."""
    text = value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)
    return marker_number(text)
