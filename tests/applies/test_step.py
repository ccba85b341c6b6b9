"""A step rests on the version of its view: any other commit, and another table in its place, is a conflict."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.landing import declare, folder, put
from tests.table_rows import read_table

from lakemirror import MirroredDatabase, failpoints
from lakemirror.engines.local_engine import LocalEngine
from lakemirror.errors import Rejected
from lakemirror.landing_zone.change_file import ChangeFile
from lakemirror.landing_zone.pending import Pending
from lakemirror.landing_zone.zone import TableName, scan
from lakemirror.maintenance import compaction
from lakemirror.mirror import apply
from lakemirror.mirror.apply import Applied
from lakemirror.mirror.observe import View
from lakemirror.mirror.step import Conflict, Replicator
from lakemirror.mirror.table_log import LogCache
from lakemirror.settings.settings import Settings
from lakemirror.storage import Entry, LocalStorage

NAME = TableName("", "t")


def database(tmp_path: Path, files: int = 1) -> tuple[Path, Replicator]:
    """A table of so many commits, and its replicator, with one more file to apply."""
    declare(tmp_path, "t", ["id"])
    for number in range(1, files + 1):
        put(tmp_path, "t", number, {"id": [number]})
        MirroredDatabase(tmp_path, maintenance=False).sync()
    put(tmp_path, "t", files + 1, {"id": [files + 1]})
    return tmp_path / "Tables/t", Replicator(LocalStorage(tmp_path), NAME, Settings())


def step(replicator: Replicator, view: Any) -> Any:
    return replicator.step(view, lambda _: LocalEngine())


def test_the_log_is_the_same_although_it_is_listed_again(tmp_path: Path) -> None:
    table, _ = database(tmp_path)
    cache = LogCache(str(table), 0.0)
    log = cache.read()
    cache.forget()
    assert cache.read() is not log
    assert cache.ends_as(log, 0) and not cache.ends_as(log, 1) and not cache.ends_as(None, -1)


@pytest.mark.parametrize("is_listed", [False, True])
def test_a_table_made_again_with_as_many_versions_is_another(tmp_path: Path, is_listed: bool) -> None:
    table, replicator = database(tmp_path)
    view = replicator.observe(scan(LocalStorage(tmp_path)).tables[NAME])
    shutil.copytree(table, tmp_path / "again")
    shutil.rmtree(table)
    (tmp_path / "again").rename(table)
    if is_listed:
        replicator._log.forget()
    before = sorted(path.name for path in table.rglob("*"))
    _, done = step(replicator, view)
    assert isinstance(done, Conflict) and done.error.code == "concurrent-commit"
    assert sorted(path.name for path in table.rglob("*")) == before


def test_a_commit_that_changes_no_data_is_a_conflict_once(tmp_path: Path) -> None:
    table, replicator = database(tmp_path, files=3)
    folder = scan(LocalStorage(tmp_path)).tables[NAME]
    view = replicator.observe(folder)
    compaction.merge_when_idle(str(table), all_vectors=True)
    assert isinstance(step(replicator, view)[1], Conflict)
    left, done = step(replicator, replicator.observe(folder))
    assert isinstance(done, Applied) and not left.has_work and left.position == 4


def test_views_of_batches_follow_one_another(tmp_path: Path) -> None:
    database(tmp_path)
    for number in (3, 4):
        put(tmp_path, "t", number, {"id": [number]})
    replicator = Replicator(LocalStorage(tmp_path), NAME, Settings(batch_bytes=1))
    view = replicator.observe(scan(LocalStorage(tmp_path)).tables[NAME])
    positions = []
    while view.has_work:
        view, done = step(replicator, view)
        assert isinstance(done, Applied)
        positions.append((view.position, done.version))
    assert positions == [(2, 1), (3, 2), (4, 3)]


def test_files_end_before_the_rejected_one() -> None:
    files = tuple(ChangeFile(Entry(f"t/{number}", 1, number * 10), number, None) for number in (1, 2, 3))
    rejected = Rejected("value-invalid", "m", "t/2")
    left = Pending(files, behind=1, behind_since=40).until(rejected)
    assert (left.files, left.behind, left.behind_since, left.rejected) == (files[:1], 3, 20, rejected)
    with pytest.raises(ValueError, match="not in list"):
        Pending(files).until(Rejected("value-invalid", "m", "another"))


def test_what_a_look_has_found_is_shown_beside_its_error(tmp_path: Path) -> None:
    """The id, and the warning of what the same look has done: no later look gives it."""
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1], "name": ["a"]})
    MirroredDatabase(tmp_path).sync()
    (before,) = MirroredDatabase(tmp_path).status().tables
    declare(tmp_path, "t", ["name"])
    (folder(tmp_path, "t") / "_mirror.json").unlink()
    MirroredDatabase(tmp_path).sync()
    (after,) = MirroredDatabase(tmp_path).status().tables
    assert after.error_code == "key-columns-changed"
    assert after.id == before.id
    assert [warned.code for warned in after.warnings] == ["marker-lost"]


def test_an_apply_counts_although_the_log_cannot_be_read_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database(tmp_path)
    put(tmp_path, "t", 3, {"id": [3]})
    replicator = Replicator(LocalStorage(tmp_path), NAME, Settings(batch_bytes=1))
    files = scan(LocalStorage(tmp_path)).tables[NAME]
    view = replicator.observe(files)
    true = apply.delta.commit

    def commit(*given: Any, **more: Any) -> int:
        version = true(*given, **more)
        monkeypatch.setattr(LogCache, "read", lambda _: (_ for _ in ()).throw(OSError(5, "Input/output error")))
        return version

    monkeypatch.setattr(apply.delta, "commit", commit)
    left, done = step(replicator, view)
    assert isinstance(done, Applied) and left.position == 2
    monkeypatch.undo()
    assert isinstance(step(replicator, left)[1], Conflict)
    assert isinstance(step(replicator, replicator.observe(files))[1], Applied)


@pytest.mark.parametrize("moment", ["archive.before-move", "archive.between-moves"])
def test_a_resync_ends_an_archiving_that_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The files are not applied any more: the table would wait for one that was moved aside."""
    declare(tmp_path, "t", ["id"])
    for number in range(1, 6):
        put(tmp_path, "t", number, {"id": [number]})
    done = []

    def reach(name: str) -> None:
        if name == moment and not done:
            done.append(name)
            MirroredDatabase(tmp_path).resync("t")

    with monkeypatch.context() as acts:
        acts.setattr(failpoints, "reach", reach)
        MirroredDatabase(tmp_path).sync()
    MirroredDatabase(tmp_path).sync()
    (table,) = MirroredDatabase(tmp_path).status().tables
    assert done and (table.position, table.waiting_for) == (5, None)


def test_a_resync_between_a_commit_and_its_archive_keeps_the_files_that_it_brought_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder's marker is compared with the listed one, and read again only where it differs."""
    declare(tmp_path, "t", ["id"])
    for number in (1, 2):
        put(tmp_path, "t", number, {"id": [number]})
        MirroredDatabase(tmp_path, settle=0.0).sync()
    put(tmp_path, "t", 3, {"id": [3]})
    archive, moved = Replicator.archive, []

    def after_a_resync(self: Replicator, view: View) -> int:
        if not moved:
            MirroredDatabase(tmp_path).resync("t")
            moved.append(archive(self, view))
        return 0

    with monkeypatch.context() as patch:
        patch.setattr(Replicator, "archive", after_a_resync)
        MirroredDatabase(tmp_path, settle=0.0).sync()
    assert moved == [0]
    MirroredDatabase(tmp_path, settle=0.0).sync()
    assert sorted(read_table(tmp_path / "Tables/t")["id"].to_pylist()) == [1, 2, 3]
