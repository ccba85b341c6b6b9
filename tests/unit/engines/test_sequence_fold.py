"""The fold of changes out of order against the model: any order of arrival, any cut, deletes that are remembered."""

from __future__ import annotations

import datetime
import decimal
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.history_model import APPLY_TIME, Change, ChangeFile, HistoryModel
from tests.mirror import target_of
from tests.rounds import rounds

from lakemirror.engines.kernels.ordered_fold import fold_ordered
from lakemirror.engines.kernels.partial_rows import IN_TABLE
from lakemirror.engines.kernels.sequence_order import highest_before, in_order, sequence_ranks
from lakemirror.engines.newest_rows import missing_rows, newest_rows
from lakemirror.engines.row_work import DEAD, DIED, FILE, MARKER, NAMES, ROW, SEQUENCE, Ordering
from lakemirror.keys.key_values import order_of
from lakemirror.landing_zone.reserved_columns import DELETED, DELETED_AT
from lakemirror.landing_zone.row_markers import DELETE

DAY = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
TIME = pa.timestamp("us", "UTC")
COLUMNS = {"k": pa.int64(), "a": pa.string(), "n": pa.int64()}
OWN = {DELETED: pa.bool_(), DELETED_AT: TIME}


class Table:
    """A table with a sequence as Python rows (k, a, n, is deleted, since when), and the deletes that it remembers."""

    def __init__(self, deletes: str) -> None:
        self.target = target_of(Path("/nowhere"), {**COLUMNS, **(OWN if deletes == "soft" else {})}, ("k",))
        self.ordering = Ordering(deletes, ("n",))
        self.rows: list[tuple[Any, ...]] = []
        self.deletes: list[tuple[Any, int, Any]] = []
        self.late = self.ignored = 0

    def apply(self, batch: list[Change]) -> None:
        keys = [(change.row["k"], change.row["n"]) for change in batch]
        changes = numbered(keys, {ROW: range(len(batch)), MARKER: pa.array([c.marker for c in batch], pa.int8())})
        count = len(self.rows)
        its = {
            FILE: pa.array([0] * count, pa.int32()),
            ROW: range(count),
            DEAD: pa.array([r[3] for r in self.rows]),
            DIED: pa.array([r[4] for r in self.rows], TIME),
        }
        old = numbered([(row[0], row[2]) for row in self.rows], its)
        times = {DELETED_AT: pa.array([at for _, _, at in self.deletes], TIME)}
        remembered = numbered([(k, n) for k, n, _ in self.deletes], times)
        if not count:
            old = old.set_column(old.schema.get_field_index(DEAD), DEAD, pa.array([], pa.bool_()))
        folded = fold_ordered(self.target, self.ordering, changes, old, remembered)
        new = []
        buried = {} if folded.dead is None else dict(zip(*(c.to_pylist() for c in folded.dead.columns), strict=True))
        partial = {} if folded.partial is None else {row[ROW]: row for row in folded.partial.kept.to_pylist()}
        of_key = {row[0]: row for row in self.rows}
        for position in sorted({*range(len(batch))} - set(folded.dropped.tolist())):
            change = batch[position]
            values = [change.row["a"], change.row["n"]]
            is_dead, since = change.marker == DELETE, change.at
            if is_dead:
                sources = [partial[position][name] for name in ("a", "n")]
                kept = of_key.get(change.row["k"], (None,) * 5)
                values = [
                    kept[place + 1] if source == IN_TABLE else batch[source].row[name]
                    for place, (name, source) in enumerate(zip(("a", "n"), sources, strict=True))
                ]
            elif position in buried:
                is_dead, since = True, buried[position]
            new.append((change.row["k"], *values, is_dead, since if is_dead else None))
        gone = {row for _, rows, _ in folded.files for row in rows.tolist()}
        self.rows = [row for place, row in enumerate(self.rows) if place not in gone] + new
        self.deletes += [
            (c.row["k"], c.row["n"], c.at) for c in batch if c.marker == DELETE and self.ordering.deletes != "ignore"
        ]
        self.late, self.ignored = self.late + folded.late, self.ignored + folded.ignored

    def bag(self) -> Counter[tuple[str, ...]]:
        width = 5 if self.ordering.is_soft else 3
        rows = [(*row[:4], APPLY_TIME if row[3] and row[4] is None else row[4])[:width] for row in self.rows]
        return Counter(tuple(map(str, row)) for row in rows)


def numbered(keys: list[tuple[Any, int]], more: dict[str, Any]) -> pa.Table:
    numbers = pa.array([n for _, n in keys], pa.int64())
    columns = {
        name: values if isinstance(values, pa.Array) else pa.array(values, pa.int64()) for name, values in more.items()
    }
    sequence = pa.StructArray.from_arrays([numbers], ["0"])
    return pa.table({"k": pa.array([k for k, _ in keys], pa.int64()), **columns, SEQUENCE: sequence})


@settings(max_examples=rounds(60, 3000), deadline=None)
@given(st.data())
def test_any_order_and_any_cut_give_the_model_s_rows(data: Any) -> None:
    deletes, has_ties = data.draw(st.sampled_from(["hard", "soft", "soft", "ignore"])), data.draw(st.booleans())
    count = data.draw(st.integers(1, 12))
    numbers = data.draw(st.permutations(range(1, count + 1)))
    if has_ties:
        numbers = data.draw(st.lists(st.integers(1, 4), min_size=count, max_size=count))
    changes = []
    for place, number in enumerate(numbers):
        row = {"k": data.draw(st.sampled_from([1, 2, None])), "a": f"v{place}", "n": number}
        at = None if has_ties else data.draw(st.sampled_from([None, DAY + datetime.timedelta(days=place)]))
        changes.append(Change(data.draw(st.sampled_from([0, 1, 2, 2, 4])), row, (), at))
    model = HistoryModel(["k"], {"deletes": deletes, "sequence": "n"}, columns=list(COLUMNS))
    model.apply(ChangeFile("1", tuple(COLUMNS), tuple(changes)))
    table, begin = Table(deletes), 0
    while begin < count:
        end = data.draw(st.integers(begin + 1, count))
        table.apply(changes[begin:end])
        begin = end
    assert table.bag() == Counter({tuple(map(str, row)): number for row, number in model.current().items()})
    assert (table.late, table.ignored) == (model.late_changes(), model.ignored_deletes())


@pytest.mark.parametrize("deletes", ["hard", "soft"])
@pytest.mark.parametrize("remembered", [True, False], ids=["remembered", "in-the-batch"])
def test_a_late_partial_row_of_a_key_that_only_had_deletes_needs_no_row(deletes: str, remembered: bool) -> None:
    table = Table(deletes)
    old = numbered([], {FILE: [], ROW: [], DEAD: pa.array([], pa.bool_()), DIED: pa.array([], TIME)})
    earlier = numbered([(1, 5)] if remembered else [], {DELETED_AT: pa.array([DAY] if remembered else [], TIME)})
    events = [*([] if remembered else [(1, 5, 2, None)]), (1, 3, 4, '["a"]'), (2, 3, 4, '["a"]'), (1, 6, 4, '["a"]')]
    changes = numbered(
        [(k, n) for k, n, _, _ in events],
        {
            ROW: range(10, 10 + len(events)),
            MARKER: pa.array([marker for _, _, marker, _ in events], pa.int8()),
            NAMES: pa.array([names for *_, names in events]),
        },
    )
    lost = [(2, 3), *([(1, 6)] if deletes == "hard" else [])]  # soft: the late row is there, dead
    for count, missing in ((len(events) - 2, []), (len(events) - 1, lost[:1]), (len(events), lost)):
        partial = fold_ordered(table.target, table.ordering, changes.slice(0, count), old, earlier).partial
        found = [] if partial is None else np.setdiff1d(missing_rows(partial, newest_rows(None, [])), partial.late)
        assert [events[row - 10][:2] for row in found] == missing


@pytest.mark.parametrize(
    ("kind", "ascending"),
    [
        (pa.int64(), [-(2**63), -1, 0, 5, 2**63 - 1]),
        (pa.int16(), [-3, 0, 3]),
        (pa.string(), ["", "Z", "a", "aa", "ä", "𐀀"]),
        (pa.float64(), [-math.inf, -1.5, 0.0, 1e300, math.inf, math.nan]),
        (pa.decimal128(38, 2), [decimal.Decimal("-1.00"), decimal.Decimal("0.01"), decimal.Decimal(10**30)]),
        (pa.date32(), [datetime.date(1, 1, 1), datetime.date(1970, 1, 1), datetime.date(9999, 12, 31)]),
        (TIME, [DAY, DAY + datetime.timedelta(microseconds=1)]),
    ],
)
def test_values_of_a_sequence_compare_as_the_contract_says(kind: pa.DataType, ascending: list[Any]) -> None:
    values = pa.array([None, *ascending, *reversed(ascending)], kind)
    both = pa.StructArray.from_arrays([values, pa.array([1] * len(values))], ["0", "1"])
    for struct in (pa.StructArray.from_arrays([values], ["0"]), both):
        one, other = sequence_ranks([pa.chunked_array([struct[:3]]), pa.chunked_array([struct[3:]])], 1 << 20)
        ranks = np.concatenate([one, other])
        up = ranks[1 : len(ascending) + 1]
        assert (np.diff(ranks[: len(ascending) + 1]) > 0).all() and (ranks[len(ascending) + 1 :] == up[::-1]).all()


def test_lists_compare_from_left_to_right_and_zeros_are_equal() -> None:
    numbers, texts = pa.array([1, 1, 2, 0], pa.int64()), pa.array(["b", "a", "a", "z"])
    struct = pa.StructArray.from_arrays([numbers, texts], ["0", "1"])
    (ranks,) = sequence_ranks([pa.chunked_array([struct])], 4)
    assert np.argsort(ranks).tolist() == [3, 1, 0, 2]
    zeros = pa.StructArray.from_arrays([pa.array([0.0, -0.0])], ["0"])
    (ranks,) = sequence_ranks([pa.chunked_array([zeros])], 4)
    assert ranks[0] == ranks[1]


def test_the_highest_rank_so_far() -> None:
    code, rank = np.array([1, 0, 1, 1, 0]), np.array([3, 9, 1, 5, 2])
    found = highest_before(code, rank, np.array([True, True, True, False, True]), np.array([4, 0]))
    assert found.tolist() == [0, 4, 3, 3, 9]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3) | st.integers(-(2**63), 2**63 - 1))),
    st.sampled_from([1, 1 << 40, 1 << 60]),
)
def test_orders_are_those_of_a_stable_sort(pairs: list[tuple[int, int]], step: int) -> None:
    code, rank = np.array([each for each, _ in pairs], np.int64) * step, np.array([r for _, r in pairs], np.int64)
    for numbers in (code, rank):
        assert order_of(numbers).tolist() == np.argsort(numbers, kind="stable").tolist()
    assert in_order(code, rank).tolist() == np.lexsort((rank, code)).tolist()
