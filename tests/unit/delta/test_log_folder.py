"""The end of a local log, followed by name: what it gives is what a listing gives, whoever writes meanwhile."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

import pytest
from tests.rounds import rounds
from tests.unit.delta.test_delta_log import METADATA, PROTOCOL, add, commit, remove

from lakemirror.delta import log_folder
from lakemirror.delta.checkpoint import is_cleaning_due, write_checkpoint
from lakemirror.delta.log import read_snapshot
from lakemirror.delta.log_folder import Commits, Log, RecentLog, list_log


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t"
    commit(path, 0, PROTOCOL, METADATA)
    return path


@pytest.fixture
def listings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables that were listed."""
    found: list[str] = []
    true = log_folder.list_log

    def noted(table: str | Path) -> Log | None:
        found.append(str(table))
        return true(table)

    monkeypatch.setattr(log_folder, "list_log", noted)
    return found


def checkpointed(table: Path, version: int | None = None) -> Path:
    snapshot = read_snapshot(table, version)
    assert snapshot is not None
    return Path(str(write_checkpoint(snapshot, durable=False)))


def grown(table: Path, versions: range) -> None:
    """Commits of these versions, each with a file, and a checkpoint after every tenth."""
    for version in versions:
        commit(table, version, add(f"{version}"))
        if version % 10 == 0:
            checkpointed(table)


def check(table: Path, recent: RecentLog) -> Log | None:
    """What is known of the log gives the same state as a listing."""
    whole, known = list_log(table), recent.read()
    if whole is None or known is None:
        assert whole is None and known is None
        return None
    assert known.version == whole.version
    expected, found = read_snapshot(table), read_snapshot(table, listed=known)
    assert expected is not None and found is not None
    assert (found.version, found.metadata) == (expected.version, expected.metadata)
    assert found.files.keys() == expected.files.keys(), "checkpoints leave out what only a commit says of a file"
    return known


def test_commits_and_checkpoints_are_followed_without_a_listing(table: Path, listings: list[str]) -> None:
    recent = RecentLog(table, 3600)
    for version in range(1, 100):
        grown(table, range(version, version + 1))
        known = check(table, recent)
        assert known is not None
    assert len(listings) == 1, "each commit is found by its name"
    assert not known.is_whole
    assert sorted(each.version for each in known.checkpoints) == [70, 80, 90]
    assert list(known.commits) == list(range(70, 100))


@pytest.mark.parametrize("seed", range(rounds(2, 6)))
def test_whatever_happens_to_the_log_it_is_what_a_listing_gives(tmp_path: Path, seed: int) -> None:
    """Commits, checkpoints with and without `_last_checkpoint`, cleaned-up commits, restored and replaced tables."""
    chosen = random.Random(seed)
    table, copies = tmp_path / "t", 0
    commit(table, 0, PROTOCOL, METADATA)
    recent = RecentLog(table, 3600)
    for _ in range(300):
        log = list_log(table)
        version = log.version if log is not None else -1
        step = chosen.choices(
            ("commit", "checkpoint", "unpointed", "clean", "replace", "roll back", "drop", "twice"),
            (60, 10, 4, 4, 1, 2, 1, 10),
        )[0]
        if log is None:
            commit(table, 0, PROTOCOL, METADATA)
        elif step in ("commit", "twice"):
            for each in range(1, 2 if step == "commit" else 4):
                commit(table, version + each, add(f"{chosen.random()}"), remove(f"{version}"))
        elif step == "checkpoint":
            checkpointed(table)
        elif step == "unpointed":
            pointer = table / "_delta_log/_last_checkpoint"
            before = pointer.read_bytes() if pointer.exists() else None
            checkpointed(table, version)
            if before is None:
                pointer.unlink()
            else:
                pointer.write_bytes(before)
        elif step == "clean" and log.checkpoints:
            for each in [v for v in log.commits if v < log.checkpoints[-1].version]:
                Path(str(log.commits[each])).unlink()
        elif step == "replace":
            copies += 1
            copy = tmp_path / f"copy-{copies}"
            shutil.copytree(table, copy)
            shutil.rmtree(table)
            copy.rename(table)
            commit(table, version, PROTOCOL, METADATA, add("another"))
        elif step == "roll back" and version > 0 and version - 1 in log.commits:
            Path(str(log.commits[version])).unlink()
            for path in (table / "_delta_log").glob(f"{version:020}.*"):
                path.unlink()
        elif step == "drop":
            shutil.rmtree(table)
        if chosen.random() < 0.7:
            check(table, recent)
    check(table, recent)


def test_another_file_of_the_same_version_is_another_log(table: Path, listings: list[str]) -> None:
    commit(table, 1, add("a"))
    recent = RecentLog(table, 3600)
    check(table, recent)
    path = commit(table, 2, add("b"))
    check(table, recent)
    at = path.stat()
    path.unlink()
    commit(table, 2, add("c"))
    os.utime(path, ns=(at.st_atime_ns, at.st_mtime_ns + 1))
    check(table, recent)
    assert len(listings) == 2


def test_a_damaged_checkpoint_at_the_end_is_passed_over(table: Path) -> None:
    recent = RecentLog(table, 3600)
    grown(table, range(1, 60))
    known = check(table, recent)
    assert known is not None and not known.is_whole
    for each in known.checkpoints:
        Path(str(each.files[0])).write_bytes(b"PAR1 not PAR1")
    check(table, recent)


def test_an_older_version_is_read_from_the_whole_log(table: Path) -> None:
    grown(table, range(1, 60))
    known = RecentLog(table).read()
    assert known is not None and min(known.commits) == 30
    snapshot = read_snapshot(table, 5, known)
    assert snapshot is not None and len(snapshot.files) == 5


def test_a_pointer_to_nothing_lists_the_log(table: Path, listings: list[str]) -> None:
    commit(table, 1, add("a"))
    recent = RecentLog(table, 3600)
    check(table, recent)
    for content in ({"version": 7}, {"version": "1"}, {}, [], {"version": 1}):
        (table / "_delta_log/_last_checkpoint").write_text(json.dumps(content))
        check(table, recent)
    (table / "_delta_log/_last_checkpoint").write_text("{")
    check(table, recent)
    assert len(listings) == 7


def test_it_is_listed_again_from_time_to_time(
    table: Path, listings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recent = RecentLog(table, 3600)
    for _ in range(3):
        check(table, recent)
    assert len(listings) == 1
    now = log_folder.time.monotonic()
    monkeypatch.setattr(log_folder.time, "monotonic", lambda: now + 36_000)
    check(table, recent)
    assert len(listings) == 2
    recent.forget()
    check(table, recent)
    assert len(listings) == 3


def test_versions_that_are_missing_stay_missing(tmp_path: Path) -> None:
    some = Commits(tmp_path, {3, 5}, {})
    assert list(some) == [3, 5] or sorted(some) == [3, 5]
    assert 4 not in some and some.get(4) is None and some[5].name == f"{5:020}.json"
    with pytest.raises(KeyError):
        some[4]
    assert len(Commits(tmp_path, {3, 4, 5}, {})) == 3
    assert not Commits(tmp_path, (), {})


def test_no_log(tmp_path: Path) -> None:
    recent = RecentLog(tmp_path / "none")
    assert recent.read() is None
    (tmp_path / "none").mkdir()
    (tmp_path / "none/_delta_log").write_text("no folder")
    assert recent.read() is None
    (tmp_path / "none/_delta_log").unlink()
    commit(tmp_path / "none", 0, PROTOCOL, METADATA)
    check(tmp_path / "none", recent)


def test_a_long_log_is_cleaned_more_rarely() -> None:
    def cleanings(listed: int) -> list[int]:
        return [version for version in range(10, 10_010, 10) if is_cleaning_due(version, version - 10, listed)]

    assert len(cleanings(100)) == 1000, "at every checkpoint"
    assert len(cleanings(3_200)) == 100
    assert len(cleanings(10**6)) == 5
