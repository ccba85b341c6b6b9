"""Row groups that are copied as they came: the same rows and statistics as if they were written again, and no false
promise of a publisher in a footer of ours.
"""

from __future__ import annotations

import datetime
import json
import random
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from change_units import MARKER, unit_of
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rounds import rounds

from lakemirror.engines import unit_kernels
from lakemirror.engines.kernels import copy_chunks as copying
from lakemirror.engines.kernels.compact import compact
from lakemirror.engines.kernels.decode import DEFAULT, MemoryBudget
from lakemirror.engines.kernels.write import write_rows
from lakemirror.engines.row_work import Action, ChangeUnit, RewriteWork, Target, TargetColumn
from lakemirror.engines.units import ChangeFiles, Shared
from lakemirror.errors import Bad

UTC = datetime.timezone.utc
KINDS: dict[str, tuple[str, pa.DataType, list[Any]]] = {
    "text": ("string", pa.string(), ["", "a", "ä", "z" * 40, "x" * 300, None]),
    "blob": ("binary", pa.binary(), [b"", b"\xff\x00", None]),
    "n": ("int", pa.int32(), [-(2**31), 0, 7, 2**31 - 1, None]),
    "big": ("bigint", pa.int64(), [-(2**63), 5, 2**63 - 1, None]),
    "real": ("double", pa.float64(), [1.5, -2.25, 0.0, -0.0, None]),
    "half": ("float", pa.float32(), [0.5, 0.0, 3.0, None]),
    "yes": ("boolean", pa.bool_(), [True, False, None]),
    "day": ("date", pa.date32(), [datetime.date(1, 1, 1), datetime.date(2026, 11, 23), None]),
    "at": ("timestamp", pa.timestamp("us", "UTC"), [datetime.datetime(1970, 1, 1, tzinfo=UTC), None]),
    "local": ("timestamp", pa.timestamp("us"), [datetime.datetime(2026, 1, 2, 3, 4, 5, 678901), None]),
    "ntz": ("timestamp_ntz", pa.timestamp("us"), [datetime.datetime(2026, 1, 2, 3, 4, 5, 678901), None]),
    "sum": ("decimal(9,2)", pa.decimal128(9, 2), [Decimal("-9999999.99"), Decimal("0.01"), None]),
}


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "_FEWEST_ROWS", 1)


def kept(folder: Path, table: Target, units: list[ChangeUnit], *, append_only: bool = True) -> list[Action]:
    """What `write_kept` writes of these files into a new folder."""
    folder.mkdir()
    shared = Shared(Target(**{**vars_of(table), "path": str(folder)}), MemoryBudget(DEFAULT), append_only)
    (adds,) = unit_kernels.write_kept(shared, ChangeFiles(0, tuple(units)))
    return adds


def vars_of(table: Target) -> dict[str, Any]:
    return {name: getattr(table, name) for name in ("path", "columns", "partition_columns", "key_columns")}


def again(folder: Path, table: Target, units: list[ChangeUnit]) -> list[Action]:
    """The same, with all rows written again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copying, "copy_chunks", lambda shared, files, sizes: ([], list(files)))
        return kept(folder, table, units)


def read(folder: Path, adds: list[Action], names: list[str]) -> list[str]:
    """All rows of data files, as text, in any order."""
    rows = []
    for add in adds:
        table = pq.ParquetFile(folder / add["path"]).read()
        held = {name: table[name] for name in table.column_names}
        held |= {name: each.cast(pa.int64()) for name, each in held.items() if pa.types.is_timestamp(each.type)}
        columns = [held[name].to_pylist() if name in held else [None] * table.num_rows for name in names]
        rows += [repr(row) for row in zip(*columns, strict=True)]
    return sorted(rows)


def stats_of(adds: list[Action]) -> dict[str, Any]:
    """The least lower bounds, greatest upper bounds, and sums of counts of several files."""
    found = [json.loads(add["stats"]) for add in adds]
    nulls = {name: sum(each["nullCount"][name] for each in found) for name in found[0]["nullCount"]}
    low = {n: min(e["minValues"][n] for e in found if n in e["minValues"]) for e in found for n in e["minValues"]}
    high = {n: max(e["maxValues"][n] for e in found if n in e["maxValues"]) for e in found for n in e["maxValues"]}
    return {"rows": sum(each["numRecords"] for each in found), "nulls": nulls, "low": low, "high": high}


def check_footers(folder: Path, adds: list[Action]) -> None:
    """The footer of each file says of each row group what its rows say, and nothing else."""
    for add in adds:
        if ".snappy." in add["path"]:  # written again
            continue
        file = pq.ParquetFile(folder / add["path"], page_checksum_verification=True)
        assert file.metadata.num_rows == json.loads(add["stats"])["numRecords"]
        assert (folder / add["path"]).stat().st_size == add["size"]
        for index in range(file.num_row_groups):
            rows = file.read_row_group(index)
            for place in range(file.metadata.num_columns):
                chunk = file.metadata.row_group(index).column(place)
                values = rows.column(place)
                assert not chunk.has_column_index and chunk.bloom_filter_offset is None
                assert chunk.statistics.null_count == values.null_count
                if chunk.statistics.has_min_max:
                    bounds = pc.min_max(values).as_py()
                    assert (chunk.statistics.min, chunk.statistics.max) == (bounds["min"], bounds["max"])


@settings(max_examples=rounds(25, 400), deadline=None)
@given(st.data())
def test_the_same_rows_and_statistics(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    folder = tmp_path_factory.mktemp("copied")
    names = data.draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=5, unique=True))
    units = []
    for number in range(data.draw(st.integers(1, 3))):
        chance = random.Random(data.draw(st.integers(0, 1 << 30)))
        size = data.draw(st.integers(1, 90))
        held = data.draw(st.sampled_from([names, names[:-1] or names, names[::-1]]))
        rows = {name: pa.array([chance.choice(KINDS[name][2]) for _ in range(size)], KINDS[name][1]) for name in held}
        if data.draw(st.booleans()):
            rows[MARKER] = pa.array([chance.choice([0, None]) for _ in range(size)], pa.int32())
        path = folder / f"{number}.parquet"
        options = {
            "use_dictionary": data.draw(st.booleans()), "row_group_size": data.draw(st.sampled_from([20, 500])),
            "compression": data.draw(st.sampled_from(["snappy", "zstd", "gzip", "none"])),
            "data_page_version": data.draw(st.sampled_from(["1.0", "1.0", "2.0"])),
            "write_page_checksum": data.draw(st.booleans()), "write_page_index": data.draw(st.booleans()),
            "version": data.draw(st.sampled_from(["1.0", "2.6"])), "dictionary_pagesize_limit": 200,
        }  # fmt: skip
        pq.write_table(pa.table(rows), path, **options)
        units.append(unit_of(path))
    table = Target("", tuple(TargetColumn(name, name, KINDS[name][0]) for name in names), key_columns=(names[0],))
    copied, written = kept(folder / "copied", table, units), again(folder / "again", table, units)
    assert read(folder / "copied", copied, names) == read(folder / "again", written, names)
    assert stats_of(copied) == stats_of(written)
    check_footers(folder / "copied", copied)


def change(folder: Path, rows: dict[str, Any], **options: Any) -> ChangeUnit:
    path = folder / f"{len(list(folder.glob('*.parquet')))}.parquet"
    pq.write_table(pa.table(rows), path, **options)
    return unit_of(path)


def copied_only(unit: ChangeUnit, table: Target, **more: Any) -> int:
    """How many rows of a file are copied."""
    shared = Shared(Target(**{**vars_of(table), **more}), MemoryBudget(DEFAULT), append_only=True)
    _, left = copying.copy_chunks(shared, [unit], shared.sizes)
    return unit.rows - sum(each.rows for each in left)


TABLE = Target("", (TargetColumn("id", "id", "bigint"), TargetColumn("word", "word", "string")), key_columns=("id",))


def test_bytes_are_copied_and_the_marker_is_not(tmp_path: Path) -> None:
    rows = {"id": list(range(1000)), "word": ["a", "b"] * 500, MARKER: pa.array([0] * 1000, pa.int32())}
    units = [change(tmp_path, rows), change(tmp_path, {**rows, "id": list(range(5000, 6000))})]
    adds = kept(tmp_path / "t", TABLE, units)
    (add,) = adds
    stored = (tmp_path / "t" / add["path"]).read_bytes()
    for unit in units:
        source = pq.read_metadata(unit.path).row_group(0)
        for place in range(2):
            chunk = source.column(place)
            begin = chunk.dictionary_page_offset or chunk.data_page_offset
            assert Path(unit.path).read_bytes()[begin : begin + chunk.total_compressed_size] in stored
    assert pq.read_schema(tmp_path / "t" / add["path"]).names == ["id", "word"]
    assert json.loads(add["stats"])["maxValues"]["id"] == 5999


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ({"id": [1, 2], "word": ["a", "b"], MARKER: pa.array([0, 4], pa.int32())}, "a marker that is no insert"),
        ({"id": pa.array([1, 2], pa.int32()), "word": ["a", "b"]}, "another type"),
        ({"id": [1, 2], "word": pa.array([["a"], ["b"]])}, "nested"),
    ],
)
def test_what_is_written_again(tmp_path: Path, rows: dict[str, Any], why: str) -> None:
    assert copied_only(change(tmp_path, rows), TABLE, path=str(tmp_path)) == 0, why


def test_null_in_a_column_that_forbids_it(tmp_path: Path) -> None:
    """The row group before it is copied, and removed again: the error names file and row."""
    columns = (TARGET_ID, TargetColumn("word", "word", "string", nullable=False))
    unit = change(tmp_path, {"id": [1, 2, 3, 4], "word": ["a", "b", "c", None]}, row_group_size=2)
    table = Target("", columns, key_columns=("id",))
    assert copied_only(unit, table, path=str(tmp_path)) == 2
    with pytest.raises(Bad) as bad:
        kept(tmp_path / "t", table, [unit])
    assert bad.value.rejected.row == 4 and bad.value.rejected.column == "word"
    assert not list((tmp_path / "t").iterdir())


TARGET_ID = TABLE.columns[0]


def test_a_column_that_forbids_null_and_is_absent(tmp_path: Path) -> None:
    columns = (TARGET_ID, TargetColumn("word", "word", "string", nullable=False))
    with pytest.raises(Bad, match="NOT NULL") as bad:
        kept(tmp_path / "t", Target("", columns, key_columns=("id",)), [change(tmp_path, {"id": [1, 2]})])
    assert bad.value.rejected.row == 1 and bad.value.rejected.column == "word"
    partition = Target("", columns, partition_columns=("word",), key_columns=("id",))
    for value, copied in (("a", 2), ("", 0)):
        unit = change(tmp_path, {"id": [1, 2]})
        unit = ChangeUnit(**{**vars(unit), "constants": (("word", value),)})
        assert copied_only(unit, partition, path=str(tmp_path), partition_columns=("word",)) == copied


def test_a_damaged_row_group_ends_the_copy(tmp_path: Path) -> None:
    """What is before it is copied, the rest is read as always, which names the file; nothing is left behind."""
    unit = change(tmp_path, {"id": np.arange(4000), "word": ["a"] * 4000}, row_group_size=1000, use_dictionary=False)
    chunk = pq.read_metadata(unit.path).row_group(2).column(0)
    data = bytearray(Path(unit.path).read_bytes())
    place = chunk.data_page_offset + chunk.total_compressed_size // 2
    data[place : place + 200] = b"\xff" * 200
    Path(unit.path).write_bytes(data)
    with pytest.raises(Bad) as bad:
        kept(tmp_path / "t", TABLE, [unit])
    assert bad.value.rejected.code == "file-unreadable" and bad.value.rejected.file == unit.name
    assert not list((tmp_path / "t").iterdir())


def test_text_that_is_no_utf_8(tmp_path: Path) -> None:
    """Also in a dictionary's value that no row has: some readers check all of it."""
    words = pa.DictionaryArray.from_arrays(
        pa.array([0] * 20, pa.int32()), pa.array([b"fine", b"\xff"]).view(pa.string())
    )
    unit = change(tmp_path, {"id": list(range(20)), "word": words}, store_schema=False)
    assert copied_only(unit, TABLE, path=str(tmp_path)) == 0
    (add,) = kept(tmp_path / "t", TABLE, [unit])
    assert pq.read_table(tmp_path / "t" / add["path"])["word"].to_pylist() == ["fine"] * 20


def test_zeros_that_readers_take_for_different_values(tmp_path: Path) -> None:
    """A dictionary with -0.0 alone: Spark would skip the row group for `= 0.0`."""
    table = Target("", (TargetColumn("r", "r", "double"),))
    assert copied_only(change(tmp_path, {"r": [-0.0, 1.0] * 50}), table, path=str(tmp_path)) == 0
    assert copied_only(change(tmp_path, {"r": [-0.0, 0.0] * 50}), table, path=str(tmp_path)) == 100


def test_not_a_number_has_no_bounds(tmp_path: Path) -> None:
    unit = change(tmp_path, {"r": [float("nan"), 1.0] * 50})
    (add,) = kept(tmp_path / "t", Target("", (TargetColumn("r", "r", "double"),)), [unit])
    assert not json.loads(add["stats"])["maxValues"]
    told = pq.read_metadata(tmp_path / "t" / add["path"]).row_group(0).column(0).statistics
    assert ".snappy." not in add["path"] and not told.has_min_max


def test_partition_folders(tmp_path: Path) -> None:
    columns = (*TABLE.columns, TargetColumn("place", "place", "string"))
    table = Target("", columns, partition_columns=("place",), key_columns=("id",))
    units = []
    for value in ("north", "", "north"):
        unit = change(tmp_path, {"id": list(range(10)), "word": ["a"] * 10})
        units.append(ChangeUnit(**{**vars(unit), "constants": (("place", value),)}))
    adds = kept(tmp_path / "t", table, units)
    counts = {add["partitionValues"]["place"]: json.loads(add["stats"])["numRecords"] for add in adds}
    assert counts == {"north": 20, None: 10}


def test_names_and_ids_of_column_mapping(tmp_path: Path) -> None:
    columns = (TargetColumn("id", "col-1", "bigint", 7), TargetColumn("word", "col-2", "string", 8))
    unit = change(tmp_path, {"id": [1, 2], "word": ["a", "b"], MARKER: pa.array([0, 0], pa.int8())})
    (add,) = kept(tmp_path / "t", Target("", columns, key_columns=("id",)), [unit])
    schema = pq.read_schema(tmp_path / "t" / add["path"])
    assert schema.names == ["col-1", "col-2"]
    assert [field.metadata[b"PARQUET:field_id"] for field in schema] == [b"7", b"8"]
    assert set(json.loads(add["stats"])["minValues"]) == {"col-1", "col-2"}


def test_upserts_that_all_stay(tmp_path: Path) -> None:
    """The fold has seen the markers of these rows."""
    rows = {"id": [1, 2], "word": ["a", "b"], MARKER: pa.array([4, 4], pa.int32())}
    (add,) = kept(tmp_path / "t", TABLE, [change(tmp_path, rows)], append_only=False)
    assert "snappy" not in add["path"] and json.loads(add["stats"])["numRecords"] == 2


def test_files_end_at_about_their_size(tmp_path: Path) -> None:
    unit = change(tmp_path, {"id": np.arange(1000), "word": ["a"] * 1000}, row_group_size=100)
    shared = Shared(Target(**{**vars_of(TABLE), "path": str(tmp_path / "t")}), MemoryBudget(DEFAULT), True)
    (tmp_path / "t").mkdir()
    sizes = shared.sizes.__class__(rows_a_file=340)
    adds, left = copying.copy_chunks(shared, [unit], sizes)
    assert not left and [json.loads(add["stats"])["numRecords"] for add in adds] == [300, 300, 300, 100]


def test_too_little_memory(tmp_path: Path) -> None:
    """The row group is decoded in parts, as a file that is written again."""
    unit = change(tmp_path, {"id": np.arange(1000), "word": ["a"] * 1000})
    shared = Shared(Target(**{**vars_of(TABLE), "path": str(tmp_path)}), MemoryBudget(64 << 10), True)
    assert copying.copy_chunks(shared, [unit], shared.sizes) == ([], [unit])
    assert shared.budget.take(64 << 10)


@pytest.mark.parametrize("seed", range(4))
def test_compaction_copies_what_compaction_writes(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rows and statistics, whether row groups are copied or decoded; a deleted row is left out."""
    random_ = np.random.default_rng(seed)
    table = replace(TABLE, path=str(tmp_path / "t"))
    (tmp_path / "t").mkdir()
    adds = []
    for number in range(3):
        rows = int(random_.integers(1, 3000))
        batch = pa.record_batch({
            "id": pa.array(random_.integers(-9, 9, rows), pa.int64(), mask=random_.random(rows) < 0.1 * number),
            "word": [f"w{n}" for n in random_.integers(0, 50, rows)],
        })  # fmt: skip
        adds += write_rows([batch], table)
    work = RewriteWork(table, tuple(adds), 1)
    plain = compact(work)
    with monkeypatch.context() as patch:
        patch.setattr("lakemirror.engines.kernels.compact.live_rows", None)
        copied = compact(work, may_copy=True)
    assert len(copied) == 1 and json.loads(copied[0]["stats"]) == json.loads(plain[0]["stats"])
    names = ["id", "word"]
    assert read(tmp_path / "t", copied, names) == read(tmp_path / "t", plain, names)
    assert read(tmp_path / "t", copied, names) == read(tmp_path / "t", adds, names)
    monkeypatch.setattr(copying, "_FEWEST_ROWS", 10_000)
    before = len(list((tmp_path / "t").iterdir()))
    again_ = compact(work, may_copy=True)
    assert read(tmp_path / "t", again_, names) == read(tmp_path / "t", plain, names)
    assert len(list((tmp_path / "t").iterdir())) == before + len(again_), "nothing is left of what was not copied"
