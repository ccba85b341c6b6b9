"""What a vacuum removes: files that no version within the retention names, and nothing else."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.applies.test_applies import changes, no_spark, rows, sync
from tests.landing import declare, put

from lakemirror.delta import commit as delta_commit
from lakemirror.delta.commit import commit, named_files
from lakemirror.delta.commit_info import commit_info
from lakemirror.delta.log import read_snapshot
from lakemirror.errors import LakemirrorError
from lakemirror.maintenance.compaction import merge_when_idle
from lakemirror.maintenance.vacuum import UNNAMED_AFTER, vacuum
from lakemirror.storage.own_files import SPILLED, work_folder

__all__ = ["no_spark"]

DAY = 86_400.0
WEEK = 7 * DAY


def age(table: Path, seconds: float) -> None:
    """Everything that is there now becomes older."""
    for path in table.rglob("*"):
        if path.is_file():
            then = path.stat().st_mtime - seconds
            os.utime(path, (then, then))
    for path in (table / "_delta_log").glob("*[0-9].json"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for action in lines:
            if "remove" in action:
                action["remove"]["deletionTimestamp"] -= int(seconds * 1000)
        then = path.stat().st_mtime
        path.write_text("".join(json.dumps(action) + "\n" for action in lines))
        os.utime(path, (then, then))


def names(table: Path) -> set[str]:
    return {p.relative_to(table).as_posix() for p in table.rglob("*") if p.is_file() and "_delta_log" not in p.parts}


def made(database: Path, numbers: range = range(1, 5)) -> Path:
    """Data files, vectors, and versions in which they come and go."""
    declare(database, "t", ["id"])
    for number in numbers:
        put(database, "t", number, changes([number, number - 1, 100 + number], [4, 2, 0]))
    sync(database, batch_files=1)
    return database / "Tables/t"


def test_files_that_only_old_versions_name_go(tmp_path: Path) -> None:
    table = made(tmp_path)
    assert merge_when_idle(str(table), all_vectors=True)
    before, there = rows(table), names(table)
    assert vacuum(table, WEEK) == 0 and names(table) == there
    age(table, 6 * DAY)
    assert vacuum(table, WEEK) == 0 and names(table) == there
    age(table, 2 * DAY)
    snapshot = read_snapshot(table)
    assert snapshot is not None
    live = {path.name for add in snapshot.files.values() for path in named_files(table, add)}
    assert vacuum(table, WEEK) == len(there) - len(live) > 5
    assert names(table) == live and rows(table) == before


def test_every_version_within_the_retention_can_still_be_read(tmp_path: Path) -> None:
    """Commits at random ages: after the vacuum each version that was current within the retention has all its files."""
    chance = random.Random(7)
    table = made(tmp_path, range(1, 2))
    for number in range(2, 30):
        age(table, chance.uniform(0.2, 0.8) * DAY)
        put(tmp_path, "t", number, changes([chance.randrange(20), chance.randrange(20), number], [2, 4, 0]))
        sync(tmp_path)
        if number % 9 == 0:
            merge_when_idle(str(table), all_vectors=True)
    assert vacuum(table, 5 * DAY) > 0
    newest = read_snapshot(table)
    assert newest is not None
    times = {version: path.stat().st_mtime for version, path in newest.log.commits.items()}
    begin = time.time() - 5 * DAY
    first = max(version for version, at in times.items() if at <= begin)
    for version in range(first, newest.version + 1):
        then = read_snapshot(table, version)
        assert then is not None
        for add in then.files.values():
            assert all(path.exists() for path in named_files(table, add)), version
    assert first > 3
    assert vacuum(table, 5 * DAY) == 0


def test_what_failed_attempts_left_goes_after_a_day(tmp_path: Path) -> None:
    table = made(tmp_path)
    there = names(table)
    (table / "_change_data").mkdir()
    (table / "region=eu").mkdir()
    left = [
        "part-00000-11111111-2222-3333-4444-555555555555-c000.snappy.parquet",
        "deletion_vector_11111111-2222-3333-4444-555555555555.bin",
        "_change_data/cdc-00000-11111111-2222-3333-4444-555555555555.c000.snappy.parquet",
        "region=eu/part-00000-11111111-2222-3333-4444-555555555555-c000.snappy.parquet",
        f"_delta_log/.{7:020}.json.{'a' * 32}.tmp",
    ]
    with work_folder(table, SPILLED) as spilled:
        (spilled / "fold-1").mkdir()
        spilled.rename(table / f".lakemirror-{'b' * 32}")
    (table / ".lakemirror-notes").mkdir()  # somebody else's
    kept = [
        ".lakemirror-notes/x",
        f".lakemirror-{'c' * 32}/x",
        "notes.txt",
        "other.parquet",
        "_lakemirror/x",
        "_metadata/part-1.parquet",
        ".hidden.parquet",
        "a.bin",
    ]
    for name in [*left, *kept]:
        (table / name).parent.mkdir(exist_ok=True)
        (table / name).write_bytes(b"x")
    now = time.time()
    assert vacuum(table, WEEK, now=now + UNNAMED_AFTER - 10) == 0
    assert vacuum(table, WEEK, now=now + UNNAMED_AFTER + 10) == len(left) + 1
    assert not (table / f".lakemirror-{'b' * 32}").exists()
    assert names(table) == there | set(kept)
    assert vacuum(table, WEEK, now=now + WEEK + 10) > 0
    assert names(table) & set(kept) == set(kept) - {"other.parquet"}, "VACUUM by any client removes it"


def test_an_attempt_that_is_still_at_work_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old files get a new time before they are committed. Where a vacuum came first, there is no commit."""
    table = made(tmp_path)
    snapshot = read_snapshot(table)
    assert snapshot is not None
    source = table / next(iter(snapshot.files.values()))["path"]

    def written(name: str) -> list[dict[str, Any]]:
        (table / name).write_bytes(source.read_bytes())
        then = time.time() - 2 * DAY
        os.utime(table / name, (then, then))
        add = {"path": name, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
        stats = json.dumps({"numRecords": pq.read_metadata(source).num_rows})
        return [{"commitInfo": commit_info(snapshot, "WRITE", {})}, {"add": {**add, "stats": stats}}]

    slow = written("part-00000-11111111-2222-3333-4444-555555555555-c000.parquet")
    assert vacuum(table, WEEK) == 1
    with pytest.raises(LakemirrorError, match="concurrent-commit"):
        commit(table, snapshot, slow)
    slow = written("part-00000-11111111-2222-3333-4444-666666666666-c000.parquet")
    true = delta_commit.put_new

    def put_new(*given: Any, **named: Any) -> Any:
        assert vacuum(table, WEEK) == 0, "between the look at the files and the commit"
        return true(*given, **named)

    monkeypatch.setattr(delta_commit, "put_new", put_new)
    commit(table, snapshot, slow)
    assert vacuum(table, WEEK) == 0 and rows(table)


def test_a_commit_that_comes_while_a_vacuum_looks_keeps_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A RESTORE names files again that were unneeded a moment ago."""
    from lakemirror.maintenance import vacuum as vacuum_module

    table = made(tmp_path)
    old = read_snapshot(table, 1)
    merge_when_idle(str(table), all_vectors=True)
    age(table, 8 * DAY)
    assert old is not None
    true = vacuum_module.unneeded

    def unneeded(*given: Any) -> Any:
        found = true(*given)
        now = read_snapshot(table)
        adds = [{"add": {**add, "dataChange": True}} for add in old.files.values()]
        commit(table, now, [{"commitInfo": commit_info(now, "RESTORE", {})}, *adds])
        return found

    monkeypatch.setattr(vacuum_module, "unneeded", unneeded)
    assert vacuum(table, WEEK) > 0
    assert rows(table)


def test_a_table_with_an_unknown_feature_is_left_alone(tmp_path: Path) -> None:
    table = made(tmp_path)
    path = table / f"_delta_log/{0:020}.json"
    path.write_text(path.read_text().replace('"appendOnly"', '"ofTheFuture"'))
    with pytest.raises(LakemirrorError, match="features-unsafe"):
        vacuum(table, WEEK, now=time.time() + 2 * WEEK)
    assert vacuum(tmp_path / "Files", WEEK) == 0
