"""One suite for every storage: each verb and each capability does on a disk what it does in a bucket."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.databases import Database

from lakemirror.errors import LakemirrorError
from lakemirror.storage.durable import (
    abandoned,
    begin_folder,
    completed,
    copy,
    created,
    is_same,
    keep_young,
    make_folders,
    opened_new,
    put_new,
    put_over,
    put_table,
    read_together,
    remove_file,
    remove_unchanged,
    size_so_far,
    status_of_new,
    sync,
    sync_each,
    sync_files,
)
from lakemirror.storage.folder_watch import NotWatched
from lakemirror.storage.place import (
    Place,
    capabilities_of,
    end_of,
    etag_of,
    files_below,
    folders_in,
    local_path,
    names_in,
    opened,
    place,
    relative_to,
    storage_of,
    written_here,
)
from lakemirror.storage.storage import Storage

ROWS = pa.table({"id": list(range(1000))})


@pytest.fixture
def storage(database: Database) -> Storage:
    found = database.storage
    found.write("Files/begun.txt", b"")
    return found


@pytest.fixture
def table(storage: Storage) -> Place:
    """The folder of a table with the file `_delta_log/0`."""
    folder = place(storage.uri("Tables/orders"))
    begin_folder(folder / "_delta_log", "0", b"zero")
    put_over(folder / "_delta_log/0", b"zero", durable=True)
    return folder


def refused(act: Callable[[], object]) -> str:
    with pytest.raises((LakemirrorError, OSError)) as raised:
        act()
    return raised.value.code if isinstance(raised.value, LakemirrorError) else type(raised.value).__name__


def test_both_interfaces_name_the_same_capabilities(storage: Storage) -> None:
    assert capabilities_of(storage.uri()) == capabilities_of(place(storage.uri())) == storage.capabilities
    assert (local_path(storage.uri()) is None) == storage.capabilities.waits
    assert storage_of(storage.uri("Tables")).capabilities == storage.capabilities


def test_a_rewrite_replaces_a_file_and_makes_none(storage: Storage) -> None:
    storage.write("Files/status.json", b"one")
    assert storage.rewrite("Files/status.json", b"two")
    assert storage.read("Files/status.json") == b"two"
    storage_of(storage.uri()).write("Files/status.json", b"three")
    assert not storage.rewrite("Files/other.json", b"never written before")
    storage.delete("Files/status.json")
    assert not storage.rewrite("Files/status.json", b"four")
    assert storage.stat("Files/status.json") is None


def test_a_folder_has_a_time_where_it_is_promised(storage: Storage) -> None:
    assert (storage.stat("Files") is not None) == storage.capabilities.folder_times


def test_a_listed_file_is_read_as_listed_where_it_is_promised(storage: Storage) -> None:
    storage.write("Files/change", b"first")
    entry = next(entry for entry in storage.list("Files").files if entry.name == "change")
    storage_of(storage.uri()).write("Files/change", b"second")

    try:
        with storage.open("Files/change", entry) as file:
            content = file.read()
    except FileNotFoundError:
        content = b"first"
    assert content == (b"first" if storage.capabilities.reads_listed else b"second")


def test_times_are_no_coarser_than_is_said(storage: Storage) -> None:
    before = time.time()
    storage.write("Files/now", b"x")
    entry = next(entry for entry in storage.list("Files").files if entry.name == "now")
    assert before - storage.capabilities.time_step - 0.1 <= entry.modified / 1e9 <= time.time() + 0.1


def test_a_watch_or_the_reason_for_none(storage: Storage) -> None:
    found = storage.watchable()
    if storage.capabilities.waits:
        assert isinstance(found, NotWatched) and found.reason and not found.is_limit
    else:
        assert found == local_path(storage.uri())


def test_a_free_name(storage: Storage) -> None:
    for name in ("a", "a.1"):
        storage.write(f"Files/aside/{name}", b"x")
    listed = {entry.path for entry in storage.list("Files/aside").files}
    assert storage.free_name("Files/aside/a", listed) == "Files/aside/a.2"
    assert storage.free_name("Files/aside/b", listed) == "Files/aside/b"


def test_a_new_version_is_put_once(table: Place) -> None:
    path = table / "_delta_log/1"
    ours = put_new(path, b"ours", durable=True)
    assert ours is not None and is_same(path, ours) and path.read_bytes() == b"ours"
    assert put_new(path, b"theirs", durable=True) is None and path.read_bytes() == b"ours"
    put_over(path, b"somebody's", durable=False)
    assert not is_same(path, ours) and path.read_bytes() == b"somebody's"
    remove_file(path)
    remove_file(path)
    assert not is_same(path, ours)


def test_a_table_is_written_whole_or_not_at_all(table: Place) -> None:
    path = table / "_delta_log/checkpoint"
    for durable in (True, False):
        put_table(path, lambda sink: pq.write_table(ROWS, sink), durable=durable)
        assert pq.read_table(opened(path)).equals(ROWS)

    def fails(sink: Any) -> None:
        raise ValueError

    with pytest.raises(ValueError):
        put_table(path, fails, durable=True)
    assert pq.read_table(opened(path)).equals(ROWS)
    assert {name for name, _ in names_in(table / "_delta_log")} == {"0", "checkpoint"}


def test_a_data_file_is_written_checked_and_named(table: Place) -> None:
    path = table / "region=eu/part-1.parquet"
    make_folders(path.parent, table)
    target = created(path)
    with pq.ParquetWriter(target, ROWS.schema) as writer:
        writer.write_table(ROWS)
        assert size_so_far(target) > 0
    size, modified = completed(target)
    status = status_of_new(path)
    assert status.st_size == size and abs(modified - time.time()) < 60
    with opened_new(path) as (file, source):
        read_together(file, [(0, 4), (4, size)])
        assert file.read(4) == b"PAR1"
        assert pq.ParquetFile(source).metadata.num_rows == ROWS.num_rows
    keep_young([path], time.time() - 86400)
    sync_files([path], table)
    sync(path)
    sync_each([table, path])


def test_a_file_that_is_given_up_names_nothing(table: Place) -> None:
    path = table / "part-2.parquet"
    target = created(path)
    writer = pq.ParquetWriter(target, ROWS.schema)
    writer.write_table(ROWS)
    abandoned(target)
    try:
        writer.close()
    except ValueError:
        assert local_path(path) is None
    path.unlink(missing_ok=True)
    assert not path.is_file()


def test_what_is_gone_is_not_claimed(table: Place) -> None:
    assert refused(lambda: keep_young([table / "gone"], time.time())) == "FileNotFoundError"


def test_an_old_file_gets_the_time_of_now(table: Place) -> None:
    path = table / "_delta_log/0"
    before = path.stat().st_mtime
    time.sleep(1.1)  # times of a store are whole seconds
    keep_young([path], time.time() + 60)
    assert place(str(path)).stat().st_mtime > before and path.read_bytes() == b"zero"


def test_a_file_is_copied(table: Place) -> None:
    copy(str(table / "_delta_log/0"), table / "copied", 4)
    assert (table / "copied").read_bytes() == b"zero"
    assert refused(lambda: copy(str(table / "gone"), table / "other")) == "FileNotFoundError"


def test_only_an_unchanged_file_is_removed(table: Place) -> None:
    path = table / "_delta_log/0"
    assert not remove_unchanged(path, path.stat().st_mtime - 10) and path.is_file()
    assert remove_unchanged(path, path.stat().st_mtime) and not path.is_file()
    assert not remove_unchanged(path, time.time())


def test_names_from_a_name_on(table: Place) -> None:
    log = table / "_delta_log"
    for name in ("1", "2", "3"):
        put_over(log / name, name.encode(), durable=False)
    put_over(log / "below/4", b"4", durable=False) if local_path(log) is None else (log / "below").mkdir()
    assert {"0", "1", "2", "3"} <= {name for name, _ in names_in(log)}
    assert "2" in end_of(log, "2") and "1" not in end_of(log, "2") and end_of(log, "9") == {}
    assert refused(lambda: list(names_in(table / "gone"))) == "FileNotFoundError"
    assert end_of(table / "gone", "1") == {}


def test_folders_and_files_below(table: Place) -> None:
    for below in ("a/1", "a/b/2", "_c/3", "4"):
        make_folders((table / below).parent, table)
        put_over(table / below, b"x", durable=False)
    assert sorted(folder.name for folder in folders_in(table)) == ["_c", "_delta_log", "a"]
    assert list(folders_in(table / "gone")) == []
    listed = dict(files_below(table, lambda name: not name.startswith("_")))
    assert sorted(listed) == ["4", "a/1", "a/b/2"]
    assert all(abs(modified - time.time()) < 60 for modified in listed.values())
    assert sorted(path for path, _ in files_below(table, lambda _: False)) == ["4"]
    assert list(files_below(table / "gone", lambda _: True)) == []


def test_paths_of_a_log_are_relative_to_the_table(table: Place) -> None:
    assert relative_to(table, "a/part%201.parquet") == "a/part 1.parquet"
    assert relative_to(table, f"{table}/a/part%201.parquet") == "a/part 1.parquet"
    folder = local_path(table)
    if folder is not None:
        assert relative_to(table, f"{folder.as_uri()}/a/x%23y") == "a/x#y"
        assert relative_to(table, str(folder.parent / "other")) == "../other"


def test_what_this_process_wrote_is_known_without_a_request(table: Place) -> None:
    path = table / "_delta_log/5"
    assert written_here(path) is None and etag_of(path) == ""
    put_new(path, b"five", durable=False)
    own = written_here(path)
    assert (own is not None) == capabilities_of(path).waits
    if own is not None:
        listed = end_of(table / "_delta_log", "5")["5"]
        assert etag_of(own) == etag_of(listed) != "" and own.stat().st_size == 4


def test_a_folder_is_never_made_above_its_root(table: Place, tmp_path: Path) -> None:
    make_folders(table / "a/b", table)
    with pytest.raises(FileNotFoundError):
        make_folders(tmp_path / "gone/a/b", tmp_path / "gone")
    assert not (tmp_path / "gone").exists()
