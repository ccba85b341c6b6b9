"""Compares the rows of a table with those of the other side: archived files or the source.

living rows ─▶ hashes ─▶ buckets ┐
other rows  ─▶ hashes ─▶ buckets ┴▶ sums ─▶ equal, or the differing keys, with their values
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakemirror.verify.columns import TableColumn, in_type
from lakemirror.verify.finding import Finding
from lakemirror.verify.row_hashes import Hashes, column_hashes, combined, row_hashes
from lakemirror.verify.row_store import Difference, RowStore, differences

MOST_KEYS = 20
"""Differing keys that a report lists."""

_ROW, _KEY, _KEY_TOO = 1, 2, 3  # seeds of independent hashes


@dataclass(frozen=True)
class Compared:
    """What is compared: these columns of rows with the same key; without keys, complete rows.

    `one_key`: keys are declared, and no file has typed one yet: all rows have the same key, NULL.
    """

    columns: tuple[TableColumn, ...]
    keys: tuple[str, ...]
    one_key: bool = False

    def of(self, batch: pa.RecordBatch) -> tuple[Hashes, Hashes, Hashes]:
        """Two hashes of each row's key, and one of the row."""
        held = {name: batch.column(index) for index, name in enumerate(batch.schema.names)}
        row = [held[column.name] for column in self.columns]
        key = [held[name] for name in self.keys] if self.keys or self.one_key else row
        count = batch.num_rows
        return row_hashes(key, count, _KEY), row_hashes(key, count, _KEY_TOO), row_hashes(row, count, _ROW)

    def take(self, store: RowStore, batch: pa.RecordBatch, *more: Hashes) -> None:
        """Adds the rows of a batch to a store, with further numbers for each row."""
        store.add(np.column_stack([*self.of(batch), *more]))

    def parts(self, batch: pa.RecordBatch, left_out: Mapping[str, np.ndarray]) -> list[Hashes]:
        """For each column its hashes, and 1 for the rows that leave it out (contract section 3a)."""
        none = np.zeros(batch.num_rows, np.uint64)
        found = []
        for column in self.columns:
            found.append(column_hashes(batch.column(column.name)))
            found.append(left_out[column.name.lower()].astype(np.uint64) if column.name.lower() in left_out else none)
        return found

    def row(self, parts: Sequence[Hashes], rows: int) -> Hashes:
        """The hash of each row from the hashes of its columns."""
        return combined(parts, rows, _ROW)

    def cast(self, batch: pa.RecordBatch, zone: str = "") -> pa.RecordBatch:
        """Rows of a source in the table's columns and types. ArrowException or TypeError if a value does not fit.

        `zone`: of times that name none; empty: as each column reads them.
        """
        held = {name.lower(): index for index, name in enumerate(batch.schema.names)}
        arrays = [
            in_type(batch.column(held[column.name.lower()]), column.type, zone or column.zone)
            for column in self.columns
        ]
        return pa.RecordBatch.from_arrays(arrays, [column.name for column in self.columns])


def choose(
    columns: Sequence[TableColumn], keys: Sequence[str], left_out: Iterable[str], only: Iterable[str] | None = None
) -> Compared:
    """The columns that can be compared. `only`: names that the other side has. A key column that the
    table lacks is NULL in every row."""
    without = set(left_out)
    names = None if only is None else {name.lower() for name in only}
    kept = tuple(
        column
        for column in columns
        if column.type is not None and column.name not in without and (names is None or column.name.lower() in names)
    )
    spelling = {column.name.lower(): column.name for column in kept}
    typed = [key for key in keys if any(key.lower() == column.name.lower() for column in columns)]
    named = tuple(spelling[key.lower()] for key in typed if key.lower() in spelling)
    return Compared(kept, named if len(named) == len(typed) else (), bool(keys) and not typed)


@dataclass(frozen=True)
class Side:
    """The other side of a comparison. `fill` adds its rows to a store; `read` returns them for the values of keys.

    `changes`: its rows are changes, which are folded. `any_order`: in no known order. `again`: the side after its files
    have moved; None if there is none. `partial`: some of its rows are partial, so the store has the parts of each row.
    """

    name: str
    compared: Compared
    buckets: int
    fill: Callable[[RowStore, int], None]
    read: Callable[[], Iterator[pa.RecordBatch]]
    changes: bool = False
    any_order: bool = False
    again: Callable[[], Side | None] = lambda: None
    partial: bool = False

    @property
    def width(self) -> int:
        """The numbers of each row in its store."""
        return (5 if self.changes else 3) + (2 * len(self.compared.columns) if self.partial else 0)


def compare(
    table: str, mine: RowStore, theirs: RowStore, side: Side, my_rows: Callable[[], Iterator[pa.RecordBatch]]
) -> list[Finding]:
    """A finding for each differing key, MOST_KEYS with their values. `theirs`: the rows of the other side.

    `my_rows` reads the table again, to show values of keys; it is called only if something differs.
    """
    counts = {"verify-row-extra": 0, "verify-row-missing": 0, "verify-row-differs": 0}
    shown: list[tuple[str, Difference]] = []
    row_of = side.compared.row if side.partial else None
    for difference in differences(mine, theirs, changes=side.changes, any_order=side.any_order, row_of=row_of):
        code = _code(difference)
        counts[code] += 1
        if counts[code] <= MOST_KEYS:
            shown.append((code, difference))
    if not shown:
        return []
    wanted = {difference.key for _, difference in shown}
    values = _values(my_rows(), side.compared, wanted)
    values.update(_values(side.read(), side.compared, wanted - values.keys()))
    findings = []
    for code, difference in shown:
        what = values.get(difference.key, "a row")
        sentence = {
            "verify-row-extra": f"{what}: the table has {difference.extra} more than {side.name}",
            "verify-row-missing": f"{what}: the table has {difference.missing} fewer than {side.name}",
            "verify-row-differs": f"{what}: the values in the table are not those of {side.name}",
        }[code]
        findings.append(Finding(code, table, sentence))
    for code, count in counts.items():
        if count > MOST_KEYS:
            findings.append(Finding(code, table, f"{count - MOST_KEYS} more keys are not listed"))
    return findings


def _code(difference: Difference) -> str:
    if not difference.missing:
        return "verify-row-extra"
    return "verify-row-differs" if difference.extra else "verify-row-missing"


def _values(
    batches: Iterator[pa.RecordBatch], compared: Compared, wanted: set[tuple[int, int]]
) -> dict[tuple[int, int], str]:
    """The values of the wanted keys as text, as far as they are found."""
    found: dict[tuple[int, int], str] = {}
    first = np.array([key[0] for key in wanted], np.uint64)
    names = compared.keys or tuple(column.name for column in compared.columns)
    if not wanted:
        return found
    for batch in batches:
        one, two, _ = compared.of(batch)
        for index in np.flatnonzero(np.isin(one, first)):
            key = int(one[index]), int(two[index])
            if key in wanted and key not in found:
                row = batch.slice(int(index), 1).select(list(names)).to_pylist()[0]
                found[key] = ", ".join(f"{name}={value!r}"[:100] for name, value in row.items())[:400]
        if len(found) == len(wanted):
            break
    return found
