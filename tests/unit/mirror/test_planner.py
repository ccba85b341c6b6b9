"""What an apply would do, from footers and a snapshot alone."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemirror.errors import Bad
from lakemirror.landing_zone.change_file import ChangeFile, TableFiles
from lakemirror.landing_zone.column_types import file_columns
from lakemirror.landing_zone.metadata import TableMetadata
from lakemirror.landing_zone.row_markers import ROW_MARKER
from lakemirror.landing_zone.zone import TableFolder, TableName
from lakemirror.mirror import planner
from lakemirror.mirror.next_batch import BatchFile, Limits
from lakemirror.mirror.observe import View
from lakemirror.mirror.planner import ApplyPlan, Base
from lakemirror.mirror.table_rules import TableRules
from lakemirror.storage import Entry

VIEW = View(TableFiles(TableFolder(TableName("", "t")), TableMetadata(("id",))), identity="me")


def change_file(number: int, rows: pa.Table, **options: Any) -> ChangeFile:
    buffer = io.BytesIO()
    pq.write_table(rows, buffer, **options)
    return ChangeFile(Entry(f"t/{number:020}.parquet", buffer.tell(), number), number, pq.read_metadata(buffer))


def planned(*files: ChangeFile) -> Any:
    rules = TableRules(limits=Limits(10, 1 << 30))
    return planner.plan(VIEW, files, Base("/db/Tables/t", "/db"), rules, "/db/{}".format)


def test_a_file_of_many_rows_is_several_units() -> None:
    file = change_file(1, pa.table({"id": list(range(100))}), row_group_size=10)
    units = list(planner.units_of(BatchFile(file, tuple(file_columns(file.footer))), str, most_rows=25))
    assert [unit.row_groups for unit in units] == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
    assert [(unit.first_row, unit.rows) for unit in units] == [(begin, 20) for begin in range(0, 100, 20)]
    (whole,) = planner.units_of(BatchFile(change_file(1, pa.table({"id": [1]})), ()), str, most_rows=25)
    assert whole.row_groups is None and whole.rows == 1


def test_a_file_of_inserts_stays_whole_where_its_parts_would_be_small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "ROWS_A_UNIT", 25)
    file = change_file(1, pa.table({"id": list(range(100))}), row_group_size=10)
    upserts = change_file(2, pa.table({"id": [1], ROW_MARKER: [4]}))

    def units(*files: ChangeFile) -> int:
        plan = planned(*files)
        assert isinstance(plan, ApplyPlan) and plan.row_work is not None
        return len(plan.row_work.changes)

    assert units(file) == 1
    assert units(file, upserts) == 6
    monkeypatch.setattr(planner, "_WHOLE", file.entry.size - 1)
    assert units(file) == 5


def test_a_plan_says_what_the_commit_does() -> None:
    plan = planned(change_file(1, pa.table({"id": [1]})), change_file(2, pa.table({"id": [1], ROW_MARKER: [4]})))
    assert isinstance(plan, ApplyPlan) and plan.row_work is not None
    assert not plan.row_work.append_only and plan.row_work.candidates == () and plan.version == 0
    assert plan.row_work.target.key_columns == ("id",) and plan.row_work.changes[1].path.endswith("2.parquet")
    assert plan.choice.engine == "local" and not plan.added


def test_no_rows_are_no_row_work() -> None:
    plan = planned(change_file(1, pa.table({"id": pa.array([], pa.int64())})))
    assert plan.row_work is None


def test_the_bad_file_behind_ends_the_batch_and_the_first_one_is_the_answer() -> None:
    good, bad = change_file(1, pa.table({"id": [1]})), change_file(2, pa.table({"id": ["x"]}))
    plan = planned(good, bad)
    assert len(plan.batch.files) == 1 and plan.batch.rejected.code == "type-changed"
    with pytest.raises(Bad) as found:
        planned(change_file(1, pa.table({"a": [1], "A": [2]})))
    assert found.value.rejected.code == "columns-ambiguous"
