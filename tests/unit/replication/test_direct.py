"""A small batch folded, looked up and written by Arrow, against the model; and what it leaves to Spark."""

from __future__ import annotations

import datetime
import decimal
import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.model import ModelTable, canonical

from lakemirror.delta.log import Action
from lakemirror.delta.schema import Column
from lakemirror.engines.kernels.look_up import positions
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.change_file import ChangeFile
from lakemirror.replication import direct
from lakemirror.replication.batch import Batch, next_batch
from lakemirror.replication.data_skipping import may_hold
from lakemirror.storage import Entry

MARKER = "__rowMarker__"
PLAIN: dict[str, Any] = {"configuration": {}, "schemaString": "{}", "partitionColumns": []}
DAY = datetime.date(2026, 1, 1)
KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "whole": (pa.int64(), [-5, 1, 2, 2**62, None]),
    "short": (pa.int16(), [1, 2, 3]),
    "text": (pa.string(), ["a", "A", "ä", "", " a", None]),
    "large text": (pa.large_string(), ["a", "b", None]),
    "day": (pa.date32(), [DAY, datetime.date(1, 1, 1), None]),
    "money": (pa.decimal128(10, 2), [decimal.Decimal("1.10"), decimal.Decimal("-1.10"), None]),
}


@st.composite
def content(draw: Any, kinds: tuple[str, ...]) -> dict[str, Any]:
    rows = [
        (
            draw(st.sampled_from([0, 0, 1, 2, 4, None])),
            {f"k{i}": draw(st.sampled_from(KEYS[kind][1])) for i, kind in enumerate(kinds)}
            | {"v": draw(st.integers(0, 9))},
        )
        for _ in range(draw(st.integers(0, 8)))
    ]
    return {"rows": rows, "text": draw(st.booleans()), "more": draw(st.booleans()), "groups": draw(st.integers(1, 4))}


class Table:
    """Data files and what is deleted in each, as a Delta table has them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.adds: dict[str, Action] = {}
        self.deleted: dict[str, set[int]] = {}
        self.columns: tuple[Column, ...] = ()

    def apply(self, files: list[ChangeFile], keys: tuple[str, ...], upsert: bool) -> None:
        batch = made(files, keys, self.columns, upsert)
        assert direct.against(batch, PLAIN, keys) is None
        folded = direct.fold(batch, keys, 4 if upsert else 0, str)
        assert folded is not None
        held = {name: add for name, add in self.adds.items() if may_hold(add, self.columns, batch.ranges)}
        found = positions(str(self.folder), held, folded.clears)
        assert found is not None
        for name, rows in found.items():
            self.deleted[name] |= set(rows.to_pylist())
        for add in direct.write(str(self.folder), batch.columns, folded.survivors):
            self.adds[add["path"]], self.deleted[add["path"]] = add, set()
        self.columns = batch.columns

    def bag(self, columns: list[str]) -> Counter[tuple[Any, ...]]:
        found: Counter[tuple[Any, ...]] = Counter()
        for name, gone in self.deleted.items():
            for number, row in enumerate(pq.read_table(self.folder / name).to_pylist()):
                if number not in gone:
                    found[tuple(canonical(row.get(column)) for column in columns)] += 1
        return found


def made(
    files: list[ChangeFile], keys: tuple[str, ...], columns: tuple[Column, ...] = (), upsert: bool = False
) -> Batch:
    batch, error = next_batch(files, columns, keys, upsert_by_default=upsert, most_files=100, most_bytes=10**9)
    assert batch is not None and error is None
    return batch


def change_file(folder: Path, number: int, rows: pa.Table, **options: Any) -> ChangeFile:
    path = folder / f"{number:020}.parquet"
    pq.write_table(rows, path, **options)
    return ChangeFile(Entry(str(path), path.stat().st_size, number), number, pq.read_metadata(path))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_the_net_effect_is_the_model_s(data: Any) -> None:
    kinds = tuple(data.draw(st.lists(st.sampled_from(list(KEYS)), min_size=1, max_size=3)))
    keys, upsert = tuple(f"k{i}" for i in range(len(kinds))), data.draw(st.booleans())
    model = ModelTable(keys, upsert)
    with tempfile.TemporaryDirectory() as scratch:
        table, waiting = Table(Path(scratch) / "t"), list[ChangeFile]()
        table.folder.mkdir()
        for number, each in enumerate(data.draw(st.lists(content(kinds), min_size=1, max_size=6)), 1):
            columns = {key: KEYS[kind][0] for key, kind in zip(keys, kinds, strict=True)} | {"v": pa.int32()}
            changes = each["rows"]
            if each["more"]:
                columns["more"] = pa.string()
                changes = [(marker, {**row, "more": str(row["v"])}) for marker, row in changes]
            rows = pa.table({name: pa.array([row[name] for _, row in changes], kind) for name, kind in columns.items()})
            kind = pa.string() if each["text"] else pa.int8()
            markers = [str(m) if m is not None and each["text"] else m for m, _ in changes]
            rows = rows.append_column(MARKER, pa.array(markers, kind))
            size = max(1, rows.num_rows // each["groups"])
            waiting.append(change_file(Path(scratch), number, rows, row_group_size=size))
            model.apply(columns, changes)
            if data.draw(st.booleans()):
                table.apply(waiting, keys, upsert)
                waiting = []
        if waiting:
            table.apply(waiting, keys, upsert)
        assert table.bag(model.columns) == model.bag()
        assert all(json.loads(add["stats"])["nullCount"].keys() >= {"v"} for add in table.adds.values())


def test_what_spark_has_to_do(tmp_path: Path) -> None:
    def reason(rows: dict[str, Any], keys: tuple[str, ...] = ("id",), metadata: dict[str, Any] = PLAIN) -> str:
        return str(direct.against(made([change_file(tmp_path, 1, pa.table(rows))], keys), metadata, keys))

    upserts = {"id": [1], MARKER: [4]}
    assert reason(upserts) == "None"
    assert "converted" in reason({**upserts, "list": [[1]]})
    assert "Spark compares" in reason({"id": [1.5], MARKER: [4]})
    assert "rules" in reason(upserts, metadata={**PLAIN, "schemaString": '{"nullable":false}'})
    many = range(direct.MOST_ROWS + 1)
    assert "large" in reason({"id": list(many), MARKER: pa.array([4] * len(many), pa.int32())})


def test_values_are_converted_exactly_or_not_at_all(tmp_path: Path) -> None:
    moment = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999)
    zoned = moment.replace(tzinfo=datetime.timezone.utc)
    rows = pa.table({
        "i": pa.array([1, None], pa.uint8()),
        "cut": pa.array([-1, 1001], pa.timestamp("ns")),
        "ms": pa.array([-1, None], pa.timestamp("ms", "+05:00")),
        "none": pa.nulls(2),
    })  # fmt: skip
    table = (Column("i", "bigint"), Column("none", "date"))
    folded = direct.fold(made([change_file(tmp_path, 1, rows)], (), table), (), 0, str)
    assert folded is not None
    assert [field.type for field in folded.survivors.schema] == [
        pa.int64(), pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC"),
    ]  # fmt: skip
    assert folded.survivors.to_pylist() == [
        {"i": 1, "none": None, "cut": zoned, "ms": zoned.replace(microsecond=999_000)},
        {"i": None, "none": None, "cut": zoned + datetime.timedelta(microseconds=2), "ms": None},
    ]
    far = pa.table({"at": pa.array([2**62], pa.timestamp("ms"))})
    assert direct.fold(made([change_file(tmp_path, 2, far)], ()), (), 0, str) is None


@pytest.mark.parametrize(
    "rows",
    [
        {"id": [1], MARKER: [3]},
        {"id": [1], MARKER: [2**40]},
        {"id": [1], MARKER: ["4 "]},
        {"id": [1], MARKER: ["0x4"]},
        {"v": [1], MARKER: [2]},
    ],
)
def test_rows_that_spark_refuses(tmp_path: Path, rows: dict[str, Any]) -> None:
    batch = made([change_file(tmp_path, 1, pa.table(rows))], ("id",), (Column("id", "bigint"), Column("v", "bigint")))
    assert direct.fold(batch, ("id",), 0, str) is None


def test_days_by_the_legacy_calendar_are_sparks(tmp_path: Path) -> None:
    for told, legacy in (
        ({"org.apache.spark.version": "2.4.0"}, True),
        ({"org.apache.spark.version": "3.5.0"}, False),
        ({"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyDateTime": ""}, True),
    ):
        rows = pa.table({"day": [DAY], MARKER: [4]}).replace_schema_metadata(told)
        batch = made([change_file(tmp_path, 1, rows)], ("day",))
        assert ("legacy" in str(direct.against(batch, PLAIN, ("day",)))) is legacy


def test_days_that_python_has_no_name_for(tmp_path: Path) -> None:
    rows = pa.table({"day": pa.array([5_000_000, 1], pa.int32()).cast(pa.date32()), "n": [1, 2], MARKER: [4, 4]})
    batch = made([change_file(tmp_path, 1, rows)], ("day",))
    folded = direct.fold(batch, ("day",), 0, str)
    assert folded is not None
    (add,) = direct.write(str(tmp_path), batch.columns, folded.survivors)
    stats = json.loads(add["stats"])
    assert "day" not in stats["minValues"] and stats["minValues"]["n"] == 1 and stats["nullCount"]["day"] == 0
    found = positions(str(tmp_path), {"x": add}, folded.clears)
    assert found is not None and found["x"].to_pylist() == [0, 1]


def test_rows_that_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "MOST_BYTES", 1 << 20)
    long = pa.table({"id": list(range(1000)), "s": ["x" * 3000] * 1000})
    batch = made([change_file(tmp_path, 2, long)], ())
    assert batch.bytes < 1 << 20 and direct.fold(batch, (), 0, str) is None


def test_many_rows_are_written_as_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "_ROWS_A_FILE", 4)
    rows, columns = pa.table({"id": list(range(10))}), (Column("id", "bigint"),)
    adds = direct.write(str(tmp_path), columns, rows)
    assert [json.loads(add["stats"])["numRecords"] for add in adds] == [4, 4, 2]
    assert pa.concat_tables([pq.read_table(tmp_path / add["path"]) for add in adds]) == rows
    assert direct.write(str(tmp_path), columns, rows.slice(0, 0)) == []
    few = direct.write(str(tmp_path), columns, rows.slice(0, 4), files=3)
    assert [json.loads(add["stats"])["numRecords"] for add in few] == [2, 2], "none of them empty"


def test_text_that_is_no_utf8(tmp_path: Path) -> None:
    text = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff"))
    batch = made([change_file(tmp_path, 1, pa.table({"id": [1], "s": text}))], ())
    assert direct.fold(batch, (), 0, str) is None


def test_a_file_that_is_gone_is_another_engines(tmp_path: Path) -> None:
    file = change_file(tmp_path, 1, pa.table({"id": [1]}))
    Path(file.entry.path).unlink()
    with pytest.raises(LakemirrorError) as error:
        direct.fold(made([file], ()), (), 0, str)
    assert error.value.code == "concurrent-commit"
