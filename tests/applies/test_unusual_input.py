"""Input at the edge of what a file system, a clock or a format allows: applied, or refused with its own code."""

from __future__ import annotations

import os
import time
import unicodedata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.landing import MARKER, declare, folder, put

from lakemirror import MirroredDatabase
from lakemirror.delta.log import read_snapshot
from lakemirror.engines.kernels.live_rows import live_rows
from lakemirror.engines.target import target_of


def sync(database: Path, **settings: Any) -> dict[str, str]:
    """One pass; the code of each table that failed."""
    done = MirroredDatabase(database, engine="local", **{"maintenance": False, **settings}).sync()
    return {name: error.code for name, error in done.failed.items()}


def rows(table: Path) -> list[dict[str, Any]]:
    snapshot = read_snapshot(table)
    assert snapshot is not None
    target = target_of(str(table), snapshot.metadata.value, ())
    return [row for add in snapshot.files.values() for part in live_rows(add, target) for row in part.to_pylist()]


def upsert(ids: list[int], value: Any) -> dict[str, Any]:
    return {"id": ids, "v": [value] * len(ids), MARKER: pa.array([4] * len(ids), pa.int32())}


@pytest.mark.parametrize("count", [500, pytest.param(5000, marks=pytest.mark.full)])
def test_many_columns(tmp_path: Path, count: int) -> None:
    columns = {f"c{n}": [n, n + 1] for n in range(count)}
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1, 2], **columns})
    put(tmp_path, "t", 2, {"id": [1], **{name: [-1] for name in columns}, MARKER: pa.array([4], pa.int32())})
    assert not sync(tmp_path)
    found = sorted(rows(tmp_path / "Tables/t"), key=lambda row: row["id"])
    assert [len(row) for row in found] == [count + 1] * 2
    assert (found[0][f"c{count - 1}"], found[1][f"c{count - 1}"]) == (-1, count)


@pytest.mark.parametrize("mib", [20, pytest.param(200, marks=pytest.mark.full)])
def test_one_value_beyond_the_memory_is_refused_and_stops_nobody(tmp_path: Path, mib: int) -> None:
    text = "x" * (mib << 20)
    declare(tmp_path, "large", ["id"])
    put(tmp_path, "large", 1, {"id": [1], "v": pa.array([text], pa.large_string())}, compression="zstd")
    put(tmp_path, "other", 1, {"id": [1]})
    failed = sync(tmp_path, memory=(mib // 2) << 20)
    assert failed == {"large": "file-too-large"}
    assert rows(tmp_path / "Tables/other") == [{"id": 1}]
    assert not sync(tmp_path, memory=(10 * mib) << 20)
    (row,) = rows(tmp_path / "Tables/large")
    assert row["v"] == text


@pytest.mark.parametrize(
    "name", ["CON", "aux.txt", "two\nlines", "tab\there", " space ", "a" * 240, "ü" * 110, "..t", "%41", "a=b", "'q\"`"]
)
def test_names_of_tables(tmp_path: Path, name: str) -> None:
    place = tmp_path / "Files/LandingZone" / name
    place.mkdir(parents=True)
    put(tmp_path, "made", 1, {"id": [1]}).rename(place / f"{1:020}.parquet")
    put(tmp_path, "other", 1, {"id": [2]})
    assert not sync(tmp_path)
    assert rows(tmp_path / "Tables" / name) == [{"id": 1}]
    assert rows(tmp_path / "Tables/other") == [{"id": 2}]
    assert {table.table for table in MirroredDatabase(tmp_path).status().tables} >= {name, "other"}


def test_a_name_of_255_bytes_is_a_table_or_has_an_error_of_its_own(tmp_path: Path) -> None:
    name = "n" * 255
    place = tmp_path / "Files/LandingZone" / name
    place.mkdir(parents=True)
    put(tmp_path, "made", 1, {"id": [1]}).rename(place / f"{1:020}.parquet")
    put(tmp_path, "other", 1, {"id": [2]})
    assert not sync(tmp_path)
    assert rows(tmp_path / "Tables" / name) == [{"id": 1}]
    (place / f"{1:020}.parquet").unlink()
    place.joinpath("_mirror.json").unlink()
    place.rmdir()
    for _ in range(2):
        assert not sync(tmp_path, drop_after=0)
    assert not (tmp_path / "Tables" / name).exists(), "dropped under a shorter name"
    assert rows(tmp_path / "Tables/other") == [{"id": 2}]


def test_two_normal_forms_of_a_name_are_two_tables(tmp_path: Path) -> None:
    forms = [unicodedata.normalize(form, "Zürich") for form in ("NFC", "NFD")]
    for number, name in enumerate(forms):
        put(tmp_path, name, 1, {"id": [number]})
    assert not sync(tmp_path)
    assert [rows(tmp_path / "Tables" / name) for name in forms] == [[{"id": 0}], [{"id": 1}]]


def test_two_normal_forms_of_a_column_are_two_columns(tmp_path: Path) -> None:
    forms = [unicodedata.normalize(form, "Zürich") for form in ("NFC", "NFD")]
    put(tmp_path, "t", 1, {forms[0]: [1], forms[1]: [2]})
    assert not sync(tmp_path)
    assert rows(tmp_path / "Tables/t") == [{forms[0]: 1, forms[1]: 2}]


@pytest.mark.parametrize("shift", [-(10**9), -86_400, 86_400, 10**9])
def test_times_of_files_do_not_matter_where_numbers_do(tmp_path: Path, shift: int) -> None:
    declare(tmp_path, "t", ["id"])
    for number, value in enumerate("abc", start=1):
        path = put(tmp_path, "t", number, upsert([1, number], value))
        moment = time.time() + (shift if number == 2 else 0)
        os.utime(path, (moment, moment))
    assert not sync(tmp_path)
    assert sorted((row["id"], row["v"]) for row in rows(tmp_path / "Tables/t")) == [(1, "c"), (2, "b"), (3, "c")]


def test_equal_times_are_told_apart_by_names(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"], fileDetectionStrategy="LastUpdateTimeFileDetection")
    for name, value in (("b", "second"), ("a", "first"), ("c", "third")):
        made = put(tmp_path, "t", 1, upsert([1], value))
        path = made.rename(folder(tmp_path, "t") / f"{name}.parquet")
        os.utime(path, ns=(10**18, 10**18))
    for _ in range(2):
        assert not sync(tmp_path)
        assert [row["v"] for row in rows(tmp_path / "Tables/t")] == ["third"]


def test_a_clock_that_jumps_between_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(tmp_path, "t", ["id"])
    true = time.time
    for number, shift in enumerate((0, 10**8, -(10**8), 0), start=1):
        monkeypatch.setattr(time, "time", lambda shift=shift: true() + shift)
        put(tmp_path, "t", number, upsert([number], str(shift)))
        assert not sync(tmp_path, maintenance=True), shift
    monkeypatch.undo()
    assert sorted(row["id"] for row in rows(tmp_path / "Tables/t")) == [1, 2, 3, 4]
