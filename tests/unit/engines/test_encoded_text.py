"""Text that stays in dictionaries from a change file to a data file: the rows, bounds and errors are the same."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from change_units import bad_row, items, like, unit_of, written
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rounds import rounds

from lakemirror.engines.kernels.row_reader import Changes
from lakemirror.engines.kernels.write import write_rows
from lakemirror.engines.local_engine import LocalEngine
from lakemirror.engines.row_work import ChangeUnit, RowWork, Target, TargetColumn

COLUMNS = tuple(TargetColumn(name, name, kind) for name, kind in (("few", "string"), ("many", "string"), ("n", "int")))
WORDS = ["", "a", "ä", "z" * 40, None]


@settings(max_examples=rounds(20, 60), deadline=None)
@given(st.data())
def test_the_same_rows_and_statistics(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    folder = tmp_path_factory.mktemp("encoded")
    units = []
    for number in range(data.draw(st.integers(1, 3))):
        chance = random.Random(data.draw(st.integers(0, 1 << 30)))
        rows = data.draw(st.integers(1, 200))
        few = [chance.choice(WORDS) for _ in range(rows)]
        many = [None if chance.random() < 0.1 else f"{number}-{chance.random()}" for _ in range(rows)]
        table = pa.table({"few": few, "many": many, "n": list(range(rows))}, _schema())
        path = folder / f"{number}.parquet"
        size = data.draw(st.sampled_from([7, 50, 500]))
        pq.write_table(table, path, use_dictionary=data.draw(st.booleans()), row_group_size=size)
        units.append(unit_of(path))
    plain, encoded = (_written(folder / name, units, encoded=name == "encoded") for name in ("plain", "encoded"))
    assert [each["stats"] for each in plain] == [each["stats"] for each in encoded]
    found = [pq.read_table([folder / name / each["path"] for each in adds], schema=_schema())
             for name, adds in (("plain", plain), ("encoded", encoded))]  # fmt: skip
    assert found[0].equals(found[1])
    for name, adds in (("plain", plain), ("encoded", encoded)):
        for each in adds:
            assert pq.read_schema(folder / name / each["path"]).types == _schema().types


def test_text_of_few_values_is_not_decoded(tmp_path: Path) -> None:
    rows = {"few": ["a", "b"] * 50, "many": [str(n) for n in range(100)], "n": list(range(100))}
    change = written(tmp_path, pa.table(rows, _schema()))
    (found,) = items(change, like(change), encoded=True)
    assert isinstance(found, Changes)
    assert [pa.types.is_dictionary(kind) for kind in found.rows.schema.types] == [True, False, False]
    (found,) = items(change, like(change))
    assert isinstance(found, Changes) and not any(map(pa.types.is_dictionary, found.rows.schema.types))


def test_a_value_that_is_no_utf_8(tmp_path: Path) -> None:
    """The row is named as it is without dictionaries; a bad value that no row has does no harm."""
    for used in (True, False):
        words = pa.DictionaryArray.from_arrays(
            pa.array([0, 0, 1 if used else 0, 0] * 5, pa.int32()), pa.array([b"fine", b"\xff"]).view(pa.string())
        )
        path = tmp_path / "00000000000000000001.parquet"
        pq.write_table(pa.table({"word": words}), path, store_schema=False)
        change = unit_of(path)
        if used:
            assert bad_row(change, like(change), encoded=True) == bad_row(change, like(change))
        else:
            assert all(isinstance(each, Changes) for each in items(change, like(change), encoded=True))


@pytest.mark.parametrize("constant", ["north", None, ""])
def test_a_partition_folder_s_constant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, constant: str | None) -> None:
    rows = pa.table({"few": ["a", "b"] * 50, "many": ["x"] * 100, "n": list(range(100))}, _schema())
    (tmp_path / "t").mkdir()
    change = written(tmp_path, rows)
    change = ChangeUnit(**{**vars(change), "constants": (("place", constant),)})
    columns = (*COLUMNS, TargetColumn("place", "place", "string"))
    target = Target(str(tmp_path / "t"), columns, partition_columns=("place",))
    work = RowWork(target, (change,), append_only=True, default_marker=0)
    engine = LocalEngine()
    monkeypatch.setattr(engine, "read_small", lambda *_: None)
    (add,) = engine.run(work).adds
    assert add["partitionValues"] == {"place": constant or None}
    assert json.loads(add["stats"])["maxValues"]["few"] == "b"
    assert pq.read_table(tmp_path / "t" / add["path"], partitioning=None).num_rows == 100


def test_files_with_and_without_dictionaries_in_one(tmp_path: Path) -> None:
    """A file begins with dictionaries, the next change file has none: its text is encoded; and the other way round."""
    units = []
    for number, few in enumerate((True, False, True)):
        words = ["a", "b"] * 50 if few else [f"w{n}" for n in range(100)]
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"few": words, "many": words, "n": list(range(100))}, _schema()), path)
        units.append(unit_of(path))
    for order in (units, units[1:], units[::-1]):
        (add,) = _written(tmp_path / str(len(order)), order, encoded=True)
        found = pq.read_table(tmp_path / str(len(order)) / add["path"])
        wanted = pa.concat_tables([pq.read_table(each.path) for each in order])
        assert found.equals(wanted)


def _schema() -> pa.Schema:
    return pa.schema([("few", pa.string()), ("many", pa.string()), ("n", pa.int32())])


def _written(folder: Path, units: list[ChangeUnit], *, encoded: bool) -> list[dict[str, Any]]:
    folder.mkdir(exist_ok=True)
    target = Target(str(folder), COLUMNS)
    batches = []
    for change in units:
        for each in items(change, target, encoded=encoded):
            assert isinstance(each, Changes)
            batches.append(each.rows)
    return write_rows(batches, target)
