"""What inotify says of a database's folders, and where it is not asked."""

from __future__ import annotations

import errno
import sys
from pathlib import Path

import pytest

from lakemirror.storage import folder_watch
from lakemirror.storage.folder_watch import Changed, FolderWatch, NotWatched, not_watched, open_watch

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="inotify is Linux's")


def changes(watch: FolderWatch) -> Changed:
    return watch.wait(5.0, lambda: False)


def nothing(watch: FolderWatch) -> bool:
    return watch.wait(0.0, lambda: False) == Changed()


@pytest.fixture
def watch(tmp_path: Path) -> FolderWatch:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    return FolderWatch(tmp_path)


def test_files_that_come_go_or_are_written_name_their_folder(watch: FolderWatch, tmp_path: Path) -> None:
    assert watch.watch(["a", "b"]) == {"a", "b"}
    assert watch.watch(["a", "b"]) == set(), "each is watched once"
    (tmp_path / "a/1.tmp").write_bytes(b"1")
    assert changes(watch).folders == {"a"}
    nothing(watch)
    (tmp_path / "a/1.tmp").rename(tmp_path / "b/1")
    assert changes(watch).folders == {"a", "b"}
    (tmp_path / "b/1").unlink()
    assert changes(watch).folders == {"b"}
    assert nothing(watch)
    watch.close()


def test_a_folder_that_was_renamed_is_watched_again_by_its_new_name(watch: FolderWatch, tmp_path: Path) -> None:
    (tmp_path / "a/deep").mkdir()
    watch.watch(["", "a", "a/deep"])
    (tmp_path / "a").rename(tmp_path / "c")
    assert "" in changes(watch).folders
    assert watch.watch(["c", "c/deep"]) == {"c", "c/deep"}
    while not nothing(watch):
        continue
    (tmp_path / "c/deep/1").touch()
    assert changes(watch).folders == {"c/deep"}


def test_a_folder_that_was_made_again_is_watched_again(watch: FolderWatch, tmp_path: Path) -> None:
    watch.watch(["a"])
    (tmp_path / "a").rmdir()
    assert changes(watch).folders == {"a"}
    (tmp_path / "a").mkdir()
    assert watch.watch(["a"]) == {"a"}


def test_a_folder_that_is_gone_is_left_out_and_one_that_is_refused_is_said(
    watch: FolderWatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert watch.watch(["gone"]) == set() and not watch.refused
    monkeypatch.setattr(folder_watch.ctypes, "get_errno", lambda: 28)
    assert watch.watch(["gone"]) == set()
    assert "No space left" in watch.refused["gone"]
    assert "raise fs.inotify.max_user_watches" in watch.refused["gone"]
    watch.unwatch("gone")
    assert not watch.refused


def test_too_many_engines_for_the_system_name_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: Path) -> FolderWatch:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(folder_watch, "FolderWatch", refused)
    monkeypatch.setattr(folder_watch, "file_system_of", lambda _: "ext4")
    found = open_watch(tmp_path)
    assert isinstance(found, NotWatched) and found.is_limit
    assert "raise fs.inotify.max_user_instances" in found.reason


def test_a_wait_ends_when_it_is_over(watch: FolderWatch) -> None:
    assert watch.wait(3600.0, lambda: True) == Changed()


def test_a_queue_that_overflowed_says_so(watch: FolderWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    event = folder_watch._EVENT.pack(-1, folder_watch._OVERFLOW, 0, 0)
    monkeypatch.setattr(folder_watch.os, "read", lambda *_: event)
    assert watch._read() == Changed(lost=True)


def test_a_file_system_that_others_may_write_to_is_not_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_watch, "file_system_of", lambda _: "nfs4")
    found = not_watched(tmp_path)
    assert found is not None and "nfs4" in found.reason


def test_a_folder_that_is_left_says_nothing_more(watch: FolderWatch, tmp_path: Path) -> None:
    (tmp_path / "a/deep").mkdir()
    watch.watch(["a", "a/deep", "b"])
    watch.unwatch("a")
    while watch.wait(0.0, lambda: False) != Changed():
        continue
    (tmp_path / "a/deep/1").touch()
    (tmp_path / "a/1").touch()
    (tmp_path / "b/1").touch()
    assert changes(watch).folders == {"b"}
    assert watch.watch(["a", "a/deep"]) == {"a", "a/deep"}, "it can be watched again"
