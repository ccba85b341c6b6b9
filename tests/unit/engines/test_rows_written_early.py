"""Rows that are written while others are read: which tables have them, one file with all rows, or an error and none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemirror.engines import early_rows as module
from lakemirror.engines.early_rows import EarlyRows, early_rows
from lakemirror.engines.held_changes import HeldChanges
from lakemirror.engines.kernels.decode import DEFAULT, MemoryBudget
from lakemirror.engines.kernels.write import Files
from lakemirror.engines.row_work import Target, TargetColumn
from lakemirror.engines.units import Shared
from lakemirror.keys.written_rows import LATELY_WRITTEN, is_in_memory, keep_files

ROWS = pa.table({"id": pa.array(range(10), pa.int64()), "v": [f"v{number}" for number in range(10)]})
HELD = HeldChanges((ROWS.slice(0, 4), ROWS.slice(4)), np.full(10, 4, np.int8))
EVERY_SECOND = np.arange(0, 10, 2)


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    monkeypatch.setattr(module, "FEWEST_ROWS", 5)
    return Target(str(tmp_path), (TargetColumn("id", "id", "bigint"), TargetColumn("v", "v", "string")))


def begun(target: Target, positions: np.ndarray = EVERY_SECOND, held: HeldChanges | None = HELD) -> list[int]:
    """The positions of the rows that were written early."""
    with early_rows(Shared(target, MemoryBudget(DEFAULT)), held) as early:
        early.begin(positions)
        adds = early.close()
    assert [add["size"] > 0 for add in adds] == [True] * bool(len(early.positions))
    return list(early.positions)


def test_which_rows_are_early(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    assert begun(target) == list(EVERY_SECOND)
    assert not begun(target, held=None), "they are read again"
    assert not begun(target, EVERY_SECOND[:4]), "too few"
    monkeypatch.setattr(module, "ROWS_A_FILE", 4)
    assert not begun(target), "more than one file"


@pytest.mark.parametrize(
    "other",
    [{"partition_columns": ("v",)}, {"constraints": (("positive", "id > 0"),)}, {"feed": True}],
    ids=["partitions", "constraints", "feed"],
)
def test_rows_that_are_checked_or_sorted_first_are_not_early(target: Target, other: dict[str, Any]) -> None:
    assert not begun(replace(target, **other))


def test_rows_of_a_column_that_takes_no_null_are_not_early(target: Target) -> None:
    first, second = target.columns
    assert not begun(replace(target, columns=(first, replace(second, nullable=False))))


def test_one_file_has_early_rows_and_those_that_are_added(target: Target) -> None:
    LATELY_WRITTEN.clear()
    with early_rows(Shared(target, MemoryBudget(DEFAULT)), HELD) as early:
        early.begin(EVERY_SECOND)
        early.add(ROWS.slice(1, 1))
        early.add(ROWS.slice(3, 1))
        (add,) = early.close()
    keep_files([add], target, early.rows())
    wanted = pa.concat_tables([ROWS.take(EVERY_SECOND), ROWS.slice(1, 1), ROWS.slice(3, 1)])
    assert pq.read_table(Path(target.path) / add["path"]).cast(wanted.schema) == wanted
    assert early.rows() == [wanted] and is_in_memory(add, target)


def test_rows_of_other_types_are_written_and_not_kept_in_memory(target: Target) -> None:
    with early_rows(Shared(target, MemoryBudget(DEFAULT)), HELD) as early:
        early.begin(EVERY_SECOND)
        early.add(ROWS.slice(1, 1).set_column(1, "v", ROWS["v"].slice(1, 1).dictionary_encode()))
        (add,) = early.close()
    assert pq.read_table(Path(target.path) / add["path"])["v"].to_pylist()[-1] == "v1"
    assert not early.rows()


@pytest.mark.parametrize("then", ["add", "close"])
def test_an_error_of_the_thread_is_raised_and_leaves_no_file(
    target: Target, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    add, files = Files.add, list[Path]()

    def fails(its: Files, batch: pa.RecordBatch) -> None:
        add(its, batch)
        files.extend(Path(target.path).glob("*.parquet"))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Files, "add", fails)
    with pytest.raises(OSError, match="No space"), early_rows(Shared(target, MemoryBudget(DEFAULT)), HELD) as early:
        early.begin(EVERY_SECOND)
        assert early._begun is not None and early._begun.exception() is not None
        monkeypatch.setattr(Files, "add", add)
        _ = early.add(ROWS.slice(1, 1)) if then == "add" else early.close()
    assert files and not list(Path(target.path).glob("*.parquet"))


def test_an_error_beside_the_thread_leaves_no_file(target: Target) -> None:
    begun = list[EarlyRows]()
    with pytest.raises(ValueError, match="beside"), early_rows(Shared(target, MemoryBudget(DEFAULT)), HELD) as early:
        early.begin(EVERY_SECOND)
        begun.append(early)
        raise ValueError("beside")
    assert len(begun[0].positions) and not list(Path(target.path).glob("*.parquet"))
