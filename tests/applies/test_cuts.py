"""Cuts: each table gets a version that ends at the cut's file, whatever happens around it (sources.md, section 8)."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from tests.commands import CommandRunner
from tests.landing import declare, folder, put

from lakemirror import MirroredDatabase
from lakemirror.cli import app
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.cut_manifests import manifest_name, parse_manifest
from lakemirror.landing_zone.zone import CUTS
from lakemirror.lint import check
from lakemirror.maintenance.compaction import merge_when_idle
from lakemirror.mirror.cut_versions import Cut, versions_to_keep
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


def test_a_folder_made_again_and_not_applied_yet_waits_also_without_tokens(tmp_path: Path) -> None:
    """The table's version that ended at a file with this number has the rows of the folder before."""
    put(tmp_path, "t", 1, {"n": [1]})
    opened(tmp_path).sync()
    time.sleep(0.01)
    manifest(tmp_path, 1, {"t": 1})
    time.sleep(0.01)
    shutil.rmtree(folder(tmp_path, "t"))
    put(tmp_path, "t", 1, {"n": [2]})
    time.sleep(0.01)
    manifest(tmp_path, 2, {"t": 1})
    second, first = opened(tmp_path).cuts()
    assert first.is_complete and not second.is_complete and not second.is_void
    opened(tmp_path).sync()
    second, first = opened(tmp_path).cuts()
    assert rows(first, "t") == [{"n": 1}] and rows(second, "t") == [{"n": 2}]


def test_a_cut_that_a_batch_has_passed_is_void(tmp_path: Path) -> None:
    for number in (1, 2):
        put(tmp_path, "t", number, {"n": [number]})
    opened(tmp_path).sync()
    manifest(tmp_path, 1, {"t": 1})
    (cut,) = opened(tmp_path).cuts()
    assert cut.is_void and "no version ends at file 1" in cut.reasons["t"]


def test_a_table_with_a_sequence_for_each_partition_reaches_no_cut(tmp_path: Path) -> None:
    """Its position counts files: six files are applied, and no file has the number 6."""
    declare(tmp_path, "t", ["k"], isPartitionEnabled=True)
    for part in ("p=a", "p=b"):
        for number in (1, 2, 3):
            put(tmp_path, "t", number, {"k": [number]}).rename(
                made(folder(tmp_path, "t") / part) / f"{number:020}.parquet"
            )
    opened(tmp_path).sync()
    time.sleep(0.01)
    manifest(tmp_path, 1, {"t": 6})
    (cut,) = opened(tmp_path).cuts()
    assert cut.is_void and not cut.versions


def made(path: Path) -> Path:
    path.mkdir(exist_ok=True)
    return path


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
    assert [(each.code, each.file) for each in check(tmp_path)] == [("cut-invalid", f"{CUTS}/{manifest_name(1)}")]


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


def test_the_log_keeps_the_last_complete_cut(tmp_path: Path) -> None:
    put(tmp_path, "t", 1, {"n": [1]})
    put(tmp_path, "stopped", 1, {"n": [1]})
    opened(tmp_path).sync()
    manifest(tmp_path, 1, {"t": 1, "stopped": 1})
    for number in range(2, 24):
        put(tmp_path, "t", number, {"n": [number]})
    manifest(tmp_path, 2, {"t": 23, "stopped": 2})
    opened(tmp_path, batch_files=1).sync()
    log = tmp_path / "Tables/t/_delta_log"
    old = time.time() - 31 * 86_400
    for path in log.iterdir():
        os.utime(path, (old, old))
    for number in range(24, 36):
        put(tmp_path, "t", number, {"n": [number]})
    opened(tmp_path, batch_files=1).sync()
    assert opened(tmp_path).cut().number == 1 and len(rows(opened(tmp_path).cut(), "t")) == 1

    put(tmp_path, "stopped", 2, {"n": [1]})
    manifest(tmp_path, 2, {"t": 35, "stopped": 2})
    for number in range(36, 48):
        put(tmp_path, "t", number, {"n": [number]})
    opened(tmp_path, batch_files=1).sync()
    assert opened(tmp_path).cut().number == 2
    assert min(int(path.stem) for path in log.glob("*[0-9].json")) > 0, "what the last cut does not need goes"
    first = list(opened(tmp_path).cuts())[-1]
    assert first.is_void and not opened(tmp_path).cut(1).is_complete


def test_the_log_keeps_the_apply_of_a_cut_that_is_a_later_version(tmp_path: Path) -> None:
    """A compaction with a checkpoint: the log before it is not needed to read the cut, but to find it."""
    put(tmp_path, "stopped", 1, {"n": [1]})
    for number in range(1, 11):
        put(tmp_path, "t", number, {"n": [number]})
    opened(tmp_path, batch_files=1, maintenance=False).sync()
    time.sleep(0.01)
    assert merge_when_idle(str(tmp_path / "Tables/t"), all_vectors=True)
    time.sleep(0.01)
    manifest(tmp_path, 1, {"t": 10, "stopped": 1})
    log = tmp_path / "Tables/t/_delta_log"
    assert opened(tmp_path).cut().versions["t"] == 10 and (log / f"{10:020}.checkpoint.parquet").exists()
    old = time.time() - 31 * 86_400
    for path in log.iterdir():
        os.utime(path, (old, old))
    for number in range(11, 50):
        put(tmp_path, "t", number, {"n": [number]})
    opened(tmp_path, batch_files=1, maintenance=False).sync()
    assert len(list(log.glob("*.checkpoint.parquet"))) > 1
    assert opened(tmp_path).cut().number == 1 and len(rows(opened(tmp_path).cut(), "t")) == 10


def test_an_old_cut_whose_files_were_removed_is_void(tmp_path: Path) -> None:
    """Another program's VACUUM knows no cuts."""
    landing = Landing(tmp_path)
    table = landing.table("t", keys=["id"])
    for number in (1, 2, 3):
        table.upsert([{"id": 1, "v": number}])
        landing.cut()
        opened(tmp_path, maintenance=False).sync()
    assert all(cut.is_complete for cut in opened(tmp_path).cuts())
    then = time.time() - 8 * 86_400
    for path in (tmp_path / CUTS).iterdir():
        os.utime(path, (then, then))
    assert all(cut.is_complete for cut in opened(tmp_path).cuts())
    assert DeltaTable(tmp_path / "Tables/t").vacuum(0, enforce_retention_duration=False, dry_run=False)
    third, second, first = opened(tmp_path).cuts()
    assert third.is_complete and second.is_void and first.is_void
    assert "were removed" in first.reasons["t"]


def test_old_manifests_go_and_the_last_complete_cut_stays(tmp_path: Path) -> None:
    put(tmp_path, "t", 1, {"n": [1]})
    database = opened(tmp_path)
    database.sync()
    for number, days in ((1, 9), (2, 8), (3, 8), (4, 1), (5, 1)):
        then = time.time() - days * 86_400
        os.utime(manifest(tmp_path, number, {"t": 1 if number != 3 else 2}), (then, then))
    other = tmp_path / CUTS / "notes.json"
    other.write_text("{}")
    os.utime(folder(tmp_path, "t") / f"{1:020}.parquet", (1e9, 1e9))
    (log,) = (tmp_path / "Tables/t/_delta_log").glob("*0.json")
    log.write_text(re.sub(r'\\"modified\\":\d+', r'\\"modified\\":1', log.read_text()))
    assert versions_to_keep(database.storage, database.settings, "Tables/t") == {0}
    assert [cut.number for cut in database.cuts()] == [5, 4]
    os.utime(manifest(tmp_path, 6, {"t": 2}), (1e9, 1e9))
    assert versions_to_keep(database.storage, database.settings, "Tables/other") == set()
    assert [cut.number for cut in database.cuts()] == [6, 5, 4] and other.exists()


def test_a_cut_is_the_newest_version_with_its_rows(tmp_path: Path) -> None:
    """So VACUUM keeps it as long as any version that was current then."""
    for number in range(1, 5):
        put(tmp_path, "t", number, {"n": [number]})
    opened(tmp_path, batch_files=1, maintenance=False).sync()
    manifest(tmp_path, 1, {"t": 4})
    time.sleep(0.01)
    assert merge_when_idle(str(tmp_path / "Tables/t"), all_vectors=True)
    time.sleep(0.01)
    manifest(tmp_path, 2, {"t": 4})
    assert [cut.versions["t"] for cut in opened(tmp_path).cuts()] == [4, 3]
    put(tmp_path, "t", 5, {"n": [5]})
    opened(tmp_path).sync()
    assert [cut.versions["t"] for cut in opened(tmp_path).cuts()] == [4, 3]
    assert all(len(rows(cut, "t")) == 4 for cut in opened(tmp_path).cuts())


def test_the_command(tmp_path: Path) -> None:
    assert "no cut yet" in lakemirror("cuts", init(tmp_path))
    put(tmp_path, "s.a", 1, {"n": [1]})
    put(tmp_path, "b", 1, {"n": [1]})
    opened(tmp_path).sync()
    manifest(tmp_path, 1, {"s.a": 1, "b": 1, "c": 0}, time="noon", position="0/1", reread=2)
    manifest(tmp_path, 2, {"b": 2})
    (tmp_path / CUTS / manifest_name(3)).write_text("{")
    found = json.loads(lakemirror("cuts", tmp_path, "--json"))
    assert [(cut["cut"], cut["complete"]) for cut in found] == [(3, False), (2, False), (1, True)]
    assert found[0]["errorCode"] == "cut-invalid" and "file 2 is gone" in found[1]["reasons"]["b"]
    assert found[2]["versions"] == {"s.a": 0, "b": 0} and found[2]["reread"] == 2
    assert json.loads(lakemirror("cuts", tmp_path, "show", "last", "--json")) == found[2]
    text = lakemirror("cuts", tmp_path)
    assert "noon" in text and "2 values may be newer" in text
    shown = lakemirror("cuts", tmp_path, "show", "1")
    assert "version=0" in shown and "VERSION AS OF 0" in shown and "no file yet" in shown
    assert len(lakemirror("cuts", tmp_path, "--limit", "1").splitlines()) == 1
    assert "cut-unknown" in lakemirror("cuts", tmp_path, "show", "9", code=2)
    lakemirror("cuts", tmp_path, "delete", code=2)


def test_every_client_reads_a_cut_by_its_lines(tmp_path: Path) -> None:
    for number in (1, 2):
        put(tmp_path, "t", number, {"n": [number]})
    manifest(tmp_path, 1, {"t": 1})
    opened(tmp_path).sync()
    lines = opened(tmp_path).cut().snippets()["t"]
    for tool in ("polars", "pandas"):
        names: dict[str, Any] = {}
        exec(lines[tool], names)
        assert len(names["t"]) == 1, tool
    assert "version=0" in lines["duckdb"] and '.option("versionAsOf", 0)' in lines["spark"]


def lakemirror(*words: object, code: int = 0) -> str:
    result = CommandRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def init(path: Path) -> Path:
    (path / "Files/LandingZone").mkdir(parents=True)
    return path
