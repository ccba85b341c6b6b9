"""Idle-time work on tables that need no Spark for it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.applies.test_applies import changes, no_spark, rows, sync
from tests.landing import declare, put

from lakemirror import failpoints
from lakemirror.delta import commit as direct_commit
from lakemirror.delta.log import read_snapshot
from lakemirror.errors import LakemirrorError
from lakemirror.maintenance import compaction as small_files
from lakemirror.maintenance import idle_work as maintenance
from lakemirror.maintenance import policy as compaction
from lakemirror.maintenance.idle_work import Maintenance, Pace, commits_since_compaction

__all__ = ["no_spark"]

SOON = Pace(compact_after=3, quiet=0.0)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """One that rests and is due: a file with a vector, and two small ones."""
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": list(range(100))})
    for number in range(2, 5):
        put(tmp_path, "t", number, changes([number, 100 + number], [2, 4]))
    sync(tmp_path, batch_files=1)
    return tmp_path / "Tables/t"


def step(work: Maintenance, table: Path, **more: Any) -> bool:
    """Whether it found something to do; it is done when this returns."""
    work._not_before = 0.0
    found = work.step([str(table)], **more)
    if work._work is not None:
        work._work.result(timeout=60)
    return found is not None


def test_a_table_at_rest_loses_its_vectors_without_spark(table: Path) -> None:
    before, work = rows(table), Maintenance(str, 7, pace=SOON)
    assert step(work, table)
    snapshot = read_snapshot(table)
    assert snapshot is not None and rows(table) == before and len(snapshot.files) == 1
    assert not any(add.get("deletionVector") for add in snapshot.files.values())
    assert commits_since_compaction(str(table)) == 0
    assert not step(work, table) and not step(Maintenance(str, 7, pace=SOON), table), "nothing is due any more"


def test_a_log_that_gives_nothing_to_do_is_read_again_once_it_has_changed(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    count = maintenance.commits_since_compaction
    monkeypatch.setattr(
        maintenance, "commits_since_compaction", lambda path, most: read.append(path) or count(path, most)
    )
    work = Maintenance(str, 7, pace=Pace(compact_after=5, quiet=0.0))
    assert not step(work, table) and not step(work, table)
    assert len(read) == 2, "the time of a log that has just changed tells nothing"
    past = time.time() - 100
    os.utime(table / "_delta_log", (past, past))
    for _ in range(5):
        assert not step(work, table)
    assert len(read) == 3
    put(tmp_path, "t", 5, changes([50], [2]))
    sync(tmp_path)
    assert step(work, table) and len(read) > 3
    work.stop()


def test_after_a_longer_rest_vectors_go_however_few_commits_there_were(table: Path, tmp_path: Path) -> None:
    before, work = rows(table), Maintenance(str, 7, pace=Pace(quiet=0.0))
    assert not step(work, table), "it has not rested for long"
    log_time = time.time() - 50
    os.utime(table / "_delta_log", (log_time, log_time))
    assert not step(work, table)
    work.pace = replace(work.pace, rested=0.0)
    assert step(work, table) and rows(table) == before, "what was found before it had rested does not count"
    snapshot = read_snapshot(table)
    assert snapshot is not None and not any("deletionVector" in add for add in snapshot.files.values())
    assert not step(work, table)
    put(tmp_path, "t", 5, changes([50], [2]))
    sync(tmp_path)
    assert not step(work, table), "once a day"
    work.pace = replace(work.pace, all_vectors_every=0.0)
    assert step(work, table)
    assert not step(Maintenance(str, 7, pace=work.pace), table), "a table without vectors needs more commits"


def test_merges_in_between_do_not_count_as_compaction(table: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "AT_LEAST", 2)
        assert small_files.merge_small_files(str(table))
    assert commits_since_compaction(str(table), 3) == 3


def test_it_stops_when_an_apply_comes(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "t", 5, changes([50], [2]))
    came = []

    def reach(name: str) -> None:
        if name == "merge.before-commit" and not came:
            came.append(name)
            sync(tmp_path)

    monkeypatch.setattr(failpoints, "reach", reach)
    before = rows(table)
    work = Maintenance(str, 7, pace=SOON)
    step(work, table)
    before.subtract({(50,): 1})
    assert came and rows(table) == +before
    step(work, table)
    snapshot = read_snapshot(table)
    assert snapshot is not None and not any(add.get("deletionVector") for add in snapshot.files.values())


def test_an_apply_at_work_is_not_disturbed(table: Path) -> None:
    version = read_snapshot(table).version  # type: ignore[union-attr]
    work = Maintenance(str, 7, pace=SOON)
    assert step(work, table, hold=lambda target: nullcontext(False))
    assert read_snapshot(table).version == version  # type: ignore[union-attr]
    held: list[str] = []

    @contextmanager
    def hold(target: str) -> Iterator[bool]:
        held.append(target)
        yield True
        held.append("free again")

    assert step(work, table, hold=hold) and held == [str(table), "free again"]
    assert read_snapshot(table).version == version + 1  # type: ignore[union-attr]


def test_a_piece_at_a_time_until_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "LARGEST", 0)
    monkeypatch.setattr(compaction, "_SMALLEST_FILE", 2)
    declare(tmp_path, "t", ["id"])
    for number in (1, 2, 3):
        put(tmp_path, "t", number, {"id": list(range(100 * number, 100 * number + 100))})
    put(tmp_path, "t", 4, changes([150, 250, 350], [2, 2, 2]))
    sync(tmp_path, batch_files=1)
    table, work = tmp_path / "Tables/t", Maintenance(str, 7, pace=Pace(compact_after=4, quiet=0.0))

    def vectors() -> int:
        snapshot = read_snapshot(table)
        assert snapshot is not None
        return sum("deletionVector" in add for add in snapshot.files.values())

    assert vectors() == 3
    monkeypatch.setattr(compaction, "MOST_IN_PIECE", max(path.stat().st_size for path in table.glob("part-*")))
    before = rows(table)
    assert step(work, table) and vectors() == 2
    assert commits_since_compaction(str(table), 4) == 4, "some is left"
    work.pace = replace(work.pace, quiet=3600.0)
    assert step(work, table) and vectors() == 1, "our own commit is no sign of life"
    assert step(work, table) and vectors() == 0 and commits_since_compaction(str(table)) == 0
    assert not step(work, table) and rows(table) == before


def test_all_vectors_go_once_a_day_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "LARGEST", 0)
    monkeypatch.setattr(compaction, "_SMALLEST_FILE", 2)
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": list(range(1000))})
    sync(tmp_path)
    table, work = tmp_path / "Tables/t", Maintenance(str, 7, pace=Pace(compact_after=1, quiet=0.0))

    def vector_after(number: int, ids: list[int]) -> bool:
        put(tmp_path, "t", number, changes(ids, [2] * len(ids)))
        sync(tmp_path)
        assert step(work, table)
        snapshot = read_snapshot(table)
        assert snapshot is not None
        return any("deletionVector" in add for add in snapshot.files.values())

    assert not vector_after(2, [1]), "the first time"
    assert vector_after(3, [2]) and vector_after(4, list(range(5, 1000, 25))), "done lately"
    assert not vector_after(5, list(range(7, 1000, 25))), "more than a twentieth is deleted"
    assert vector_after(6, [3])
    work.pace = replace(work.pace, all_vectors_every=0.0)
    assert not vector_after(7, [4]), "a day later"


def test_a_full_disk_leaves_nothing_behind_and_is_not_tried_again_at_once(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, work = set(table.glob("*.parquet")), Maintenance(str, 7, pace=SOON)

    def full(*_: Any, **__: Any) -> Any:
        raise LakemirrorError("storage-unavailable", "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(direct_commit, "put_new", full)
        assert step(work, table) and set(table.glob("*.parquet")) == files
        assert not step(work, table)
    put(tmp_path, "t", 5, changes([60], [2]))
    sync(tmp_path)
    assert step(work, table)
    snapshot = read_snapshot(table)
    assert snapshot is not None and len(snapshot.files) == 1


def test_a_table_made_anew_is_another_one(table: Path) -> None:
    work = Maintenance(str, 7, pace=SOON)
    assert step(work, table) and not step(work, table)
    newest = max((table / "_delta_log").glob("*[0-9].json"))
    newest.write_bytes(b'{"commitInfo":null}\n')
    assert step(work, table), "the same version, and a commit that says nothing"
