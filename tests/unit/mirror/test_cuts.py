"""Cuts: each table gets a version that ends at the cut's file, whatever happens around it (sources.md, section 8)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from tests.landing import declare, folder, put

from lakemirror import MirroredDatabase
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.cut_manifests import manifest_name, parse_manifest
from lakemirror.landing_zone.zone import CUTS
from lakemirror.mirror.cuts import Cut
from lakemirror.publisher import Landing
from lakemirror.storage import Entry


def opened(path: Path, **settings: Any) -> MirroredDatabase:
    return MirroredDatabase(path, engine="local", drop_after=0, **settings)


def manifest(path: Path, cut: int, tables: dict[str, Any], **more: Any) -> Path:
    """What a foreign publisher writes: no tokens."""
    file = path / CUTS / manifest_name(cut)
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name("_writing")
    temporary.write_text(json.dumps({"cut": cut, "position": "", "time": "", "tables": tables, **more}))
    temporary.replace(file)
    return file


def rows(cut: Cut, name: str) -> list[dict[str, Any]]:
    """A table at a cut, as delta-rs reads it."""
    (path,) = (table.path for table in cut.tables if table.name == name)
    table = DeltaTable(path, version=cut.versions[name])
    found = QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
    return list(pa.table(found).to_pylist())


def test_a_batch_ends_at_a_cut(tmp_path: Path) -> None:
    for number in range(1, 7):
        put(tmp_path, "a", number, {"n": [number]})
        put(tmp_path, "s.b", number, {"n": [number]})
    manifest(tmp_path, 1, {"a": 2, "s.b": 5})
    manifest(tmp_path, 2, {"a": 4, "s.b": 5})
    result = opened(tmp_path).sync()
    assert result.tables["a"].commits == 3 and result.tables["s.b"].commits == 2
    second, first = opened(tmp_path).cuts()
    assert first.is_complete and second.is_complete
    assert [len(rows(cut, "a")) for cut in (first, second)] == [2, 4]
    assert [len(rows(cut, "s.b")) for cut in (first, second)] == [5, 5]
    assert first.versions["s.b"] == second.versions["s.b"]


def test_a_table_at_rest_keeps_its_version(tmp_path: Path) -> None:
    put(tmp_path, "a", 1, {"n": [1]})
    opened(tmp_path).sync()
    manifest(tmp_path, 1, {"a": 1, "later": 0})
    manifest(tmp_path, 2, {"a": 1})
    assert [cut.versions for cut in opened(tmp_path).cuts()] == [{"a": 0}, {"a": 0}]
    assert opened(tmp_path).cut().number == 2
    assert opened(tmp_path).cut(1).versions == {"a": 0}


def test_delimited_text_ends_at_a_cut(tmp_path: Path) -> None:
    declare(tmp_path, "t", [], fileFormat="CSV")
    for number in range(1, 5):
        path = folder(tmp_path, "t") / f"{number:020}.csv"
        path.write_text(f"n\r\n{number}\r\n")
        os.utime(path, (1e9, 1e9))
    manifest(tmp_path, 1, {"t": 3})
    assert opened(tmp_path).sync().tables["t"].commits == 2
    assert len(rows(opened(tmp_path).cut(), "t")) == 3


def test_a_cut_waits_for_every_table(tmp_path: Path) -> None:
    put(tmp_path, "a", 1, {"n": [1]})
    opened(tmp_path).sync()
    put(tmp_path, "a", 2, {"n": [1]})
    put(tmp_path, "b", 1, {"n": [1]})
    manifest(tmp_path, 1, {"a": 2, "b": 1})
    database = opened(tmp_path)
    database.pause("b")
    database.sync()
    (cut,) = database.cuts()
    assert not cut.is_complete and not cut.is_void
    assert cut.versions == {"a": 1} and list(cut.reasons) == ["b"]
    with pytest.raises(LakemirrorError, match="cut-unknown"):
        database.cut()
    database.resume("b")
    database.sync()
    assert database.cut().versions == {"a": 1, "b": 0}


def test_a_cut_whose_file_is_gone_is_void_and_one_that_was_reached_stays(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    table = landing.table("t", keys=["id"])
    table.load([{"id": 1, "v": "old"}])
    assert landing.cut().tables == {"t": 1}
    opened(tmp_path).sync()
    table.upsert([{"id": 2, "v": "old"}])
    assert landing.cut().number == 2
    table.recreate()
    table.load([{"id": 1, "v": "new"}])
    newest, void, reached = (lambda found: [landing.cut() and None, *found])(list(opened(tmp_path).cuts()))
    assert newest is None and reached.is_complete
    assert void.is_void and "gone" in void.reasons["t"]
    opened(tmp_path).sync()
    third, second, first = opened(tmp_path).cuts()
    assert third.is_complete and rows(third, "t") == [{"id": 1, "v": "new"}]
    assert second.is_void and not second.versions
    assert first.is_complete and rows(first, "t") == [{"id": 1, "v": "old"}]


def test_a_file_with_the_same_number_in_a_folder_made_again_is_no_cut(tmp_path: Path) -> None:
    """Twice made again before the engine looks: no clock tells the files apart."""
    landing = Landing(tmp_path)
    table = landing.table("t", keys=["id"])
    table.load([{"id": 1}])
    opened(tmp_path).sync()
    table.recreate()
    table.load([{"id": 2}])
    landing.cut()
    table.recreate()
    table.load([{"id": 3}])
    opened(tmp_path).sync()
    (cut,) = opened(tmp_path).cuts()
    assert cut.is_void and not cut.versions


def test_a_cut_that_a_batch_has_passed_is_void(tmp_path: Path) -> None:
    for number in (1, 2):
        put(tmp_path, "t", number, {"n": [number]})
    opened(tmp_path).sync()
    manifest(tmp_path, 1, {"t": 1})
    (cut,) = opened(tmp_path).cuts()
    assert cut.is_void and "no version ends at file 1" in cut.reasons["t"]


@pytest.mark.parametrize(
    "content",
    [
        b"", b"[]", b"{", b'{"cut": 2, "tables": {}}', b"{}", b'{"tables": {"t": -1}}', b'{"tables": {"t": true}}',
        b'{"tables": {"../t": 1}}', b'{"tables": {"a...": 1}}', b'{"tables": {"t": "1"}}', b'{"tables": [1]}', b"\xff",
        b'{"tables": {}, "files": 1}', b'{"tables": {}, "reread": "x"}', b"[" * 200_000,
    ],
)  # fmt: skip
def test_a_bad_manifest_is_an_error_of_its_own(tmp_path: Path, content: bytes) -> None:
    for number in (1, 2):
        put(tmp_path, "t", number, {"n": [number]})
    manifest(tmp_path, 2, {"t": 1})
    (tmp_path / CUTS / manifest_name(1)).write_bytes(content)
    assert opened(tmp_path).sync().tables["t"].commits == 2
    second, first = opened(tmp_path).cuts()
    assert second.is_complete
    assert first.error is not None and first.error.code == "cut-invalid" and first.is_void
    assert not opened(tmp_path).status().warnings


def test_a_manifest_folder_that_is_none_stops_no_table(tmp_path: Path) -> None:
    for number in (1, 2):
        put(tmp_path, "t", number, {"n": [number]})
    (tmp_path / CUTS).symlink_to(tmp_path)
    assert opened(tmp_path).sync().tables["t"].commits == 1
    assert not list(opened(tmp_path).cuts())


def test_what_is_unknown_in_a_manifest_is_left_out() -> None:
    data = json.dumps({"tables": {"t": 1}, "position": {"lsn": 5}, "more": 1}).encode()
    found = parse_manifest(data, Entry(f"{CUTS}/{manifest_name(7)}", len(data), 5))
    assert (found.cut, found.tables, found.position, found.modified) == (7, {"t": 1}, '{"lsn": 5}', 5)
