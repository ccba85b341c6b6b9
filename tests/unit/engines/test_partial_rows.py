"""Partial rows (contract section 3a) against the model: at once, in passes, with keys on the disk; vectors and feed."""

from __future__ import annotations

import datetime
import decimal
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.jobs_here import spark_engine_here
from tests.mirror import Mirror, target_of, unit
from tests.model import ModelTable
from tests.rounds import rounds

from lakemirror.engines import units as work_units
from lakemirror.engines.kernels import fill_values, given_rows
from lakemirror.engines.kernels.decode import DEFAULT
from lakemirror.engines.kernels.write import FileSizes
from lakemirror.engines.local_engine import LocalEngine
from lakemirror.engines.pipeline import Pipeline
from lakemirror.engines.row_work import ChangeUnit, Target, TargetColumn
from lakemirror.landing_zone.row_markers import ROW_MARKER, UNCHANGED

WAYS = ("at once", "passes", "spilled", "tasks", "buckets")
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "a": (pa.string(), ["x", "", "ä" * 300, None]),
    "b": (pa.int32(), [1, -7, None]),
    "c": (pa.float64(), [0.5, float("nan"), None]),
    "d": (pa.decimal128(12, 3), [decimal.Decimal("1.250"), None]),
    "e": (pa.timestamp("us", "UTC"), [datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc), None]),
    "f": (pa.binary(), [b"\0\1", b"", None]),
    "g": (pa.date32(), [datetime.date(1969, 12, 31), None]),
    "h": (pa.bool_(), [True, False, None]),
}


def tuned(patch: pytest.MonkeyPatch, way: str, memory: int = DEFAULT) -> Pipeline:
    """An engine that takes this way, whatever the size."""
    patch.setattr(work_units, "_LEAST_BYTES", 1)
    patch.setattr(work_units, "ONE_THREAD_BYTES", -1)
    if way in ("tasks", "buckets"):
        return spark_engine_here(memory=memory, few_bytes=0, driver_keys=0 if way == "buckets" else None)
    worker = LocalEngine(memory, threads=2)
    if way != "at once":
        patch.setattr(worker, "read_small", lambda *_: None)
    if way == "spilled":
        patch.setattr(worker, "fold_memory", 64)
        patch.setattr(worker, "memory", 8)  # values are in files, too
    return worker


def names_column(names: list[list[str]], form: str) -> pa.Array:
    """The lists as a column: a list of strings, or JSON text."""
    if form == "json":
        return pa.array([json.dumps(each) if each else None for each in names], pa.string())
    kind = {"list": pa.list_(pa.string()), "large": pa.large_list(pa.large_string())}[form]
    return pa.array([each or None for each in names], kind)


def drawn_file(data: Any, model: ModelTable, columns: list[str], least: int, most: int) -> dict[str, Any]:
    """Random changes; applies them to the model, so that it is known which key has a row.

    A row is partial only if at most `most` rows have its key.
    """
    held = data.draw(st.lists(st.sampled_from(columns), min_size=1, unique=True))
    changes, names = [], []
    for _ in range(data.draw(st.integers(1, 8))):
        row = {"k": data.draw(st.sampled_from([1, 2, 3, None]))}
        row |= {name: data.draw(st.sampled_from(VALUES[name][1])) for name in held}
        marker = data.draw(st.sampled_from([0, 1, 2, 4, 4, None]))
        keeps: list[str] = []
        if (marker in (1, 4) or (marker is None and model.upsert_by_default)) and least <= model.count(row) <= most:
            keeps = data.draw(st.lists(st.sampled_from(columns), max_size=3))
        model.apply(["k", *held], [(marker, row)], [keeps])
        changes.append((marker, row))
        names.append([name.upper() if data.draw(st.booleans()) else name for name in keeps])
    return {"held": held, "changes": changes, "names": names}


def table_of(content: dict[str, Any], form: str) -> pa.Table:
    kinds = {"k": pa.int64(), **{name: VALUES[name][0] for name in content["held"]}}
    rows = pa.table({
        name: pa.array([row[name] for _, row in content["changes"]], kind) for name, kind in kinds.items()
    })  # fmt: skip
    rows = rows.append_column(ROW_MARKER, pa.array([marker for marker, _ in content["changes"]], pa.int8()))
    if any(content["names"]) or form == "large":
        rows = rows.append_column(UNCHANGED, names_column(content["names"], form))
    return rows


@settings(max_examples=rounds(8, 200), deadline=None)
@given(st.data())
def test_partial_rows_are_the_model_s(data: Any) -> None:
    columns = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4, unique=True))
    vectors, feed, way = data.draw(st.booleans()), data.draw(st.booleans()), data.draw(st.sampled_from(WAYS))
    missing, upsert = data.draw(st.booleans()), data.draw(st.booleans())
    kinds = {"k": pa.int64(), **{name: VALUES[name][0] for name in columns}}
    model = ModelTable(("k",), upsert, ["k", *columns])
    with tempfile.TemporaryDirectory() as scratch, pytest.MonkeyPatch.context() as patch:
        worker = tuned(patch, way)
        place = Path(scratch) / "t"
        parts = tuple(name for name in columns if name == "b" and data.draw(st.booleans()))
        if len(columns) == 1:
            parts = ()
        mirror = Mirror(
            place, target_of(place, kinds, ("k",), vectors=vectors, feed=feed and not parts, partition_columns=parts)
        )
        # which of several rows was written last is known as long as nobody writes the file of one of them again
        most = 9 if vectors and not parts else 1
        waiting: list[ChangeUnit] = []
        for number in range(1, data.draw(st.integers(2, 6))):
            content = drawn_file(data, model, columns, 0 if missing else 1, most)
            rows = table_of(content, data.draw(st.sampled_from(["list", "large", "json"])))
            size = data.draw(st.integers(1, 9))
            waiting.append(unit(Path(scratch), number, rows, row_group_size=size))
            mirror.target = replace(mirror.target, version=number)
            if data.draw(st.booleans()):
                result = mirror.apply(worker, waiting, 4 if upsert else 0, missing="null" if missing else "error")
                assert result.error is None, result.error
                waiting = []
        if waiting:
            result = mirror.apply(worker, waiting, 4 if upsert else 0, missing="null" if missing else "error")
            assert result.error is None, result.error
        assert mirror.bag() == model.bag()
        assert not list(mirror.folder.glob(".lakemirror*")), "scratch files are gone"


def at(folder: Path, columns: dict[str, str], **more: Any) -> Mirror:
    target = Target(
        str(folder / "t"), tuple(TargetColumn(name, name, kind) for name, kind in columns.items()), key_columns=("k",)
    )
    return Mirror(folder / "t", replace(target, **more))


@pytest.mark.parametrize(
    ("names", "marker", "why"),
    [
        (["a"], 0, "neither an update nor an upsert"),
        (["a"], 2, "neither an update nor an upsert"),
        (["K"], 4, "names the key column 'K'"),
        (["z"], 4, "names 'z', which is no column"),
        ([ROW_MARKER], 4, "which is no column"),
        ([None], 4, "names NULL"),
        ("a", 4, "is not a list"),
        ('{"a": 1}', 4, "is not a list"),
        ("[1]", 1, "is not a list"),
        ("[" * 100_000, 1, "is not a list"),
    ],
)
def test_a_wrong_partial_row_is_named(tmp_path: Path, names: Any, marker: int, why: str) -> None:
    mirror = at(tmp_path, {"k": "bigint", "a": "string"})
    kind = pa.string() if isinstance(names, str) else pa.list_(pa.string())
    rows = pa.table({"k": [1, 2], "a": ["x", "y"], ROW_MARKER: [4, marker], UNCHANGED: pa.array([None, names], kind)})
    error = mirror.apply(LocalEngine(), [unit(tmp_path, 1, rows)], 0).error
    assert error is not None and (error.code, error.row) == ("partial-row-invalid", 2)
    assert why in error.message


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("before", ["nothing", "a delete", "another key"])
def test_a_partial_row_without_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, before: str) -> None:
    """In the table, or among the changes before it; also where the row itself goes again in the same batch."""
    mirror = at(tmp_path, {"k": "bigint", "a": "string", "b": "int"})
    first = {"nothing": [], "a delete": [(1, 4), (1, 2)], "another key": [(7, 4)]}[before]
    count = len(first) + 2
    rows = pa.table({
        "k": [*(k for k, _ in first), 1, 1], "a": ["x"] * count, "b": pa.array([1] * count, pa.int32()),
        ROW_MARKER: [*(marker for _, marker in first), 1, 2],
        UNCHANGED: pa.array([*(None for _ in first), ["a"], None], pa.list_(pa.string())),
    })  # fmt: skip
    files = [unit(tmp_path, 1, rows)]
    error = mirror.apply(tuned(monkeypatch, way), files, 0).error
    assert error is not None and (error.code, error.row) == ("partial-row-missing", len(first) + 1)
    assert not list(mirror.folder.rglob("*.parquet"))
    result = mirror.apply(tuned(monkeypatch, way), files, 0, missing="null")
    assert result.error is None and result.missing == 1


@pytest.mark.parametrize("way", WAYS)
def test_what_a_file_holds_in_an_unchanged_column_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """A value that the table's type does not hold is no error there; in other rows it is."""
    text = at(tmp_path, {"k": "bigint", "a": "string"})
    worker = tuned(monkeypatch, way)
    assert text.apply(worker, [unit(tmp_path, 1, pa.table({"k": [1, 2], "a": ["old", "older"]}))], 0).error is None
    invalid = pa.StringArray.from_buffers(1, pa.array([0, 1], pa.int32()).buffers()[1], pa.py_buffer(b"\xff"))
    rows = pa.table({"k": [1], "a": invalid, ROW_MARKER: [1], UNCHANGED: [["a"]]})
    assert text.apply(worker, [unit(tmp_path, 2, rows)], 0).error is None
    assert text.bag() == {(1, "old"): 1, (2, "older"): 1}
    error = text.apply(worker, [unit(tmp_path, 3, rows.drop_columns([UNCHANGED]))], 0).error
    assert error is not None and error.code == "value-invalid"


@pytest.mark.parametrize("way", WAYS)
def test_not_null_holds_for_the_complete_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    mirror = at(tmp_path, {"k": "bigint", "a": "string"})
    columns = (mirror.target.columns[0], replace(mirror.target.columns[1], nullable=False))
    mirror.target = replace(mirror.target, columns=columns)
    worker = tuned(monkeypatch, way)
    assert mirror.apply(worker, [unit(tmp_path, 1, pa.table({"k": [1], "a": ["x"]}))], 0).error is None
    rows = pa.table({"k": [1], "a": pa.array([None], pa.string()), ROW_MARKER: [4], UNCHANGED: [["a"]]})
    assert mirror.apply(worker, [unit(tmp_path, 2, rows)], 0).error is None
    assert mirror.bag() == {(1, "x"): 1}


@pytest.mark.parametrize("way", WAYS)
def test_the_first_of_complete_and_partial_rows_that_break_a_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    mirror = at(tmp_path, {"k": "bigint", "a": "string", "b": "string"})
    columns = (mirror.target.columns[0], *(replace(column, nullable=False) for column in mirror.target.columns[1:]))
    mirror.target = replace(mirror.target, columns=columns)
    worker = tuned(monkeypatch, way)
    assert mirror.apply(worker, [unit(tmp_path, 1, pa.table({"k": [1], "a": ["x"], "b": ["y"]}))], 0).error is None
    names = pa.array([None, None, ["b"]], pa.list_(pa.string()))
    rows = {"k": [2, 3, 1], "a": ["x", None, None], "b": ["y", "y", None], ROW_MARKER: [4] * 3, UNCHANGED: names}
    error = mirror.apply(worker, [unit(tmp_path, 2, pa.table(rows))], 0).error
    assert error is not None and (error.code, error.row, error.column) == ("constraint-violated", 2, "a")


def test_only_the_needed_row_groups_and_columns_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One partial row of a large file costs one row group of its column, not the file."""
    count, groups = 4_000, 8
    mirror = at(tmp_path, {"k": "bigint", "a": "string", "b": "string"})
    worker = LocalEngine(threads=1, sizes=FileSizes(rows_a_group=count // groups))
    keys = pa.array(range(count))
    first = pa.table({"k": keys, "a": [f"a{k}" for k in range(count)], "b": ["b"] * count})
    assert mirror.apply(worker, [unit(tmp_path, 1, first)], 0, append_only=True).error is None
    read: list[tuple[int, list[str]]] = []
    true = given_rows.rows_of

    def noted(parquet: Any, group: Any, columns: Any, **options: Any) -> Any:
        read.append((group.index, [column.name for column in columns]))
        return true(parquet, group, columns, **options)

    monkeypatch.setattr(given_rows, "rows_of", noted)
    rows = pa.table({"k": [1234], "a": [None], "b": ["new"], ROW_MARKER: [1], UNCHANGED: [["a"]]})
    rows = rows.set_column(1, "a", pa.array([None], pa.string()))
    assert mirror.apply(worker, [unit(tmp_path, 2, rows)], 0).error is None
    of_apply = [each for each in read if len(each[1]) == 1]
    assert of_apply == [(2, ["a"])], "the keys are in memory"
    assert mirror.bag()[1234, "a1234", "new"] == 1


@pytest.mark.parametrize("way", WAYS)
def test_values_larger_than_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """They are in files while the rows are written, and no more than a part of the memory is written at once."""
    count, memory = rounds(200, 400), 4 << 20
    worker = tuned(monkeypatch, way, memory)
    mirror = at(tmp_path, {"k": "bigint", "a": "string", "b": "bigint"})
    text = {k: f"{k:04}" * 10_000 for k in range(count)}
    for begin in range(0, count, 40):
        keys = list(range(begin, begin + 40))
        rows = pa.table({"k": keys, "a": [text[k] for k in keys], "b": keys})
        assert mirror.apply(LocalEngine(), [unit(tmp_path, begin + 1, rows)], 0).error is None
    mapped: list[int] = []
    true = fill_values._mapped

    def noted(held: Any, *given: Any) -> Any:
        mapped.append(len(held))
        return true(held, *given)

    monkeypatch.setattr(fill_values, "_mapped", noted)
    keys = [(k * 7) % count for k in range(count)]
    rows = pa.table({"k": keys, "b": [-1] * count, ROW_MARKER: [1] * count, UNCHANGED: [["a"]] * count})
    before = pa.total_allocated_bytes()
    assert mirror.apply(worker, [unit(tmp_path, 1_000, rows)], 0).error is None
    assert mapped and pa.total_allocated_bytes() - before < memory
    assert mirror.bag() == {(k, text[k], -1): 1 for k in range(count)}
    assert not list(tmp_path.rglob("values-*"))


def test_values_of_another_writer_s_type_cannot_be_kept(tmp_path: Path) -> None:
    """They would become NULL without a word."""
    mirror = at(tmp_path, {"k": "bigint"}, unwritten=(TargetColumn("s", "s", "struct<a:int>"),))
    rows = pa.table({"k": [1], ROW_MARKER: [4], UNCHANGED: [["s"]]})
    change = replace(unit(tmp_path, 1, rows), known=frozenset({"k", "s"}))
    error = mirror.apply(LocalEngine(), [change], 0).error
    assert error is not None and error.code == "partial-row-invalid" and "'s'" in error.message
