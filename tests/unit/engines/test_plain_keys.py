"""The changes that need no old rows act as if these were read: with any options, rows and remembered deletes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.mirror import target_of
from tests.rounds import rounds

from lakemirror.engines.kernels.ordered_fold import FoldedKeys, fold_ordered
from lakemirror.engines.kernels.partial_rows import FIRST
from lakemirror.engines.plain_keys import deleting, need_rows, plain_changes
from lakemirror.engines.row_work import DEAD, DIED, FILE, MARKER, NAMES, ROW, SEQUENCE, Ordering, Target
from lakemirror.landing_zone.reserved_columns import DELETED, DELETED_AT
from lakemirror.landing_zone.row_markers import DELETE, INSERT, UPDATE, UPSERT

TIME = pa.timestamp("us", "UTC")
OWN = {DELETED: pa.bool_(), DELETED_AT: TIME}
KEYS, NUMBERS = st.integers(0, 4), st.integers(1, 5)
CHANGES = st.lists(
    st.tuples(KEYS, st.sampled_from([INSERT, UPDATE, UPSERT, DELETE]), NUMBERS, st.sampled_from([None, '["a"]'])),
    min_size=1, max_size=8,
)  # fmt: skip
OLD = st.dictionaries(KEYS, st.tuples(NUMBERS, st.booleans(), st.integers(0, 1)))
REMEMBERED = st.lists(st.tuples(KEYS, NUMBERS), max_size=4)


@given(st.sampled_from(["hard", "soft", "ignore"]), st.booleans(), CHANGES, OLD, REMEMBERED)
@settings(max_examples=rounds(200, 5000), deadline=None)
def test_rows_that_are_not_read_make_no_difference(
    deletes: str, ordered: bool, came: list[tuple[int, int, int, str | None]],
    rows: dict[int, tuple[int, bool, int]], known: list[tuple[int, int]],
) -> None:  # fmt: skip
    ordering = Ordering(deletes, ("n",) if ordered else ())
    target = target_of(
        Path("/nowhere"), {"k": pa.int64(), "a": pa.string(), **(OWN if deletes == "soft" else {})}, ("k",)
    )
    came = [(k, m, n, names if m in (UPDATE, UPSERT) else None) for k, m, n, names in came]
    changes, old, remembered = _changes(came, ordering), _old(rows, ordering), _remembered(known, ordering)
    complete = fold_ordered(target, ordering, changes, old, remembered)

    least = min(n for _, _, n, _ in came)
    near = [k for k, (n, _, _) in rows.items() if ordered and n >= least] + [k for k, n in known if n >= least]
    needs = need_rows(ordering, changes, pa.table({"k": pa.array(near if ordered else [], pa.int64())}))
    its = changes.filter(pa.array(needs.rows))
    parts = [fold_ordered(target, ordering, its, _of(old, its), None if remembered is None else _of(remembered, its))]
    plain, gone = plain_changes(changes, needs)
    found = _of(old, gone)
    numbers = {file: np.sort(_numbers(found.filter(pa.array(_numbers(found, FILE) == file)))) for file in (0, 1)}
    parts.append(deleting(plain, {file: its for file, its in numbers.items() if len(its)}))
    assert _seen(parts, target) == _seen([complete], target)


def test_upserts_in_order_need_no_rows() -> None:
    changes = _changes([(1, UPSERT, 3, None), (2, DELETE, 3, None), (1, UPSERT, 4, None)], Ordering("hard", ("n",)))
    none = pa.table({"k": pa.array([], pa.int64())})
    assert need_rows(Ordering("hard", ("n",)), changes, none).rows.tolist() == [False, False, False]
    assert need_rows(Ordering("soft"), changes, none).rows.tolist() == [False, True, False]


def _changes(came: list[tuple[int, int, int, str | None]], ordering: Ordering) -> pa.Table:
    columns = {
        "k": pa.array([k for k, *_ in came], pa.int64()), ROW: pa.array(range(len(came)), pa.int64()),
        MARKER: pa.array([m for _, m, _, _ in came], pa.int8()),
    }  # fmt: skip
    if ordering.sequence:
        columns[SEQUENCE] = _sequences([n for _, _, n, _ in came])
    return pa.table({**columns, NAMES: pa.array([names for *_, names in came], pa.string())})


def _old(rows: dict[int, tuple[int, bool, int]], ordering: Ordering) -> pa.Table:
    is_soft = ordering.is_soft
    columns = {
        "k": pa.array(rows, pa.int64()), FILE: pa.array([file for _, _, file in rows.values()], pa.int32()),
        ROW: pa.array(range(len(rows)), pa.int64()),
    }  # fmt: skip
    if ordering.sequence:
        columns[SEQUENCE] = _sequences([n for n, _, _ in rows.values()])
        columns[DIED] = pa.array([n if dead else None for n, dead, _ in rows.values()], TIME)
    return pa.table({**columns, DEAD: pa.array([dead and is_soft for _, dead, _ in rows.values()], pa.bool_())})


def _remembered(known: list[tuple[int, int]], ordering: Ordering) -> pa.Table | None:
    if not known or not ordering.sequence or ordering.deletes == "ignore":
        return None
    numbers = [n for _, n in known]
    return pa.table({
        "k": pa.array([k for k, _ in known], pa.int64()), SEQUENCE: _sequences(numbers),
        DELETED_AT: pa.array(numbers, TIME),
    })  # fmt: skip


def _sequences(numbers: list[int]) -> pa.StructArray:
    return pa.StructArray.from_arrays([pa.array(numbers, pa.int64())], ["0"])


def _of(table: pa.Table, other: pa.Table) -> pa.Table:
    return table.filter(pa.array([k in set(other["k"].to_pylist()) for k in table["k"].to_pylist()], pa.bool_()))


def _numbers(table: pa.Table, name: str = ROW) -> np.ndarray:
    return np.asarray(table[name].combine_chunks()).astype(np.int64)


def _seen(parts: list[FoldedKeys], target: Target) -> tuple[object, ...]:
    """What a table would show of a net effect."""
    partial = [part.partial for part in parts if part.partial is not None]
    kept = sorted((row for each in partial for row in each.kept.to_pylist()), key=lambda row: row[ROW])
    firsts = {row[FIRST] for row in kept}  # nothing is taken from the rows of others
    found = [row for part in parts if part.found is not None for row in part.found.to_pylist() if row[FIRST] in firsts]
    found.sort(key=lambda row: (row[FIRST], row[FILE], row[ROW]))
    dead = sorted(row[ROW] for part in parts if part.dead is not None for row in part.dead.to_pylist())
    dropped = sorted(number for part in parts for number in part.dropped.tolist())
    files = sorted((file, number) for part in parts for file, gone, _ in part.files for number in gone.tolist())
    counts = sum(part.late for part in parts), sum(part.ignored for part in parts)
    return dropped, files, kept, found, dead, counts
