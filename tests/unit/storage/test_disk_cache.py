"""The cache folder for what stores gave: what is put is found, damage is not, and it stays within its bound."""

from __future__ import annotations

import os
import time
from pathlib import Path

from lakemirror.storage.disk_cache import DiskCache
from lakemirror.storage.object_cache import ObjectCache
from lakemirror.storage.storage import Entry

COMMIT = f"shop/Tables/orders/_delta_log/{7:020}.json"
DATA = "shop/Tables/orders/part-00000-a-c000.snappy.parquet"


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_another_process_finds_what_was_put(tmp_path: Path) -> None:
    DiskCache(tmp_path, 1 << 20).put("name", b"content")
    again = DiskCache(tmp_path, 1 << 20)
    assert again.get("name") == b"content" and again.get("another") is None
    again.drop("name")
    assert again.get("name") is None


def test_a_damaged_entry_is_deleted_and_not_given(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 1 << 20)
    for damage in (lambda held: held[:-1], lambda held: held[:-1] + b"!", lambda held: b""):
        cache.put("name", b"content")
        (path,) = files(tmp_path)
        path.write_bytes(damage(path.read_bytes()))
        assert cache.get("name") is None
        assert files(tmp_path) == []


def test_an_entry_under_the_name_of_another_is_not_given(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 1 << 20)
    cache.put("one", b"of one")
    (one,) = files(tmp_path)
    cache.put("two", b"of two")
    (two,) = set(files(tmp_path)) - {one}
    one.replace(two)
    assert cache.get("two") is None


def test_what_was_used_longest_ago_makes_room(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 10_000)
    for number in range(9):
        cache.put(str(number), bytes(1000))
        path = max(files(tmp_path), key=lambda each: each.stat().st_mtime_ns)
        os.utime(path, (time.time() - 100_000 + number,) * 2)
    assert cache.get("0") is not None  # its time of use is now
    for number in range(9, 12):
        cache.put(str(number), bytes(1000))
    assert sum(path.stat().st_size for path in files(tmp_path)) <= 10_000
    assert cache.get("0") is not None and cache.get("1") is None and cache.get("11") is not None


def test_what_somebody_else_keeps_in_the_folder_stays(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "stores", tmp_path / "elsewhere"
    cache = DiskCache(folder, 10_000)
    for number in range(9):
        cache.put(str(number), bytes(1000))
    (entry, *_) = entries = files(folder)
    foreign = [
        folder / "sales/orders.parquet",
        folder / "ab/notes.txt",
        folder / "ab" / ("c" * 30),  # the name of an entry, and other content
        folder / "ab/inner" / entry.name,
        folder / "xy" / entry.name,  # no part of the cache
        elsewhere / entry.name,
    ]
    for path in foreign:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(entry.read_bytes() if path.name == entry.name else b"somebody's")
    (folder / "00").mkdir(exist_ok=True)
    (folder / "00" / ("d" * 30)).symlink_to(elsewhere / entry.name)
    if not (folder / "ff").exists():
        (folder / "ff").symlink_to(elsewhere)
    for path in [*entries, *foreign]:
        os.utime(path, (1, 1))
    DiskCache(folder, 800).put("new", b"")
    assert not any(path.exists() for path in entries)
    assert all(path.exists() for path in foreign)
    assert (folder / "00" / ("d" * 30)).is_symlink()


def test_a_file_in_the_place_of_an_entry_stays(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 1 << 20)
    cache.put("name", b"content")
    (path,) = files(tmp_path)
    path.write_bytes(b"somebody's")
    assert cache.get("name") is None
    cache.drop("name")
    cache.put("name", b"content")
    assert path.read_bytes() == b"somebody's"


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = DiskCache(tmp_path / "file" / "below", 1 << 20)
    cache.put("name", b"content")
    assert cache.get("name") is None


def test_commits_and_footers_outlive_the_process_and_change_files_do_not(tmp_path: Path) -> None:
    change = "shop/Files/LandingZone/orders/00000000000000000001.parquet"
    before = ObjectCache("s3://lake", DiskCache(tmp_path, 1 << 20))
    before.keep(COMMIT, "a", b"commit")
    before.keep(change, "b", b"rows")
    before.keep("shop/Files/Monitoring/tables.json", "c", b"{}", lasting=False)
    before.keep_end(DATA, "d", b"footer")
    before.see(Entry(DATA, 1000, 5, "d"))
    assert before.content(change, "b") == b"rows"
    after = ObjectCache("s3://lake", DiskCache(tmp_path, 1 << 20))
    assert after.content(COMMIT, "a") == b"commit" and after.content(COMMIT, "another") is None
    assert after.content(change, "b") is None and after.content("shop/Files/Monitoring/tables.json", "c") is None
    assert after.end(DATA, "d") == b"footer" and after.content(DATA, "d") is None
    assert after.seen(DATA) == Entry(DATA, 1000, 5, "d")
    assert ObjectCache("s3://another", DiskCache(tmp_path, 1 << 20)).content(COMMIT, "a") is None


def test_a_file_that_is_deleted_is_not_seen_by_another_process(tmp_path: Path) -> None:
    cache = ObjectCache("s3://lake", DiskCache(tmp_path, 1 << 20))
    cache.see(Entry(DATA, 1000, 5, "d"))
    cache.forget([DATA])
    assert cache.seen(DATA) is None
    assert ObjectCache("s3://lake", DiskCache(tmp_path, 1 << 20)).seen(DATA) is None
