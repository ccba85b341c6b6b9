"""Which number comes next, whatever the folder looks like, and that no two writers take the same."""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
import threading
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from published_contents import change_files, others, retire

from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing
from lakemirror.publisher.local_folder import LocalFolder
from lakemirror.publisher.sequence import Sequence

FORK = multiprocessing.get_context("fork")


def numbered(folder: Path, *numbers: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        (folder / f"{number:020d}.parquet").write_bytes(b"x")


def next_number(tmp_path: Path) -> int:
    published = Landing(tmp_path).table("t", ["id"]).insert([{"id": 1}])
    assert published is not None
    return published.number


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "Files/LandingZone/t"


def test_the_first_is_one(tmp_path: Path) -> None:
    assert next_number(tmp_path) == 1


def test_after_files_that_wait(tmp_path: Path, folder: Path) -> None:
    numbered(folder, 1, 2, 3)
    assert next_number(tmp_path) == 4


def test_after_a_gap_that_is_not_ours_to_close(tmp_path: Path, folder: Path) -> None:
    numbered(folder, 1, 2, 5)
    assert next_number(tmp_path) == 6


@pytest.mark.parametrize("resting", ["_ProcessedFiles", "_FilesReadyToDelete", "_QuarantinedFiles"])
def test_files_at_rest_count(tmp_path: Path, folder: Path, resting: str) -> None:
    numbered(folder, 1)
    numbered(folder / resting, 2, 7)
    assert next_number(tmp_path) == 8


def test_the_newest_that_stays_is_enough(tmp_path: Path, folder: Path) -> None:
    numbered(folder, 4711)
    assert next_number(tmp_path) == 4712


def test_names_that_are_no_change_files_do_not_count(tmp_path: Path, folder: Path) -> None:
    numbered(folder, 1)
    for name in ("00000000000000000009.parquet.tmp", "_00000000000000000009.parquet", "9.parquet", f"{9:020d}.csv"):
        (folder / name).write_bytes(b"x")
    numbered(folder / "_mine", 9)
    assert next_number(tmp_path) == 2


def test_a_repeated_file_at_rest_does_not_count(tmp_path: Path, folder: Path) -> None:
    numbered(folder, 2)
    numbered(folder / "_ProcessedFiles", 1)
    (folder / "_ProcessedFiles" / f"{1:020d}.parquet.2").write_bytes(b"x")
    assert next_number(tmp_path) == 3


def test_everything_gone_but_the_table_lives_on(tmp_path: Path, folder: Path) -> None:
    for expected in (1, 2, 3):
        assert next_number(tmp_path) == expected
    for path in change_files(folder).values():
        path.unlink()
    (folder / "_mirror.json").write_text("{}")  # the engine knows this folder, and has applied number 3
    assert next_number(tmp_path) == 4


def test_everything_gone_and_the_engine_never_saw_it(tmp_path: Path, folder: Path) -> None:
    for expected in (1, 2):
        assert next_number(tmp_path) == expected
    for path in change_files(folder).values():
        path.unlink()
    assert next_number(tmp_path) == 1


def test_a_bad_file_deleted_by_hand_leaves_its_number(tmp_path: Path, folder: Path) -> None:
    for expected in (1, 2, 3):
        assert next_number(tmp_path) == expected
    (folder / "_mirror.json").write_text("{}")
    (folder / f"{3:020d}.parquet").unlink()
    assert next_number(tmp_path) == 3


def test_another_extension(tmp_path: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "_metadata.json").write_text('{"keyColumns": ["id"], "fileFormat": "parquet", "fileExtension": "parq"}')
    assert next_number(tmp_path) == 1
    assert (folder / f"{1:020d}.parq").exists()


def test_without_hard_links(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", refuse)
    assert [next_number(tmp_path) for _ in range(3)] == [1, 2, 3]
    assert list(change_files(folder)) == [1, 2, 3]
    with pytest.raises(LakemirrorError, match="publish-conflict"):
        Landing(tmp_path).table("t").insert([{"id": 1}], number=2)
    assert not list(folder.glob("_publishing-*"))


def test_a_faster_writer_without_lock_is_counted_again(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Sequence.newest
    foreign = iter((True, True, False))

    def newest(self: Sequence) -> int:
        found = real(self)
        if next(foreign, False):
            numbered(folder, found + 1)  # between counting and linking
        return found

    monkeypatch.setattr(Sequence, "newest", newest)
    assert next_number(tmp_path) == 3
    assert (folder / f"{1:020d}.parquet").read_bytes() == b"x"


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


def _write_many(db: Path, writer: int, count: int) -> None:
    table = Landing(db).table("t", ["id"])
    for number in range(count):
        table.insert([{"id": writer * 1000 + number}])


def test_four_writers_race_while_the_engine_moves_files(tmp_path: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    writers = [FORK.Process(target=_write_many, args=(tmp_path, writer, 50)) for writer in range(4)]
    for process in writers:
        process.start()
    while any(process.is_alive() for process in writers):
        retire(folder)
        time.sleep(0.002)
    for process in writers:
        process.join()
        assert process.exitcode == 0
    files = change_files(folder)  # no number twice
    assert list(files) == list(range(1, 201))  # no gap
    ids = [row["id"] for path in files.values() for row in pq.read_table(path, partitioning=None).to_pylist()]
    assert sorted(ids) == [writer * 1000 + number for writer in range(4) for number in range(50)]
    for writer in range(4):  # and each writer's files in its own order
        mine = [id for id in ids if id // 1000 == writer]
        assert mine == sorted(mine)
    assert others(folder) == set()
    assert not list(folder.glob("_publishing-*"))


def test_threads_race_on_one_table(tmp_path: Path, folder: Path) -> None:
    threads = [threading.Thread(target=_write_many, args=(tmp_path, writer, 20)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(change_files(folder)) == list(range(1, 81))


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
