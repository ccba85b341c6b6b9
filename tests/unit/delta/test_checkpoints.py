"""Checkpoints: when one is written, which are kept, what is in them. Their cost follows change."""

from __future__ import annotations

import itertools
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakemirror.delta.checkpoint import is_worth_it, superfluous, superfluous_checksums
from lakemirror.delta.commit import commit
from lakemirror.delta.commit_info import commit_info
from lakemirror.delta.data_files import removed
from lakemirror.delta.log import Snapshot, read_snapshot
from lakemirror.storage.durable import PROCESS

METADATA = {
    "id": "m", "format": {"provider": "parquet", "options": {}}, "partitionColumns": [], "createdTime": 1,
    "schemaString": json.dumps({"type": "struct", "fields": []}),
    "configuration": {"delta.logRetentionDuration": "interval 7 days"},
}  # fmt: skip


def make(table: Path, **configuration: str) -> Snapshot:
    metadata = {**METADATA, "configuration": {**METADATA["configuration"], **configuration}}  # type: ignore[dict-item]
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    table.mkdir(exist_ok=True)
    commit(table, None, [{"commitInfo": commit_info(None, "WRITE", {})}, protocol, {"metaData": metadata}])
    return state(table)


def state(table: Path, version: int | None = None) -> Snapshot:
    found = read_snapshot(table, version)
    assert found is not None
    return found


def add(table: Path, name: str) -> dict[str, Any]:
    (table / name).write_bytes(b"x" * 10)
    return {"path": name, "partitionValues": {}, "size": 10, "modificationTime": 1, "dataChange": True,
            "stats": json.dumps({"numRecords": 1, "minValues": {"id": name}})}  # fmt: skip


def write(table: Path, count: int, keep: int = 5) -> None:
    """So many commits; each adds a file, and removes the oldest where there are more than `keep`."""
    for number in range(count):
        snapshot = state(table)
        actions = [{"commitInfo": commit_info(snapshot, "WRITE", {})}]
        actions.append({"add": add(table, f"part-{snapshot.version:05}-{number}.parquet")})
        if len(snapshot.files) >= keep:
            old = min(snapshot.files.values(), key=lambda each: each["path"])
            actions.append({"remove": removed(old, int(time.time() * 1000), data_change=True)})
        commit(table, snapshot, actions, durability=PROCESS)


def checkpoints(table: Path) -> list[int]:
    return sorted(int(path.name[:20]) for path in (table / "_delta_log").glob("*.checkpoint.parquet"))


def test_a_checkpoint_is_worth_it_when_the_log_has_grown_by_its_size() -> None:
    assert not is_worth_it(9, 10**9, 0) and is_worth_it(10, 1, 0)
    assert not is_worth_it(100, 999_999, 10**6) and is_worth_it(100, 10**6, 10**6)
    assert is_worth_it(500, 1, 10**9), "a reader never reads more commits"


def test_few_are_kept_and_of_every_age_one() -> None:
    ages = {version: (1000 - version) * 60.0 for version in range(10, 1001, 10)}
    left = dict(ages)
    for version in superfluous(ages):
        del left[version]
    assert set(sorted(ages)[-3:]) <= set(left) and min(left) == 10
    kept = sorted(left, reverse=True)
    assert len(kept) < 20
    gaps = [ages[older] / ages[newer] for newer, older in itertools.pairwise(kept[3:])]
    assert max(gaps) < 1.5**2.5
    assert superfluous(left) == [], "what is kept is kept"
    assert not [v for v in superfluous(ages, protected=500) if v < 500]


def test_as_time_goes_by_the_kept_ones_still_cover_every_age() -> None:
    times: dict[int, float] = {}
    for version in range(0, 3000, 10):
        now = version * 60.0
        times[version] = now
        for gone in superfluous({each: now - at for each, at in times.items()}):
            del times[gone]
    ages = sorted(2990 * 60.0 - at for at in times.values())
    assert len(ages) < 20 and min(times) == 0
    assert all(older / younger <= 1.5**3.5 for younger, older in itertools.pairwise(ages[3:])), ages


def test_every_version_can_be_read_with_few_checkpoints(tmp_path: Path) -> None:
    make(tmp_path)
    write(tmp_path, 60)
    found = checkpoints(tmp_path)
    assert 1 <= len(found) <= 6
    for version in range(61):
        snapshot = state(tmp_path, version)
        assert len(snapshot.files) == min(version, 5)
    newest = state(tmp_path)
    assert newest.checkpoint is not None and newest.version - newest.checkpoint.version < 30


def checksums(table: Path) -> list[int]:
    return sorted(int(path.stem) for path in (table / "_delta_log").glob("*.crc"))


def test_checksums_are_kept_from_the_third_newest_checkpoint_on(tmp_path: Path) -> None:
    make(tmp_path)
    write(tmp_path, 120)
    left, newest = checksums(tmp_path), state(tmp_path).version
    assert 0 < left[0] <= checkpoints(tmp_path)[-3] and left == list(range(left[0], newest + 1))
    log = state(tmp_path).log
    assert superfluous_checksums(log) == list(range(left[0], checkpoints(tmp_path)[-3]))
    assert superfluous_checksums(replace(log, checkpoints=log.checkpoints[-2:])) == []
    assert len(state(tmp_path, 3).files) == 3, "a version without a checksum is read from the log"


def test_checksums_stay_where_checkpoints_are_protected(tmp_path: Path) -> None:
    make(tmp_path, **{"delta.requireCheckpointProtectionBeforeVersion": "5"})
    write(tmp_path, 60)
    assert checksums(tmp_path) == list(range(61))


def test_a_checkpoint_equals_the_log(tmp_path: Path) -> None:
    make(tmp_path)
    write(tmp_path, 45)
    by_checkpoint = state(tmp_path)
    assert by_checkpoint.checkpoint is not None and by_checkpoint.files
    for path in (tmp_path / "_delta_log").glob("*.checkpoint.parquet"):
        path.unlink()
    replayed = state(tmp_path)
    assert replayed.checkpoint is None
    assert {key: {**value, "dataChange": True} for key, value in by_checkpoint.files.items()} == dict(replayed.files)


def test_files_that_came_and_went_since_the_last_checkpoint_leave_no_tombstone_in_it(tmp_path: Path) -> None:
    make(tmp_path)
    write(tmp_path, 12, keep=1)
    assert checkpoints(tmp_path) == [10]
    assert len(state(tmp_path, 10).tombstones) == 0
    write(tmp_path, 30, keep=1)
    known = state(tmp_path, max(checkpoints(tmp_path)))
    named = {path for path, _ in known.tombstones}
    assert 1 <= len(named) < 12, "those that an earlier checkpoint holds as live"


def test_in_a_slow_table_every_tombstone_is_kept(tmp_path: Path) -> None:
    make(tmp_path, **{"delta.deletedFileRetentionDuration": "interval 0.05 seconds"})
    (tmp_path / "slow").mkdir()
    snapshot = make(tmp_path / "slow", **{"delta.deletedFileRetentionDuration": "interval 1 day"})
    first = {"commitInfo": {**commit_info(snapshot, "WRITE", {}), "timestamp": int(time.time() * 1000) - 3_600_000}}
    commit(tmp_path / "slow", snapshot, [first, {"add": add(tmp_path / "slow", "a.parquet")}])
    write(tmp_path / "slow", 12, keep=1)
    assert checkpoints(tmp_path / "slow") == [10]
    assert len(state(tmp_path / "slow", 10).tombstones) == 9


def test_the_log_is_cleaned_up_with_the_checkpoint_that_allows_it(tmp_path: Path) -> None:
    make(tmp_path)
    write(tmp_path, 25)
    old = time.time() - 8 * 86_400
    first = checkpoints(tmp_path)[0]
    for path in (tmp_path / "_delta_log").iterdir():
        if path.name[0] != "_" and int(path.name[:20]) <= first:
            os.utime(path, (old, old))
    write(tmp_path, 25)
    left = sorted(int(path.name[:20]) for path in (tmp_path / "_delta_log").glob("*[0-9].json"))
    assert left[0] == first == checkpoints(tmp_path)[0]
    assert len(state(tmp_path, first).files) == 5
    assert all(state(tmp_path, version) for version in left)


@pytest.mark.parametrize("cut", [0, 100])
def test_a_torn_checkpoint_is_passed_over(tmp_path: Path, cut: int) -> None:
    make(tmp_path)
    write(tmp_path, 15)
    before = dict(state(tmp_path).files)
    path = tmp_path / f"_delta_log/{10:020}.checkpoint.parquet"
    path.write_bytes(path.read_bytes()[:cut])
    assert set(state(tmp_path).files) == set(before)
