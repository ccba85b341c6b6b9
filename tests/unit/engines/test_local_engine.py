"""The local engine against the model: at once, in passes, with keys on the disk; with and without vectors; the feed."""

from __future__ import annotations

import datetime
import decimal
import resource
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.mirror import Mirror, target_of, unit
from tests.model import ModelTable
from tests.rounds import rounds

from lakemirror.engines import pipeline
from lakemirror.engines import units as work_units
from lakemirror.engines.local_engine import LocalEngine
from lakemirror.engines.row_work import ROW, ChangeUnit, RewriteWork, Target, TargetColumn
from lakemirror.landing_zone.row_markers import ROW_MARKER

NAN = float("nan")
KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "whole": (pa.int64(), [-5, 1, 2, 2**62, None]),
    "text": (pa.string(), ["a", "A", "ä", "", " a", None]),
    "day": (pa.date32(), [datetime.date(2026, 1, 1), datetime.date(1, 1, 1), None]),
    "money": (pa.decimal128(10, 2), [decimal.Decimal("1.10"), decimal.Decimal("-1.10"), None]),
    "double": (pa.float64(), [0.0, -0.0, NAN, 1.5, None]),
    "bytes": (pa.binary(), [b"", b"\0", None]),
}
WAYS = ("at once", "passes", "spilled")


@settings(max_examples=rounds(20, 60), deadline=None)
@given(st.data())
def test_the_net_effect_is_the_model_s(data: Any) -> None:
    kinds = data.draw(st.lists(st.sampled_from(list(KEYS)), min_size=1, max_size=2))
    keys, upsert = tuple(f"k{i}" for i in range(len(kinds))), data.draw(st.booleans())
    columns = {key: KEYS[kind][0] for key, kind in zip(keys, kinds, strict=True)} | {"v": pa.int32()}
    vectors, feed, way = data.draw(st.booleans()), data.draw(st.booleans()), data.draw(st.sampled_from(WAYS))
    model = ModelTable(keys, upsert)
    with tempfile.TemporaryDirectory() as scratch, pytest.MonkeyPatch.context() as patch:
        worker = tuned(patch, way)
        mirror = Mirror(Path(scratch) / "t", target_of(Path(scratch) / "t", columns, keys, vectors=vectors, feed=feed))
        waiting: list[ChangeUnit] = []
        for number in range(1, data.draw(st.integers(2, 6))):
            changes = [
                (
                    data.draw(st.sampled_from([0, 0, 1, 2, 4, None])),
                    {key: data.draw(st.sampled_from(KEYS[kind][1])) for key, kind in zip(keys, kinds, strict=True)}
                    | {"v": data.draw(st.integers(0, 9))},
                )
                for _ in range(data.draw(st.integers(1, 9)))
            ]
            rows = pa.table({name: pa.array([row[name] for _, row in changes], kind) for name, kind in columns.items()})
            rows = rows.append_column(ROW_MARKER, pa.array([marker for marker, _ in changes], pa.int8()))
            size = data.draw(st.integers(1, 9))
            waiting.append(unit(Path(scratch), number, rows, row_group_size=size))
            model.apply(columns, changes)
            if data.draw(st.booleans()):
                assert mirror.apply(worker, waiting, 4 if upsert else 0).error is None
                waiting = []
        if waiting:
            assert mirror.apply(worker, waiting, 4 if upsert else 0).error is None
        assert mirror.bag() == model.bag()
        assert not list(mirror.folder.glob(".lakemirror*")), "scratch files are gone"


def tuned(patch: pytest.MonkeyPatch, way: str) -> LocalEngine:
    """An engine that takes this way, whatever the size."""
    worker = LocalEngine(threads=2)
    patch.setattr(work_units, "_LEAST_BYTES", 1)  # several units, although they are small
    patch.setattr(work_units, "ONE_THREAD_BYTES", -1)
    if way != "at once":
        patch.setattr(worker, "read_small", lambda *_: None)
    if way == "spilled":
        patch.setattr(worker, "fold_memory", 64)
    return worker


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("keys", [("id",), ()])
def test_a_bad_row_is_a_value_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, keys: tuple[str, ...]
) -> None:
    worker = tuned(monkeypatch, way)
    mirror = Mirror(tmp_path / "t", target_of(tmp_path / "t", {"id": pa.int64()}, keys))
    good = unit(tmp_path, 1, pa.table({"id": [1, 2]}))
    bad = unit(tmp_path, 2, pa.table({"id": [3, 4], ROW_MARKER: [0, 7]}))
    result = mirror.apply(worker, [good, bad, replace(bad, number=3)], 0)
    assert result.error is not None and (result.error.code, result.error.row) == ("row-marker-invalid", 2)
    assert result.error.file == bad.name and not list(mirror.folder.rglob("*.parquet"))


@pytest.mark.parametrize("way", WAYS)
def test_null_in_a_column_that_must_not_be_null(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    worker = tuned(monkeypatch, way)
    columns = (TargetColumn("id", "id", "bigint"), TargetColumn("v", "v", "string", nullable=False))
    mirror = Mirror(tmp_path / "t", Target(str(tmp_path / "t"), columns, key_columns=("id",)))
    first = unit(tmp_path, 1, pa.table({"id": [1, 2], "v": ["a", None], ROW_MARKER: [4, 4]}))
    second = unit(tmp_path, 2, pa.table({"id": [2, 5, 6], "v": ["b", None, None], ROW_MARKER: [4, 2, 4]}))
    result = mirror.apply(worker, [first, second], 0)
    assert result.error is not None
    assert (result.error.code, result.error.file, result.error.row, result.error.column) == (
        "constraint-violated", second.name, 3, "v",
    )  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_the_first_row_of_several_that_break_a_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """By file and row, whatever the order of the columns and of the threads."""
    worker = tuned(monkeypatch, way)
    names = ("id", "a", "b")
    columns = tuple(TargetColumn(name, name, "bigint", nullable=name == "id") for name in names)
    target = Target(str(tmp_path / "t"), columns, key_columns=("id",))
    rows = {"id": [1, 2, 3], "a": [1, 2, None], "b": [1, None, 3], ROW_MARKER: [4, 4, 4]}
    units = [
        unit(tmp_path, number, pa.table({**rows, "id": [number * 10 + n for n in range(3)]})) for number in range(1, 5)
    ]
    error = Mirror(tmp_path / "t", target).apply(worker, units, 0).error
    assert error is not None and (error.file, error.row, error.column) == (units[0].name, 2, "b")


def test_keys_of_one_large_unit_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No part holds much more than it may, though the unit is one row group of one file."""
    seen: list[tuple[int, int]] = []
    true = pipeline.fold_in_passes

    def noted(work: Any, changes: Any, scratch: Any, memory: int) -> Any:
        def each() -> Any:
            for keys in changes:
                seen.append((keys[ROW][0].as_py(), keys.num_rows))
                assert keys["id"].nbytes < worker.memory // 8
                yield keys

        return true(work, each(), scratch, memory)

    worker = LocalEngine(8 << 20, threads=2)
    monkeypatch.setattr(worker, "read_small", lambda *_: None)
    monkeypatch.setattr(pipeline, "fold_in_passes", noted)
    count = 200_000
    target = target_of(tmp_path / "t", {"id": pa.int64(), "v": pa.int64()}, ("id",))
    ids = pa.array([n % 150_000 for n in range(count)], pa.int64())
    rows = pa.table({"id": ids, "v": pa.array(range(count)), ROW_MARKER: pa.array([4] * count, pa.int8())})
    one, other = unit(tmp_path, 1, rows), unit(tmp_path, 2, rows.slice(0, 10))
    mirror = Mirror(tmp_path / "t", target)
    assert mirror.apply(worker, [one, other], 0).error is None
    assert len(seen) > 3 and [begin for begin, _ in seen] == [sum(n for _, n in seen[:i]) for i in range(len(seen))]
    expected = {n % 150_000: n for n in range(count)} | {n: n for n in range(10)}
    assert mirror.bag() == Counter(dict.fromkeys(expected.items(), 1))


def test_many_inserts_stream_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = tuned(monkeypatch, "passes")
    mirror = Mirror(tmp_path / "t", target_of(tmp_path / "t", {"id": pa.int64()}, ("id",)))
    units = [unit(tmp_path, n, pa.table({"id": list(range(n * 10, n * 10 + 10))})) for n in range(1, 8)]
    result = mirror.apply(worker, units, 0, append_only=True)
    assert len(result.adds) == 2 and mirror.bag() == Counter({(i,): 1 for i in range(10, 80)})


def test_row_groups_as_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for way in WAYS:
        with monkeypatch.context() as patch:
            worker = tuned(patch, way)
            place = tmp_path / way
            mirror = Mirror(place, target_of(place, {"id": pa.int64(), "v": pa.int64()}, ("id",)))
            rows = pa.table({"id": [i % 30 for i in range(100)], "v": list(range(100)), ROW_MARKER: [4] * 100})
            whole = unit(tmp_path, 1, rows, row_group_size=20)
            parts = [replace(whole, row_groups=(g,), first_row=20 * g, rows=20) for g in range(5)]
            mirror.apply(worker, parts, 0)
            assert mirror.bag() == Counter({(i % 30, i): 1 for i in range(70, 100)})


@pytest.mark.parametrize("into", [1, 2])
def test_files_become_fewer(tmp_path: Path, into: int) -> None:
    mirror = Mirror(tmp_path / "t", target_of(tmp_path / "t", {"id": pa.int64()}, ("id",)))
    for n in range(4):
        mirror.apply(LocalEngine(), [unit(tmp_path, n + 1, pa.table({"id": [2 * n, 2 * n + 1]}))], 0)
    gone = pa.table({"id": [0, 5], ROW_MARKER: [2, 2]})
    mirror.apply(LocalEngine(), [unit(tmp_path, 9, gone)], 0)
    before = mirror.bag()
    adds = LocalEngine().rewrite(RewriteWork(mirror.target, tuple(mirror.files.values()), into))
    assert len(adds) == into and not any(add["dataChange"] for add in adds)
    mirror.files = {add["path"]: add for add in adds}
    assert mirror.bag() == before and sum(before.values()) == 6


def test_a_spilled_fold_opens_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = tuned(monkeypatch, "spilled")
    mirror = Mirror(tmp_path / "t", target_of(tmp_path / "t", {"id": pa.int64()}, ("id",)))
    rows = pa.table({"id": list(range(6000)), ROW_MARKER: [4] * 6000})
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 320, before[1]))
    try:
        for number in (1, 2):
            mirror.apply(worker, [unit(tmp_path, number, rows)], 0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert sum(mirror.bag().values()) == 6000


@pytest.mark.parametrize("name", ["__file__", "__row__", "__marker__"])
@pytest.mark.parametrize("way", WAYS)
def test_keys_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, name: str) -> None:
    worker = tuned(monkeypatch, way)
    mirror = Mirror(tmp_path / "t", target_of(tmp_path / "t", {name: pa.int64()}, (name,)))
    for number in (1, 2):
        mirror.apply(worker, [unit(tmp_path, number, pa.table({name: [1, 2], ROW_MARKER: [4, 4]}))], 0)
    assert sum(mirror.bag().values()) == 2


@pytest.mark.parametrize(
    ("size", "address", "here"),
    [
        (work_units.ONE_THREAD_BYTES, "/t", True),
        (work_units.ONE_THREAD_BYTES + 1, "/t", False),
        (8, "s3://bucket/t", False),
    ],
)
def test_small_work_is_done_in_one_thread_but_in_a_store(size: int, address: str, here: bool) -> None:
    def kernel(shared: Any, unit: Any) -> Iterator[int]:
        yield threading.get_ident()

    worker = LocalEngine(threads=2)
    units = [SimpleNamespace(nbytes=size - 1), SimpleNamespace(nbytes=1)]
    shared = work_units.Shared(Target(address, ()), worker.budget)
    assert {ident == threading.get_ident() for ident in worker.carry("step", kernel, shared, units)} == {here}


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_each_item_is_worked_on_once(threads: int) -> None:
    begun: list[int] = []

    def act(item: int) -> int:
        begun.append(item)
        return item * item

    assert list(LocalEngine(threads=threads).each(act, range(20))) == [item * item for item in range(20)]
    assert sorted(begun) == list(range(20))
