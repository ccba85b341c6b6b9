"""Deletes that leave rows, or are ignored, and changes out of order, against the model: every way of the fold."""

from __future__ import annotations

import datetime
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.history_model import APPLY_TIME, Change, ChangeFile, HistoryModel
from tests.mirror import Mirror, target_of, unit
from tests.rounds import rounds
from tests.unit.engines.test_partial_rows import WAYS, tuned

from lakemirror.engines.row_work import ChangeUnit, Ordering
from lakemirror.landing_zone.reserved_columns import DELETED, DELETED_AT, ROW_MARKER, SOURCE_TIME, UNCHANGED

UTC = datetime.timezone.utc
MOMENT = datetime.datetime(2026, 5, 1, tzinfo=UTC)
TIMES = [None, datetime.datetime(2026, 1, 1, tzinfo=UTC), datetime.datetime(2026, 1, 2, tzinfo=UTC)]
COLUMNS = {"k": pa.int64(), "a": pa.string(), "b": pa.int32()}
VALUES: dict[str, list[Any]] = {"a": ["x", "", "ä" * 300, None], "b": [1, -7, None]}
OWN = {DELETED: pa.bool_(), DELETED_AT: pa.timestamp("us", "UTC")}


class Table:
    """A table with options, written by an engine; the model of the same; and the files that wait for both."""

    def __init__(self, place: Path, options: dict[str, Any], columns: dict[str, pa.DataType], **target: Any) -> None:
        self.place, self.columns = place, columns
        self.model = HistoryModel(["k"], options, columns=list(columns))
        sequence = options.get("sequence", ())
        self.ordering = Ordering(
            options.get("deletes", "hard"), (sequence,) if isinstance(sequence, str) else tuple(sequence),
            int(MOMENT.timestamp()) * 1_000_000,
        )  # fmt: skip
        own = OWN if self.ordering.is_soft else {}
        self.mirror = Mirror(place / "t", target_of(place / "t", {**columns, **own}, ("k",), **target))
        self.waiting: list[ChangeUnit] = []
        self.files = self.ignored = self.late = 0

    def arrive(self, changes: list[Change], size: int = 9) -> None:
        self.files += 1
        self.model.apply(ChangeFile(f"{self.files}", tuple(self.columns), tuple(changes)))
        rows = {name: pa.array([c.row.get(name) for c in changes], kind) for name, kind in self.columns.items()}
        rows[ROW_MARKER] = pa.array([c.marker for c in changes], pa.int8())
        if any(c.at for c in changes):
            rows[SOURCE_TIME] = pa.array([c.at for c in changes], pa.timestamp("ns", "UTC"))
        if any(c.unchanged for c in changes):
            rows[UNCHANGED] = pa.array([list(c.unchanged) or None for c in changes], pa.list_(pa.string()))
        self.waiting.append(unit(self.place, self.files, pa.table(rows), row_group_size=size))

    def apply(self, worker: Any) -> None:
        self.mirror.target = replace(self.mirror.target, version=self.files)
        result = self.mirror.apply(worker, self.waiting, 0, ordering=self.ordering)
        assert result.error is None, result.error
        self.ignored, self.late, self.waiting = self.ignored + result.ignored, self.late + result.late, []

    def check(self) -> None:
        assert self.bag() == Counter({tuple(map(str, row)): count for row, count in self.model.current().items()})
        assert (self.ignored, self.late) == (self.model.ignored_deletes(), self.model.late_changes())
        assert not list(self.mirror.folder.glob(".lakemirror*")), "scratch files are gone"

    def bag(self) -> Counter[tuple[str, ...]]:
        found = Counter[tuple[str, ...]]()
        for row, count in self.mirror.bag().items():
            found[tuple(str(APPLY_TIME if value == MOMENT else value) for value in row)] += count
        return found

    def rows(self, key: Any) -> int:
        """How many rows the model's table has of a key, deleted ones too."""
        return sum(count for row, count in self.model.current().items() if row[0] == key)


@settings(max_examples=rounds(12, 300), deadline=None)
@given(st.data())
def test_soft_and_ignored_deletes_are_the_model_s(data: Any) -> None:
    vectors, feed, way = data.draw(st.booleans()), data.draw(st.booleans()), data.draw(st.sampled_from(WAYS))
    deletes = data.draw(st.sampled_from(["soft", "soft", "ignore"]))
    parts = ("b",) if data.draw(st.booleans()) else ()
    with tempfile.TemporaryDirectory() as scratch, pytest.MonkeyPatch.context() as patch:
        worker = tuned(patch, way)
        table = Table(
            Path(scratch), {"deletes": deletes}, COLUMNS, vectors=vectors, feed=feed and not parts,
            partition_columns=parts,
        )  # fmt: skip
        for _ in range(data.draw(st.integers(1, 5))):
            changes: list[Change] = []
            before = list(table.model.events)
            for _ in range(data.draw(st.integers(1, 8))):
                row = {"k": data.draw(st.sampled_from([1, 2, 3, None]))}
                row |= {name: data.draw(st.sampled_from(VALUES[name])) for name in VALUES}
                marker, at = data.draw(st.sampled_from([0, 1, 2, 2, 4, None])), data.draw(st.sampled_from(TIMES))
                keeps: list[str] = []
                # of several rows of a key, the last one written is not known once files are written again
                if marker in (1, 4) and table.rows(row["k"]) == 1:
                    keeps = data.draw(st.lists(st.sampled_from(["a", "b"]), max_size=2, unique=True))
                if marker in (0, 2, None) and table.rows(row["k"]) > (marker != 2):
                    marker = 4
                changes.append(Change(marker, row, tuple(keeps), at))
                table.model.apply(ChangeFile("so far", ("k", "a", "b"), (changes[-1],)))
            table.model.events = before
            table.arrive(changes, data.draw(st.integers(1, 9)))
            if data.draw(st.booleans()):
                table.apply(worker)
        if table.waiting:
            table.apply(worker)
        table.check()


@pytest.mark.parametrize("way", WAYS)
def test_a_soft_deleted_row_of_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Inserts made duplicates: the last one stays as the deleted row. An insert replaces it, and no living row."""
    table = Table(tmp_path, {"deletes": "soft"}, COLUMNS, feed=True)
    worker = tuned(monkeypatch, way)
    table.arrive([Change(0, {"k": 1, "a": "x"}), Change(0, {"k": 1, "a": "y"}), Change(0, {"k": 2, "a": "z"})])
    table.apply(worker)
    table.arrive([Change(2, {"k": 1}), Change(2, {"k": 9}), Change(0, {"k": 2, "a": "second"})])
    table.apply(worker)
    table.check()
    assert table.rows(1) == 1 and table.rows(2) == 2 and not table.rows(9)
    table.arrive([Change(0, {"k": 1, "a": "again"}), Change(2, {"k": 2}), Change(0, {"k": 2, "a": "new"})])
    table.apply(worker)
    table.check()
