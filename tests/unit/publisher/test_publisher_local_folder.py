"""What only a local table folder has: hard links, the lock, sweeping by age."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.publisher.published_contents import change_files

from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing
from lakemirror.publisher.folders.local_folder import LocalFolder
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
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", refuse)
    assert [next_number(tmp_path) for _ in range(3)] == [1, 2, 3]
    assert list(change_files(folder)) == [1, 2, 3]
    with pytest.raises(LakemirrorError, match="publish-conflict"):
        Landing(tmp_path).table("t").insert([{"id": 1}], number=2)
    assert not list(folder.glob("_publishing-*"))


def test_a_link_that_was_made_although_the_answer_says_it_is_taken(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system that sends a request twice: the file has its number, and gets no second one."""
    link = os.link

    def twice(*given: Any, **named: Any) -> None:
        link(*given, **named)
        link(*given, **named)

    monkeypatch.setattr(os, "link", twice)
    assert [next_number(tmp_path) for _ in range(2)] == [1, 2]
    assert list(change_files(folder)) == [1, 2]


def test_what_a_crashed_publisher_left_is_swept_after_a_day(tmp_path: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    old, young = (folder / f"_publishing-{name * 32}.tmp" for name in "ab")
    state, notes = folder / "_my_state", folder / "_publishing-notes.txt"
    dropped = [folder.parent / f"_publishing-dropped-{name}" for name in ("c" * 32, "notes")]
    for path in dropped:
        path.mkdir()
    for path in (old, young, state, notes):
        path.write_bytes(b"x")
    for path in (old, state, notes):
        os.utime(path, (0, 0))
    next_number(tmp_path)
    assert (old.exists(), young.exists(), state.exists(), notes.exists()) == (False, True, True, True)
    assert [path.exists() for path in dropped] == [False, True]


def test_a_number_is_not_taken_again_by_a_writer_that_slept(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between counting and linking of one writer, others publish, and the engine moves and purges what it applied."""
    real = os.link
    slept = threading.Event()

    def link(source: Path, target: Path, **options: Any) -> None:
        if not slept.is_set():
            slept.set()
            other = threading.Thread(target=_write_many, args=(tmp_path, 1, 3), daemon=True)
            other.start()
            other.join(timeout=0.3)
            assert other.is_alive()  # it waits for the lock
        real(source, target, **options)

    monkeypatch.setattr(os, "link", link)
    assert next_number(tmp_path) == 1
    deadline = time.monotonic() + 60
    while list(change_files(folder)) != [1, 2, 3, 4] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert list(change_files(folder)) == [1, 2, 3, 4]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once another thread has the lock file open and asks for the lock: it touches nothing until it has that."""
    fcntl = pytest.importorskip("fcntl")
    event, this, real = threading.Event(), threading.get_ident(), fcntl.flock

    def flock(handle: int, operation: int) -> None:
        if threading.get_ident() != this:
            event.set()
        real(handle, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    return event


def test_a_folder_dropped_while_a_writer_waits(tmp_path: Path, folder: Path, asked: threading.Event) -> None:
    """The waiting writer's file belongs to the dropped table: it is refused and not published to the new one."""
    table = Landing(tmp_path).table("t", ["id"])
    table.insert([{"id": 1}])
    outcome: list[str] = []

    def write() -> None:
        try:
            table.insert([{"id": 2}])
        except LakemirrorError as error:
            outcome.append(error.code)

    writer = threading.Thread(target=write, daemon=True)
    with Sequence(LocalFolder(folder)).locked():
        writer.start()
        assert asked.wait(60)
        shutil.rmtree(folder)
        folder.mkdir()
    writer.join(60)
    assert outcome == ["publish-conflict"]
    assert change_files(folder) == {}


def test_a_lock_of_a_folder_that_was_replaced_is_none(folder: Path, asked: threading.Event) -> None:
    """Whoever waited for the old folder's lock must then wait for the new one's."""
    folder.mkdir(parents=True)
    inside = threading.Event()

    def enter() -> None:
        with Sequence(LocalFolder(folder)).locked():
            inside.set()

    waiter = threading.Thread(target=enter, daemon=True)
    with Sequence(LocalFolder(folder)).locked():
        waiter.start()
        assert asked.wait(60)
        shutil.rmtree(folder)
        folder.mkdir()
        new = Sequence(LocalFolder(folder)).locked()
        new.__enter__()
        asked.clear()
    assert asked.wait(60)  # for the new one's
    assert not inside.is_set()
    new.__exit__(None, None, None)
    assert inside.wait(60)
    waiter.join(60)


def test_a_folder_dropped_before_the_lock(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(LakemirrorError, match="publish-conflict"), Sequence(LocalFolder(folder)).locked():
        pass
