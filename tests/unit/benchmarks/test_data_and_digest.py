"""The data are seeded, and the digest tells two tables apart that differ in one value."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks import data, digest
from tests.model import ModelTable

duckdb = pytest.importorskip("duckdb")


def digest_of(table: pa.Table) -> list[int]:
    connection = duckdb.connect()
    connection.execute("set TimeZone = 'UTC'")
    connection.register("rows_", table)
    return digest.numbers(connection.execute(digest.sql("rows_")).fetchone())


def changed(rows: pa.Table, name: str, value: object) -> pa.Table:
    values = rows[name].to_pylist()
    values[3] = value
    return rows.set_column(rows.column_names.index(name), name, pa.array(values, rows.schema.field(name).type))


def test_order_of_rows_is_no_matter_and_every_column_is() -> None:
    rows = data.table(np.arange(50), np.random.default_rng(1))
    whole = digest_of(rows)
    assert digest_of(rows.take(np.random.default_rng(2).permutation(50))) == whole
    instant = rows["changed"].to_pylist()[3].replace(hour=(rows["changed"].to_pylist()[3].hour + 1) % 24)
    others = {"id": 99, "amount": -1, "price": 0.5, "name": "somebody", "changed": instant}
    for name in digest.COLUMNS:
        assert digest_of(changed(rows, name, others[name])) != whole, name
        assert digest_of(changed(rows, name, None)) != whole, name
    assert digest_of(rows.slice(1)) != whole


def test_two_values_that_change_places_are_seen() -> None:
    rows = data.table(np.arange(50), np.random.default_rng(1))
    amounts = rows["amount"].to_pylist()
    amounts[0], amounts[1] = amounts[1], amounts[0]
    assert digest_of(rows.set_column(1, "amount", pa.array(amounts))) != digest_of(rows)


def model(load: list[Path], changes: list[Path]) -> pa.Table:
    """The last change of an id counts, in plain Python."""
    rows: dict[int, dict[str, object]] = {}
    for file in [*load, *changes]:
        for row in pq.read_table(file).to_pylist():
            marker = row.pop(data.MARKER, data.INSERT)
            rows.pop(row["id"], None)
            if marker != data.DELETE:
                rows[row["id"]] = row
    return pa.Table.from_pylist(list(rows.values()), schema=pq.read_schema(load[0]))


@pytest.mark.parametrize("keys", [data.uniform, data.zipf, data.recent, data.hot])
def test_what_is_expected_is_what_a_model_in_plain_python_says(tmp_path: Path, keys: data.Keys) -> None:
    load = data.load(tmp_path / "load", 500)
    data.upserts(tmp_path / "changes", 500, 3, 100, keys)
    changes = sorted((tmp_path / "changes").iterdir())
    assert digest.expected(load, changes) == digest_of(model(load, changes))


def test_the_mixed_changes_mean_the_same_to_the_contract_and_to_the_last_change(tmp_path: Path) -> None:
    load = data.load(tmp_path / "load", 200)
    data.mixed(tmp_path / "changes", 200, 3, 50)
    changes = sorted((tmp_path / "changes").iterdir())
    mirrored = ModelTable(keys=("id",))
    for file in [*load, *changes]:
        rows = pq.read_table(file).to_pylist()
        mirrored.apply(digest.COLUMNS, [(row.pop(data.MARKER, data.INSERT), row) for row in rows])
    kept = pa.Table.from_pylist(mirrored.rows, schema=pq.read_schema(load[0]))
    assert digest_of(kept) == digest.expected(load, changes)
    markers = pq.read_table(changes[0])[data.MARKER].to_pylist()
    assert {m: markers.count(m) for m in set(markers)} == {data.UPSERT: 30, data.DELETE: 10, data.INSERT: 10}


def test_appended_files_grow_wider_and_never_repeat_an_id(tmp_path: Path) -> None:
    data.appends(tmp_path / "changes", 5, 10, wider_every=2)
    files = [pq.read_table(file) for file in sorted((tmp_path / "changes").iterdir())]
    assert [len(file.column_names) for file in files] == [6, 6, 7, 7, 8]
    assert sorted(i for file in files for i in file["id"].to_pylist()) == list(range(50))


@pytest.mark.parametrize(
    "make", [lambda f: data.upserts(f, 100, 2, 20, data.zipf), lambda f: data.mixed(f, 100, 2, 20)]
)
def test_the_same_seed_gives_the_same_bytes(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "a")
    make(tmp_path / "b")
    for one, other in zip(sorted((tmp_path / "a").iterdir()), sorted((tmp_path / "b").iterdir()), strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_uuids_are_all_different_in_no_order_and_give_the_digest_of_their_ids(tmp_path: Path) -> None:
    ids = np.concatenate([np.arange(5000), [10**12 - 1]])
    texts = data.uuids(ids).to_pylist()
    assert len(set(texts)) == len(ids) and texts != sorted(texts)
    assert all(re.fullmatch("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9]{12}", text) for text in texts)
    assert [int(text[24:]) for text in texts] == ids.tolist()
    files = {}
    for as_uuids in (False, True):
        place = tmp_path / str(as_uuids)
        load = data.load(place / "load", 300, as_uuids=as_uuids)
        data.upserts(place / "changes", 300, 3, 100, data.uniform, as_uuids=as_uuids)
        files[as_uuids] = load, sorted((place / "changes").iterdir())
    assert digest.expected(*files[True], [digest.UUIDS]) == digest.expected(*files[False])
