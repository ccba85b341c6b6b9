"""What becomes of applied files (contract section 8)."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from folders import ORDERS, file_name, sequence, storage_with, write

from lakemirror.landing_zone import archive
from lakemirror.landing_zone.archive import purge
from lakemirror.landing_zone.change_file import AppliedFiles, TableFiles
from lakemirror.landing_zone.metadata import TableMetadata
from lakemirror.landing_zone.pending import already_applied
from lakemirror.landing_zone.zone import LANDING_ZONE, TableFolder, scan
from lakemirror.storage import Entry, LocalStorage

DAY = 86400.0
METADATA = TableMetadata()


def orders(storage: LocalStorage) -> TableFolder:
    return scan(storage).tables[ORDERS]


def lies(storage: LocalStorage) -> list[str]:
    """Every file of the orders folder, relative to it."""
    root = storage.root / ORDERS.folder
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def paths(*numbers: int) -> list[str]:
    return [f"{ORDERS.folder}/{file_name(n)}" for n in numbers]


def database(root: Path, *numbers: int) -> LocalStorage:
    return storage_with(root, *(f"orders/{file_name(n)}" for n in numbers))


def retire(storage: LocalStorage, folder: TableFolder, metadata: TableMetadata, applied: AppliedFiles) -> list[str]:
    """What was moved; each file is where `archive.retire` says that it is now."""
    moved = archive.archive(storage, TableFiles(folder, metadata), applied)
    assert all(storage.exists(target) and "/_ProcessedFiles/" in target for _, target in moved)
    return [source for source, _ in moved]


def test_applied_files_move_but_the_newest(tmp_path: Path) -> None:
    storage = database(tmp_path, 1, 2, 3, 4)
    assert retire(storage, orders(storage), METADATA, sequence(3)) == paths(1, 2)
    assert lies(storage) == [file_name(3), file_name(4), *(f"_ProcessedFiles/{file_name(n)}" for n in (1, 2))]


def test_the_move_sets_the_clock(tmp_path: Path) -> None:
    storage = database(tmp_path, 1, 2)
    os.utime(tmp_path / paths(1)[0], (1000, 1000))
    before = time.time()
    retire(storage, orders(storage), METADATA, sequence(2))
    assert orders(storage).processed[0].modified / 1e9 >= before - 0.1


def test_the_newest_keeps_its_time_and_content(tmp_path: Path) -> None:
    storage = database(tmp_path, 1, 2)
    before = {e.path: e.etag for e in orders(storage).files}
    retire(storage, orders(storage), METADATA, sequence(2))
    assert [(e.path, e.etag) for e in orders(storage).files] == [(paths(2)[0], before[paths(2)[0]])]


def test_a_second_retire_finds_nothing(tmp_path: Path) -> None:
    storage = database(tmp_path, 1, 2, 3)
    assert retire(storage, orders(storage), METADATA, sequence(3))
    assert retire(storage, orders(storage), METADATA, sequence(3)) == []


def test_nothing_that_is_not_applied_is_touched(tmp_path: Path) -> None:
    storage = database(tmp_path, 1, 2, 3)
    for path in (
        "1.parquet",
        file_name(1, "csv"),
        file_name(1, "parquet.tmp"),
        "_state.pkl",
        "_Temp/x",
        "day=1/" + file_name(1),
    ):
        write(tmp_path, f"orders/{path}", b"x")
    before = lies(storage)
    assert retire(storage, orders(storage), METADATA, sequence(0)) == []
    assert retire(storage, orders(storage), METADATA, sequence(1)) == []
    assert lies(storage) == before
    assert retire(storage, orders(storage), METADATA, sequence(2)) == paths(1)


def test_a_number_published_again_never_replaces_the_first(tmp_path: Path) -> None:
    storage = database(tmp_path, 1, 2, 3)
    retire(storage, orders(storage), METADATA, sequence(3))
    for content in (b"again", b"and again"):
        write(tmp_path, f"orders/{file_name(1)}", content)
        assert retire(storage, orders(storage), METADATA, sequence(3)) == paths(1)
    aside = tmp_path / ORDERS.folder / "_ProcessedFiles"
    assert (aside / file_name(1)).read_bytes()[:4] == b"PAR1"
    assert (aside / f"{file_name(1)}.1").read_bytes() == b"again"
    assert (aside / f"{file_name(1)}.2").read_bytes() == b"and again"
    found = already_applied(TableFiles(orders(storage), METADATA), sequence(3), {})
    assert [w.code for w in found] == ["already-applied", "already-applied"]


def test_a_file_that_is_gone_is_no_error(tmp_path: Path) -> None:
    storage = database(tmp_path, 1, 2, 3)
    seen = orders(storage)
    (tmp_path / paths(1)[0]).unlink()
    assert retire(storage, seen, METADATA, sequence(3)) == paths(2)


def test_a_deleted_folder_does_not_come_back(tmp_path: Path) -> None:
    storage = database(tmp_path, 1, 2, 3)
    seen = orders(storage)
    shutil.rmtree(tmp_path / ORDERS.folder)
    assert retire(storage, seen, METADATA, sequence(3)) == []
    assert not (tmp_path / ORDERS.folder).exists()
    assert (tmp_path / LANDING_ZONE).is_dir()


def test_a_move_between_other_folders_makes_them(tmp_path: Path) -> None:
    storage = database(tmp_path, 1)
    storage.move(ORDERS.folder, "Files/_DroppedTables/a/orders")
    assert (tmp_path / "Files/_DroppedTables/a/orders" / file_name(1)).is_file()


def test_a_move_that_fails_is_repeated_later(tmp_path: Path) -> None:
    class Failing(LocalStorage):
        fails = True

        def move_listed(self, entry: Entry, target: str) -> bool:
            if self.fails and entry.path == paths(1)[0]:
                raise PermissionError(13, "Permission denied")
            return super().move_listed(entry, target)

    database(tmp_path, 1, 2, 3)
    storage = Failing(tmp_path)
    assert retire(storage, orders(storage), METADATA, sequence(3)) == paths(2)
    storage.fails = False
    assert retire(storage, orders(storage), METADATA, sequence(3)) == paths(1)
    assert already_applied(TableFiles(orders(storage), METADATA), sequence(3), {}) == []


def test_a_file_whose_time_cannot_be_set_moves_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    storage = database(tmp_path, 1, 2)
    monkeypatch.setattr(os, "utime", refuse)
    assert retire(storage, orders(storage), METADATA, sequence(2)) == paths(1)


def test_purge_deletes_what_has_rested_long_enough(tmp_path: Path) -> None:
    storage = database(tmp_path, 1, 2, 3)
    retire(storage, orders(storage), METADATA, sequence(3))
    moved = orders(storage).processed[0].modified / 1e9
    assert purge(storage, orders(storage), 7, moved + 6.9 * DAY) == 0
    old = tmp_path / ORDERS.folder / "_ProcessedFiles" / file_name(1)
    os.utime(old, (moved - DAY, moved - DAY))
    assert purge(storage, orders(storage), 7, moved + 6.9 * DAY) == 1
    assert lies(storage) == [file_name(3), f"_ProcessedFiles/{file_name(2)}"]


def test_purge_takes_fractions_of_days(tmp_path: Path) -> None:
    storage = database(tmp_path, 1, 2)
    retire(storage, orders(storage), METADATA, sequence(2))
    moved = orders(storage).processed[0].modified / 1e9
    assert purge(storage, orders(storage), 0.5, moved + 0.4 * DAY) == 0
    assert purge(storage, orders(storage), 0.5, moved + 0.6 * DAY) == 1


def test_purge_touches_nothing_else(tmp_path: Path) -> None:
    storage = database(tmp_path, 1)
    write(tmp_path, "orders/_state.pkl", b"x")
    write(tmp_path, "orders/_ProcessedFiles/_state.pkl", b"x")
    write(tmp_path, f"orders/_ProcessedFiles/day=1/{file_name(1)}", b"x")
    assert purge(storage, orders(storage), 0, time.time() + DAY) == 1
    assert lies(storage) == [file_name(1), "_ProcessedFiles/_state.pkl", "_state.pkl"]


def test_purge_goes_on_where_one_file_cannot_be_deleted(tmp_path: Path) -> None:
    class Failing(LocalStorage):
        def delete(self, path: str) -> None:
            if path.endswith(file_name(1)):
                raise PermissionError(13, "Permission denied")
            super().delete(path)

    database(tmp_path, 1, 2, 3)
    storage = Failing(tmp_path)
    retire(storage, orders(storage), METADATA, sequence(3))
    assert purge(storage, orders(storage), 0, time.time() + DAY) == 1


def test_publishers_may_delete_the_processed_files(tmp_path: Path) -> None:
    storage = database(tmp_path, 1, 2, 3)
    retire(storage, orders(storage), METADATA, sequence(3))
    seen = orders(storage)
    shutil.rmtree(tmp_path / ORDERS.folder / "_ProcessedFiles")
    purge(storage, seen, 0, time.time() + DAY)
    assert lies(storage) == [file_name(3)]
    write(tmp_path, f"orders/{file_name(4)}", b"x")
    assert retire(storage, orders(storage), METADATA, sequence(4)) == paths(3)
