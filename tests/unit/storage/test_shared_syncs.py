"""Syncs of files and folders: each once, by threads that all tables share."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from lakemirror.errors import LakemirrorError
from lakemirror.storage import durable


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What was synced, with the thread that did it."""
    found: list[tuple[str, str]] = []
    true = durable._sync

    def noted(path: str) -> None:
        found.append((Path(path).name, threading.current_thread().name))
        true(path)

    monkeypatch.setattr(durable, "_sync", noted)
    return found


def test_every_file_and_folder_is_synced_once(tmp_path: Path, synced: list[tuple[str, str]]) -> None:
    files = [tmp_path / "a/1", tmp_path / "a/2", tmp_path / "b/3"]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        file.touch()
    durable.sync_files([*files, files[0]], tmp_path)
    assert sorted(name for name, _ in synced) == sorted(["1", "2", "3", "a", "b", tmp_path.name])


def test_many_tables_share_the_threads(tmp_path: Path, synced: list[tuple[str, str]]) -> None:
    for table in range(10):
        files = [tmp_path / f"{table}-{number}" for number in range(8)]
        for file in files:
            file.touch()
        durable.sync_each(files)
    assert len(synced) == 80
    assert len({thread for _, thread in synced if thread.startswith("sync")}) <= durable._AT_ONCE


def test_one_that_is_gone_is_said_after_the_others_are_synced(tmp_path: Path, synced: list[tuple[str, str]]) -> None:
    (tmp_path / "there").touch()
    with pytest.raises(FileNotFoundError):
        durable.sync_each([tmp_path / "gone", tmp_path / "there"])
    with pytest.raises(FileNotFoundError):
        durable.sync_each([tmp_path / "there", tmp_path / "gone"])
    assert [name for name, _ in synced].count("there") == 2
    durable.sync_each([])


def test_a_failing_disk_is_storage_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "b").touch()

    def fails(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(durable.os, "fsync", fails)
    with pytest.raises(LakemirrorError, match="Input/output error"):
        durable.sync_each([tmp_path / "a", tmp_path / "b"])
