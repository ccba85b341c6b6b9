"""A full, read-only or failing store in the middle of every step: the table waits, and goes on by itself."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.applies.test_applies import changes, no_spark, rows, sync
from tests.applies.test_power_cut import expected, publish
from tests.landing import declare, put
from tests.rounds import rounds

from lakemirror import MirroredDatabase
from lakemirror.maintenance.compaction import merge_when_idle

__all__ = ["no_spark"]

CALLS = ("fsync", "link", "replace", "mkdir")


class Failing:
    """Makes the `at`-th call that changes something below `Tables` fail."""

    def __init__(self, patch: pytest.MonkeyPatch, at: int, number: int) -> None:
        self.count, self.at, self.number = 0, at, number
        for name in CALLS:
            patch.setattr(os, name, self._failing(getattr(os, name)))
        patch.setattr(pq.ParquetWriter, "write_table", self._failing(pq.ParquetWriter.write_table))
        patch.setattr(Path, "write_bytes", self._failing(Path.write_bytes))

    def _failing(self, true: Any) -> Any:
        def act(*given: Any, **named: Any) -> Any:
            if "Monitoring" not in str(given) and "_lakemirror-" not in str(given):
                self.count += 1
                if self.count == self.at:
                    raise OSError(self.number, os.strerror(self.number), "the disk")
            return true(*given, **named)

        return act


FULL = pytest.mark.full


@pytest.fixture(autouse=True)
def no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for the disk proves nothing here."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.mark.parametrize(
    "number", [errno.ENOSPC, pytest.param(errno.EROFS, marks=FULL), pytest.param(errno.EIO, marks=FULL)]
)
def test_at_every_call_of_an_apply(tmp_path: Path, number: int) -> None:
    """It fails once: the same pass tries again, or the next one goes on."""
    done, failed = False, 0
    for at in range(1, 90, rounds(5, 3)):  # each third call; by `make test` each fifth
        database = tmp_path / str(at)
        declare(database, "t", ["id"])
        publish(database, 1, 2)
        with pytest.MonkeyPatch.context() as patch:
            failing = Failing(patch, at, number)
            result = MirroredDatabase(database, batch_files=1, maintenance=False).sync()
            done = failing.count < at
            failed += not done
        for error in result.failed.values():
            assert error.code == "storage-unavailable", (at, error)
            assert os.strerror(number) in str(error), (at, error)
        sync(database, maintenance=False)
        assert rows(database / "Tables/t") == expected(2), at
        sync(database, maintenance=False)
        assert len(list((database / "Files/LandingZone/t").glob("*.parquet"))) == 1, (at, "set aside later")
        if done:
            break
    assert done and failed > 5


@pytest.mark.parametrize("number", [pytest.param(errno.ENOSPC, marks=FULL), errno.EIO])
def test_at_every_call_of_a_compaction(tmp_path: Path, number: int) -> None:
    done = False
    for at in range(1, 30):
        database = tmp_path / str(at)
        declare(database, "t", ["id"])
        publish(database, 1, 4)
        sync(database, batch_files=1, maintenance=False)
        with pytest.MonkeyPatch.context() as patch:
            failing = Failing(patch, at, number)
            merge_when_idle(str(database / "Tables/t"), all_vectors=True)
            done = failing.count < at
        assert rows(database / "Tables/t") == expected(4), at
        merge_when_idle(str(database / "Tables/t"), all_vectors=True)
        assert rows(database / "Tables/t") == expected(4), at
        if done:
            break
    assert done


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a megabyte."""
    place = tmp_path / "small"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(place)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("this user may not mount file systems")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=False)


def test_a_disk_that_is_really_full(small_disk: Path, tmp_path: Path) -> None:
    declare(small_disk, "t", ["id"])
    publish(small_disk, 1, 2)
    sync(small_disk)
    publish(small_disk, 3, 4)
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError as error:
            assert error.errno == errno.ENOSPC
    for _ in range(2):
        (error,) = MirroredDatabase(small_disk).sync().failed.values()
        assert error.code == "storage-unavailable" and "No space left" in str(error)
    assert rows(small_disk / "Tables/t") == expected(2)
    filler.unlink()
    sync(small_disk)
    assert rows(small_disk / "Tables/t") == expected(4)
    put(small_disk, "t", 5, changes([1000], [0]))
    sync(small_disk)
