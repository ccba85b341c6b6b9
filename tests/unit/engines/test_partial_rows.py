"""Partial rows (contract section 3a) against the model: at once, in passes, with keys on the disk; vectors and feed."""

from __future__ import annotations

import datetime
import decimal
import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.mirror import Mirror, target_of, unit
from tests.model import ModelTable
from tests.rounds import rounds

from lakemirror.engines import units as work_units
from lakemirror.engines.local_engine import LocalEngine
from lakemirror.engines.row_work import ChangeUnit
from lakemirror.landing_zone.row_markers import ROW_MARKER, UNCHANGED

WAYS = ("at once", "passes", "spilled")
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


def tuned(patch: pytest.MonkeyPatch, way: str) -> LocalEngine:
    """An engine that takes this way, whatever the size."""
    worker = LocalEngine(threads=2)
    patch.setattr(work_units, "_LEAST_BYTES", 1)
    if way != "at once":
        patch.setattr(worker, "read_changes", lambda *_: None)
    if way == "spilled":
        patch.setattr(worker, "fold_memory", 64)
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


@settings(max_examples=rounds(40, 300), deadline=None)
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
            if data.draw(st.booleans()):
                result = mirror.apply(worker, waiting, 4 if upsert else 0, missing="null" if missing else "error")
                assert result.error is None, result.error
                waiting = []
        if waiting:
            result = mirror.apply(worker, waiting, 4 if upsert else 0, missing="null" if missing else "error")
            assert result.error is None, result.error
        assert mirror.bag() == model.bag()
        assert not list(mirror.folder.glob(".lakemirror*")), "scratch files are gone"
