"""Which number comes next, whatever the folder looks like, and that no two writers take the same."""

from __future__ import annotations

import multiprocessing
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from published_contents import change_files, others, retire

from lakemirror.publisher import Landing
from lakemirror.publisher.sequence import Sequence

pytestmark = pytest.mark.usefixtures("door")

FORK = multiprocessing.get_context("fork")


def numbered(folder: Path, *numbers: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        pq.write_table(pa.table({"id": [1]}), folder / f"{number:020d}.parquet")


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
    assert pq.read_schema(folder / f"{1:020d}.parquet").names == ["id"]  # without a marker: the other's file


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
