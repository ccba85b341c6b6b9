"""What only a local table folder has: hard links, the lock, sweeping by age."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from pathlib import Path

import pytest
from published_contents import change_files

from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing
from lakemirror.publisher.local_folder import LocalFolder
from lakemirror.publisher.sequence import Sequence


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "Files/LandingZone/t"


def next_number(tmp_path: Path) -> int:
    published = Landing(tmp_path).table("t", ["id"]).insert([{"id": 1}])
    assert published is not None
    return published.number


def _write_many(db: Path, writer: int, count: int) -> None:
    table = Landing(db).table("t", ["id"])
    for number in range(count):
        table.insert([{"id": writer * 1000 + number}])


def test_without_hard_links(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", refuse)
    assert [next_number(tmp_path) for _ in range(3)] == [1, 2, 3]
    assert list(change_files(folder)) == [1, 2, 3]
    with pytest.raises(LakemirrorError, match="publish-conflict"):
        Landing(tmp_path).table("t").insert([{"id": 1}], number=2)
    assert not list(folder.glob("_publishing-*"))


def test_what_a_crashed_publisher_left_is_swept_after_a_day(tmp_path: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    old, young = folder / "_publishing-old.tmp", folder / "_publishing-young.tmp"
    state = folder / "_my_state"
    for path in (old, young, state):
        path.write_bytes(b"x")
    for path in (old, state):
        os.utime(path, (0, 0))
    next_number(tmp_path)
    assert (old.exists(), young.exists(), state.exists()) == (False, True, True)


def test_a_number_is_not_taken_again_by_a_writer_that_slept(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between counting and linking of one writer, others publish, and the engine moves and purges what it applied."""
    real = os.link
    slept = threading.Event()

    def link(source: Path, target: Path) -> None:
        if not slept.is_set():
            slept.set()
            other = threading.Thread(target=_write_many, args=(tmp_path, 1, 3), daemon=True)
            other.start()
            other.join(timeout=0.3)
            assert other.is_alive()  # it waits for the lock
        real(source, target)

    monkeypatch.setattr(os, "link", link)
    assert next_number(tmp_path) == 1
    deadline = time.monotonic() + 10
    while list(change_files(folder)) != [1, 2, 3, 4] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert list(change_files(folder)) == [1, 2, 3, 4]


def test_a_folder_dropped_while_a_writer_waits(tmp_path: Path, folder: Path) -> None:
    """The waiting writer's file belongs to the dropped table: it is refused and not published to the new one."""
    table = Landing(tmp_path).table("t", ["id"])
    table.insert([{"id": 1}])
    outcome: list[str] = []

    def write() -> None:
        try:
            table.insert([{"id": 2}])
        except LakemirrorError as error:
            outcome.append(error.code)

    with Sequence(LocalFolder(folder)).locked():
        writer = threading.Thread(target=write)
        writer.start()
        deadline = time.monotonic() + 10
        while not list(folder.glob("_publishing-*")) and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(0.1)
        shutil.rmtree(folder)
        folder.mkdir()
    writer.join(10)
    assert outcome == ["publish-conflict"]
    assert change_files(folder) == {}


def test_a_lock_of_a_folder_that_was_replaced_is_none(tmp_path: Path, folder: Path) -> None:
    """Whoever waited for the old folder's lock must then wait for the new one's."""
    folder.mkdir(parents=True)
    inside = threading.Event()

    def enter() -> None:
        with Sequence(LocalFolder(folder)).locked():
            inside.set()

    waiter = threading.Thread(target=enter, daemon=True)
    with Sequence(LocalFolder(folder)).locked():
        waiter.start()
        time.sleep(0.2)  # it waits
        shutil.rmtree(folder)
        folder.mkdir()
        new = Sequence(LocalFolder(folder)).locked()
        new.__enter__()
    assert not inside.wait(0.3)
    new.__exit__(None, None, None)
    assert inside.wait(10)
    waiter.join(10)


def test_a_folder_dropped_before_the_lock(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(LakemirrorError, match="publish-conflict"), Sequence(LocalFolder(folder)).locked():
        pass
