"""Tables whose data files have no index get one while `run` is idle."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.applies.test_applies import changes, no_spark, rows, sync
from tests.landing import declare, put
from tests.unit.runner.test_run_loop import running, wait_for

from lakemirror import MirroredDatabase
from lakemirror.delta.log import read_snapshot
from lakemirror.keys import key_index, row_copies, row_file
from lakemirror.keys.key_file import identity_of
from lakemirror.keys.key_index import KeyIndex
from lakemirror.keys.written_rows import LATELY_WRITTEN
from lakemirror.maintenance import key_scan
from lakemirror.maintenance.compaction import merge_small_files
from lakemirror.maintenance.key_scan import KeyScan

__all__ = ["no_spark"]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One with a data file that no index knows."""
    monkeypatch.setattr(key_index, "FEWEST_ROWS", 50)
    monkeypatch.setattr(key_index, "_READ_NUMBERS", 0)
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [str(uuid.UUID(int=n * 7**40 % 2**128)) for n in range(100)]})
    sync(tmp_path, key_index=False)
    return tmp_path / "Tables/t"


def scanned(scan: KeyScan, table: Path, commit: float, index: KeyIndex | None) -> bool:
    found = scan.step(lambda: {str(table): commit}, index)
    if scan._work is not None:
        scan._work.result(timeout=60)
    scan._not_before = 0.0
    return found is not None


def test_a_scan_builds_what_is_missing_and_is_due_after_the_next_commit(table: Path) -> None:
    index, scan = KeyIndex(table.parent / "keys", 1 << 30), KeyScan(str)
    assert not scanned(scan, table, 1.0, None)
    assert scanned(scan, table, 1.0, index) and not scanned(scan, table, 1.0, index)
    index.wait()
    (file,) = (table.parent / "keys").glob("*/*.keys")
    made = file.stat()
    assert scanned(scan, table, 2.0, index)
    index.wait()
    assert file.stat() == made, "what is there is not built again"
    scan.stop()


@pytest.mark.parametrize(("spell", "expected"), [(1000.0, 1), (0.0, 20)])
def test_many_tables_are_scanned_in_one_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spell: float, expected: int
) -> None:
    monkeypatch.setattr(key_scan, "_SPELL", spell)
    scan, index = KeyScan(str), KeyIndex(tmp_path / "keys", 1 << 30)
    tables = {str(tmp_path / f"t{number}"): 1.0 for number in range(20)}
    goes = 0
    while scan.step(lambda: tables, index) is not None:
        assert scan._work is not None
        scan._work.result(timeout=60)
        scan._not_before, goes = 0.0, goes + 1
    assert scan._scanned.keys() == tables.keys() and goes == expected
    scan.stop()


def test_a_table_that_cannot_be_read_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "t/_delta_log").mkdir(parents=True)
    (tmp_path / "t/_delta_log/00000000000000000000.json").write_text("{")
    scan, index = KeyScan(str), KeyIndex(tmp_path / "keys", 1 << 30)
    assert scanned(scan, tmp_path / "t", 1.0, index)
    assert not (tmp_path / "keys").exists()
    scan.stop()


def test_an_idle_engine_builds_the_index_of_a_table_of_before(table: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with running(MirroredDatabase(tmp_path, cache_dir=str(cache), poll_idle=0.05, poll=0.05)):
        wait_for(lambda: list((cache / "keys").glob("*/*.keys")))
    before = len(rows(table))
    put(tmp_path, "t", 2, changes([str(uuid.UUID(int=7**40 % 2**128))], [2]))
    sync(tmp_path, cache_dir=str(cache))
    assert len(rows(table)) == before - 1


def test_a_merge_of_small_files_has_the_new_file_indexed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No look-up and no scan asks for it: inserts alone are applied, and `sync` scans nothing."""
    monkeypatch.setattr(key_index, "FEWEST_ROWS", 50)
    monkeypatch.setattr(key_index, "_READ_NUMBERS", 0)
    declare(tmp_path, "t", ["id"])
    cache = tmp_path / "cache"
    index = KeyIndex.shared(cache / "keys", 1 << 40)
    for number in range(1, 50):
        put(tmp_path, "t", number, {"id": [str(uuid.UUID(int=(number * 7 + n) * 7**40 % 2**128)) for n in range(7)]})
        sync(tmp_path, cache_dir=str(cache))
        index.wait()
        if list(cache.glob("keys/*/*.keys")):
            break
    assert len(list(cache.glob("keys/*/*.keys"))) == 1
    held = [pq.read_metadata(path).num_rows for path in (tmp_path / "Tables/t").glob("*.parquet")]
    assert sum(rows >= 50 for rows in held) == 1, "the merged file alone is large enough for one"


def test_replaced_files_leave_neither_index_nor_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data files stay until a vacuum: the cache folder would fill with what no apply reads."""
    for module in (key_index, row_copies):
        monkeypatch.setattr(module, "FEWEST_ROWS", 1)
    monkeypatch.setattr(LATELY_WRITTEN, "most_bytes", 0)  # rows in memory need no copy
    declare(tmp_path, "t", ["id"], lakemirror={"deletes": "soft"})
    cache = tmp_path / "cache"
    index = KeyIndex.shared(cache / "keys", 1 << 40)
    for number in range(1, 18):
        ids = [str(uuid.UUID(int=(number * 7 + n) * 7**40 % 2**128)) for n in range(20)]
        put(tmp_path, "t", number, changes(ids, [4] * 20))
        sync(tmp_path, cache_dir=str(cache), maintenance=False)
        index.wait()
    table = tmp_path / "Tables/t"

    def held() -> dict[str, set[str]]:
        found: dict[str, set[str]] = {".keys": set(), ".rows": set()}
        for path in (cache / "keys").glob("*/*.*"):
            identity = row_file.identity_of(path) if path.suffix == ".rows" else identity_of(path)
            found[path.suffix].add(Path(json.loads(identity)[0]).name)
        return found

    before = held()
    assert len(before[".keys"]) > 9 and len(before[".rows"]) > 9
    assert merge_small_files(str(table)) > 9
    index.wait()
    snapshot = read_snapshot(table)
    assert snapshot is not None
    named = {add["path"] for add in snapshot.files.values()}
    assert not set.union(*held().values()) - named
