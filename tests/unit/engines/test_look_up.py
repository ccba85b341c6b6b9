"""Where the rows with given keys lie: always where a plain look at every row finds them."""

from __future__ import annotations

import datetime
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakemirror.engines.kernels import key_cache as kept_keys
from lakemirror.engines.kernels import look_up as key_lookup
from lakemirror.engines.kernels.key_cache import Cache
from lakemirror.engines.kernels.look_up import positions

DAYS = [datetime.date(1, 1, 1), datetime.date(1969, 12, 31), datetime.date(2020, 5, 1), datetime.date(9999, 12, 31)]
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "whole": (pa.int64(), st.integers(-30, 30) | st.sampled_from([-(2**63), 2**63 - 1])),
    "short": (pa.int16(), st.integers(-5, 5) | st.sampled_from([-(2**15), 2**15 - 1])),
    "day": (pa.date32(), st.sampled_from(DAYS)),
    "text": (pa.string(), st.sampled_from(["", "a", "B", "ä"])),
}


@pytest.fixture(autouse=True)
def nothing_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_lookup, "_LATELY_READ", Cache(1 << 20))


def adds(*names: str) -> dict[str, Any]:
    return {name: {"path": name} for name in names}


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_rows_are_found_where_a_look_at_every_row_finds_them(monkeypatch: pytest.MonkeyPatch, data: Any) -> None:
    monkeypatch.setattr(kept_keys, "_WORTH_IT", data.draw(st.sampled_from([1, 8])))
    kinds = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=2))
    schema = pa.schema([(f"K{place}", VALUES[kind][0]) for place, kind in enumerate(kinds)])
    nullable = data.draw(st.booleans())
    row = st.tuples(*(VALUES[kind][1] | (st.none() if nullable else st.nothing()) for kind in kinds))
    expected: dict[str, list[int]] = {}
    keys = sorted(data.draw(st.sets(row, max_size=12)), key=repr)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(data.draw(st.integers(1, 3))):
            rows = data.draw(st.lists(row, max_size=30))
            if data.draw(st.booleans()):
                rows.sort(key=lambda each: tuple((value is None, value or 0 if value != "" else "") for value in each))
            columns = list(zip(*rows, strict=True)) or [()] * len(kinds)
            held = {
                name.lower(): pa.array(list(values), kind)
                for name, kind, values in zip(schema.names, schema.types, columns, strict=True)
            }
            nested = pa.array([[{"k0": 1}]] * len(rows), pa.list_(pa.struct([("k0", pa.int64())])))
            path = Path(folder) / f"{number}.parquet"
            pq.write_table(pa.table({"x": nested, **held}), path, row_group_size=data.draw(st.integers(1, 31)))
            if found := [place for place, each in enumerate(rows) if each in keys]:
                expected[path.name] = found
        sought = pa.table(
            [pa.array([key[place] for key in keys], kind) for place, kind in enumerate(schema.types)], schema=schema
        )
        found_rows = positions(folder, adds(*(path.name for path in Path(folder).iterdir())), sought)
        again = positions(folder, adds(*(path.name for path in Path(folder).iterdir())), sought)
    assert found_rows is not None and again == found_rows
    assert {name: sorted(places.to_pylist()) for name, places in found_rows.items()} == expected


def test_a_column_that_a_file_does_not_hold_is_null_in_it(tmp_path: Path) -> None:
    pq.write_table(pa.table({"other": [1, 2]}), tmp_path / "old.parquet")
    sought = pa.table({"id": pa.array([None, 5], pa.int64())})
    found = positions(str(tmp_path), adds("old.parquet"), sought)
    assert found is not None and found["old.parquet"].to_pylist() == [0, 1]
    assert positions(str(tmp_path), adds("old.parquet"), sought.slice(1)) == {}


def test_only_row_groups_that_may_hold_a_key_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"id": list(range(1000))}), tmp_path / "data.parquet", row_group_size=100)
    read: list[int] = []
    true = pq.ParquetFile.read_row_group
    monkeypatch.setattr(
        pq.ParquetFile, "read_row_group", lambda self, i, **more: (read.append(i), true(self, i, **more))[1]
    )
    found = positions(str(tmp_path), adds("data.parquet"), pa.table({"id": [5000, 205, 799, 800]}))
    assert found is not None and found["data.parquet"].to_pylist() == [205, 799, 800]
    assert sorted(read) == [2, 7, 8]  # no range from the smallest to the largest key


def test_a_nested_column_of_the_same_path_is_another_one(tmp_path: Path) -> None:
    nested = pa.array([{"b": 1}, {"b": 1}])
    pq.write_table(pa.table({"a": nested, "a.b": [5, 7]}), tmp_path / "data.parquet")
    found = positions(str(tmp_path), adds("data.parquet"), pa.table({"a.b": [7]}))
    assert found is not None and found["data.parquet"].to_pylist() == [1]


def test_row_groups_without_rows_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"id": ["a", "b"]})
    with pq.ParquetWriter(tmp_path / "data.parquet", rows.schema) as writer:
        for part in (rows.slice(0, 0), rows, rows.slice(0, 0)):
            writer.write_table(part)
    footer = pq.read_metadata(tmp_path / "data.parquet")
    assert [footer.row_group(group).num_rows for group in range(footer.num_row_groups)] == [0, 2, 0]
    true = pq.ParquetFile.read_row_group
    read: list[int] = []
    monkeypatch.setattr(
        pq.ParquetFile, "read_row_group", lambda self, i, **more: (read.append(i), true(self, i, **more))[1]
    )
    found = positions(str(tmp_path), adds("data.parquet"), pa.table({"id": ["b"]}))
    assert found is not None and found["data.parquet"].to_pylist() == [1] and read == [1]


@pytest.mark.parametrize(
    ("key", "limit"), [(1, "_MOST_NUMBERS_READ"), (1, "_MOST_KEYS_READ"), ("a", "_MOST_KEYS_READ")]
)
def test_too_many_keys_to_read_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: int | str, limit: str
) -> None:  # fmt: skip
    keys = pa.table({"id": [key]})
    pq.write_table(pa.concat_tables([keys] * 4), tmp_path / "data.parquet")
    for most in (4, 3):
        monkeypatch.setattr(key_lookup, limit, most)
        found = positions(str(tmp_path), adds("data.parquet"), keys)
        assert (found is None) is (most < 4)


def test_a_long_run_of_narrow_numbers(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": pa.array(range(-20_000, 20_001), pa.int16())}), tmp_path / "data.parquet")
    found = positions(str(tmp_path), adds("data.parquet"), pa.table({"id": pa.array([15_000, -20_000], pa.int16())}))
    assert found is not None and found["data.parquet"].to_pylist() == [0, 35_000]


def test_what_was_read_lately_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"id": [0, 10]}), tmp_path / "data.parquet")
    read: list[Any] = []
    true = pq.ParquetFile.read_row_group
    monkeypatch.setattr(
        pq.ParquetFile, "read_row_group", lambda self, i, **more: (read.append(i), true(self, i, **more))[1]
    )

    def look(**add: Any) -> int:
        """How many row groups were read."""
        read.clear()
        found = positions(str(tmp_path), {"x": {"path": "data.parquet", **add}}, pa.table({"id": [10]}))
        assert found is not None and found["x"].to_pylist() == [1]
        return len(read)

    assert [look(), look(), look(size=1), look(size=1, modificationTime=2), look()] == [1, 0, 1, 1, 0]
    monkeypatch.setattr(key_lookup, "_LATELY_READ", Cache(2 * 2048 + 15))
    assert [look(), look()] == [1, 1], "one look takes half of it at most"
    monkeypatch.setattr(key_lookup, "_LATELY_READ", Cache(4 * 2048 + 32))
    assert [look(), look(size=3), look(), look(size=3)] == [1, 1, 0, 0], "and drives out no more"


def test_a_file_that_cannot_be_read_is_left_to_spark(tmp_path: Path) -> None:
    (tmp_path / "data.parquet").write_bytes(b"PAR1 is not enough")
    assert positions(str(tmp_path), adds("data.parquet"), pa.table({"id": [1]})) is None
    assert positions(str(tmp_path), adds("gone.parquet"), pa.table({"id": [1]})) is None
