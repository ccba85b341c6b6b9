"""Files of killed and beaten attempts go in the next pass, and only those that no version can name (section 9)."""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import preloaded
from tests.applies.test_applies import no_spark, sync
from tests.applies.test_columns_of_others import again, bag, rows
from tests.landing import MARKER, declare, folder, put

from lakemirror import LakemirrorError, MirroredDatabase
from lakemirror.delta.data_files import attempt_id, version_in
from lakemirror.delta.log import read_commit, read_snapshot
from lakemirror.delta.log_folder import list_log
from lakemirror.maintenance import compaction, leftovers
from lakemirror.maintenance.leftovers import remove_leftovers
from lakemirror.maintenance.vacuum import named_paths
from lakemirror.mirror import apply as applying
from lakemirror.mirror import step

__all__ = ["no_spark"]


@pytest.fixture(autouse=True)
def a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every apply here is the first of a process, as after a kill."""
    monkeypatch.setattr(step, "is_first_look", lambda table: True)


def test_a_process_looks_at_a_table_once(tmp_path: Path) -> None:
    assert [leftovers.is_first_look(f"{tmp_path}/{name}") for name in ("a", "b", "a")] == [True, True, False]


def upserts(*ids: int, value: str = "a") -> dict[str, Any]:
    columns = {"id": pa.array(ids, pa.int64()), "v": [value] * len(ids)}
    return {**columns, MARKER: pa.array([4] * len(ids), pa.int32())}


def unnamed(table: Path) -> set[str]:
    """The files below the table's folder that no commit names."""
    log = list_log(table)
    assert log is not None
    named = {
        path
        for commit in log.commits.values()
        for action in read_commit(commit)
        for kind in ("add", "remove", "cdc")
        if action.get(kind)
        for path in named_paths(table, action[kind])
    }
    there = {path.relative_to(table).as_posix() for path in table.rglob("*") if path.is_file()}
    return {path for path in there if not path.startswith(("_delta_log", "_lakemirror"))} - named


@given(st.integers(0, (1 << 48) - 1))
def test_a_name_says_its_version(version: int) -> None:
    made = attempt_id(version)
    assert made.version == 8 and made.variant == uuid.RFC_4122
    assert version_in(f"part-00000-{made}-c000.snappy.parquet") == version_in(f"deletion_vector_{made}.bin") == version
    assert version_in(f"part-00000-{attempt_id(None)}-c000.snappy.parquet") is None
    assert attempt_id(version) != attempt_id(version)


@pytest.mark.parametrize("settings", [{}, {"change_data_feed": True}, {"deletion_vectors": False}], ids=str)
@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("before", [0, 2])
def test_a_killed_attempt_leaves_nothing_behind_the_next_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], partitioned: bool, before: int
) -> None:
    """The first apply, which makes the table, and one that deletes rows."""
    place = "region=eu/" if partitioned else ""
    declare(tmp_path, "t", ["id"], isPartitionEnabled=partitioned)
    (folder(tmp_path, "t") / place).mkdir(exist_ok=True)

    def publish(number: int, change: dict[str, Any]) -> None:
        put(tmp_path, "t", number, change).rename(folder(tmp_path, "t") / place / f"{number:020}.parquet")

    for number in range(1, before + 1):
        publish(number, upserts(1, 2, 3, value="old"))
        sync(tmp_path, **settings)
    table = tmp_path / "Tables/t"
    publish(before + 1, upserts(1, 2))

    def killed(*_: Any, **__: Any) -> int:
        raise LakemirrorError("storage-unavailable", "killed before the commit: nothing is cleaned up")

    with monkeypatch.context() as patch:
        patch.setattr(applying.delta, "commit", killed)
        assert MirroredDatabase(tmp_path, **settings).sync().failed
    left = {path for path in table.rglob("*") if path.is_file() and version_in(path.name) == before}
    assert left and all(not path.name.startswith("cdc") for path in left) is (before == 0 or not settings.get(FEED))
    sync(tmp_path, **settings)
    assert not any(path.exists() for path in left) and not unnamed(table)
    there = {"region": "eu"} if partitioned else {}
    kept = [{"id": 3, "v": "old", **there}] if before else []
    assert rows(table) == bag(*kept, *({"id": each, "v": "a", **there} for each in (1, 2))) and not again(tmp_path)


FEED = "change_data_feed"


@pytest.mark.parametrize("point", ["apply.before-commit", "merge.before-commit"])
def test_a_process_that_dies(tmp_path: Path, point: str) -> None:
    """By the signal that nobody can catch; the next process goes on and cleans up."""
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, upserts(1, 2))
    sync(tmp_path)
    for number in range(2, 40):
        put(tmp_path, "t", number, upserts(number, value="b"))
    env = {**os.environ, "LAKEMIRROR_FAILPOINT": f"{point}:1", "LAKEMIRROR_BATCH_FILES": "1"}
    dead = preloaded.run(
        [sys.executable, "-m", "lakemirror.cli", "sync", str(tmp_path)], env=env, capture_output=True, timeout=60
    )
    assert dead.returncode == -9, dead.stderr
    assert unnamed(tmp_path / "Tables/t")
    put(tmp_path, "t", 40, upserts(40))
    sync(tmp_path)
    assert not unnamed(tmp_path / "Tables/t")
    assert sum(rows(tmp_path / "Tables/t").values()) == 40 and not again(tmp_path)


def test_an_engine_that_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another engine commits the version, and cleans up, while the first is about to commit: the first plans again."""
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, upserts(1, 2, value="old"))
    sync(tmp_path)
    put(tmp_path, "t", 2, upserts(1))
    table = tmp_path / "Tables/t"
    true, seen = applying.delta.commit, []

    def slow(*given: Any, **more: Any) -> int:
        if not seen:
            seen.append({path.name for path in table.rglob("*") if version_in(path.name) == 1})
            sync(tmp_path)
            assert seen[0] and not any((table / name).exists() for name in seen[0])
        return true(*given, **more)

    monkeypatch.setattr(applying.delta, "commit", slow)
    sync(tmp_path)
    assert rows(table) == bag({"id": 1, "v": "a"}, {"id": 2, "v": "old"}) and not unnamed(table)
    assert not again(tmp_path)


def test_a_change_file_that_is_gone_before_the_commit_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another engine has applied it, or its publisher deleted it: also the vectors of the attempt are removed."""
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, upserts(1, 2, value="old"))
    sync(tmp_path)
    put(tmp_path, "t", 2, upserts(1))
    put(tmp_path, "t", 3, upserts(3))
    table = tmp_path / "Tables/t"
    true, seen = applying.delete_rows, []

    def slow(*given: Any, **more: Any) -> Any:
        if not seen:
            seen.append("")
            sync(tmp_path)
            found = true(*given, **more)
            seen.extend(unnamed(table))
            return found
        return true(*given, **more)

    monkeypatch.setattr(applying, "delete_rows", slow)
    sync(tmp_path)
    assert any(name.startswith("deletion_vector") for name in seen)
    assert rows(table) == bag({"id": 1, "v": "a"}, {"id": 2, "v": "old"}, {"id": 3, "v": "a"}) and not unnamed(table)


def test_what_a_version_names_or_may_name_stays(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"])
    for number in range(1, 4):
        put(tmp_path, "t", number, upserts(1, 2, number))
        sync(tmp_path, change_data_feed=True)
    table = tmp_path / "Tables/t"
    compaction.merge_when_idle(str(table), all_vectors=True)
    snapshot = read_snapshot(table)
    assert snapshot is not None
    before = {path for path in table.rglob("*") if path.is_file()}
    old, version = time.time() - 3600, snapshot.version

    def planted(name: str, modified: float = old) -> Path:
        (table / name).write_bytes(b"x")
        os.utime(table / name, (modified, modified))
        return table / name

    stays = [
        planted(f"part-00000-{attempt_id(version + 1)}-c000.snappy.parquet"),  # an attempt that is under way
        planted(f"part-00000-{attempt_id(None)}-c000.snappy.parquet"),  # another writer's, or of a feature drop
        planted(f"part-00000-{attempt_id(1)}-c000.snappy.parquet", time.time() + 60),  # younger than its version
        planted(f"notes-{attempt_id(1)}.txt"),
    ]
    goes = [
        planted(f"part-00000-{attempt_id(1)}-c000.snappy.parquet"),
        planted(f"deletion_vector_{attempt_id(version)}.bin"),
        planted(f"_delta_log/.{1:020}.json.{uuid.uuid4().hex}.tmp"),
    ]
    scratch = table / f".lakemirror-{attempt_id(2)}"
    scratch.mkdir()
    os.utime(scratch, (old, old))
    assert remove_leftovers(table) == 4
    assert all(path.exists() for path in [*stays, *before])
    assert not any(path.exists() for path in [*goes, scratch])


def test_a_version_whose_commit_is_gone_or_damaged_says_nothing(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"])
    for number in range(1, 13):
        put(tmp_path, "t", number, upserts(number))
    sync(tmp_path, batch_files=1)
    table = tmp_path / "Tables/t"
    left = table / f"part-00000-{attempt_id(3)}-c000.snappy.parquet"
    left.write_bytes(b"x")
    os.utime(left, (1, 1))
    commit = table / "_delta_log" / f"{3:020}.json"
    content = commit.read_bytes()
    for damaged in (b"", b"{", None):
        commit.unlink(missing_ok=True)
        if damaged is not None:
            commit.write_bytes(damaged)
        remove_leftovers(table)
        assert left.exists(), damaged
    commit.write_bytes(content)
    assert remove_leftovers(table) == 1 and not Counter(unnamed(table))


def test_versions_that_were_old_at_the_last_look_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A history table has a file of many versions that the newest one does not name: each would be read each time."""
    declare(tmp_path, "t", ["id"])
    for number in range(1, 13):
        put(tmp_path, "t", number, upserts(number))
    sync(tmp_path, batch_files=1)
    table = tmp_path / "Tables/t"
    monkeypatch.setattr(leftovers, "_SLOW", 3)
    monkeypatch.setattr(leftovers, "_seen", {})
    newest = read_snapshot(table).version  # type: ignore[union-attr]
    assert remove_leftovers(table) == 0
    left = {
        version: table / f"part-00000-{attempt_id(version)}-c000.snappy.parquet" for version in (newest - 4, newest - 3)
    }
    for path in left.values():
        path.write_bytes(b"x")
        os.utime(path, (1, 1))
    assert remove_leftovers(table) == 1
    assert [path.exists() for path in left.values()] == [True, False]
    leftovers._seen[str(table)] = newest + 1  # the table was made anew since then
    assert remove_leftovers(table) == 1
