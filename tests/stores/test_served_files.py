"""The verbs by which a service reads and publishes, on a disk and in stores."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.databases import Database

from lakemirror.storage import place
from lakemirror.storage import served_prefix as prefix
from lakemirror.storage.place import served_files
from lakemirror.storage.served_files import ANY, Changed, Found, ServedFiles

TABLE = "Files/LandingZone/orders"


@pytest.fixture
def files(database: Database) -> ServedFiles:
    _ = database.storage  # its options are known then
    return served_files(place(database.address))


@pytest.fixture
def staged(tmp_path: Path) -> Path:
    (tmp_path / "staging").mkdir()
    return tmp_path / "staging/file"


def put(files: ServedFiles, path: str, data: bytes, staged: Path) -> Found:
    staged.write_bytes(data)
    files.check_folders(path.rpartition("/")[0])
    found = files.put(path, staged, ANY)
    assert found is not None
    return found


def content(files: ServedFiles, path: str) -> bytes:
    file = files.open(path)
    try:
        return file.read_at(file.found.length, 0)
    finally:
        file.close()


def names(files: ServedFiles, path: str) -> dict[str, bool]:
    listed = files.listed(path)
    try:
        assert all(listed.find(name) is not None for name in listed.names)
        return dict(listed.names)
    finally:
        listed.close()


def test_what_is_put_is_found_and_read(files: ServedFiles, staged: Path) -> None:
    assert files.find(TABLE) is None
    first = put(files, f"{TABLE}/1.parquet", b"first", staged)
    assert (first.is_folder, first.length) == (False, 5) and first.etag
    found = files.find(f"{TABLE}/1.parquet")
    assert found is not None and (found.etag, found.length) == (first.etag, 5)
    assert content(files, f"{TABLE}/1.parquet") == b"first"
    second = put(files, f"{TABLE}/1.parquet", b"second", staged)
    assert second.etag != first.etag and content(files, f"{TABLE}/1.parquet") == b"second"
    folder = files.find(TABLE)
    assert folder is not None and folder.is_folder
    assert names(files, "Files/LandingZone") == {"orders": True} and names(files, TABLE) == {"1.parquet": False}


def test_an_empty_folder_is_there_until_it_is_taken(files: ServedFiles, staged: Path) -> None:
    files.make_folder(TABLE)
    assert names(files, TABLE) == {} and names(files, "Files") == {"LandingZone": True}
    put(files, f"{TABLE}/1.parquet", b"1", staged)
    files.remove_file(f"{TABLE}/1.parquet")
    assert names(files, TABLE) == {}
    put(files, f"{TABLE}/deep/2.parquet", b"2", staged)
    files.take_folder(TABLE, staged.with_name("aside"))
    assert files.find(TABLE) is None and names(files, "Files/LandingZone") == {}


def test_a_file_is_no_folder(files: ServedFiles, staged: Path) -> None:
    put(files, f"{TABLE}/1.parquet", b"1", staged)
    fresh = served_files(files.folder) if hasattr(files, "folder") else files
    for make in (fresh.make_folder, fresh.check_folders):
        with pytest.raises((FileNotFoundError, NotADirectoryError)):
            make(f"{TABLE}/1.parquet/x")
    for path in (TABLE, f"{TABLE}/2.parquet"):
        with pytest.raises(FileNotFoundError):
            files.open(path)


@pytest.mark.parametrize("large", [False, True])
def test_a_store_puts_only_over_what_was_expected(
    files: ServedFiles, staged: Path, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    if not files.waits:
        pytest.skip("on a disk the service's lock holds it")
    path = f"{TABLE}/1.parquet"
    if large:
        monkeypatch.setattr(prefix, "_IN_ONE", 0)
    staged.write_bytes(b"new")
    assert files.put(path, staged, None) is not None and not staged.exists()
    staged.write_bytes(b"new")
    with pytest.raises(Changed):
        files.put(path, staged, None)
    assert staged.exists()
    before = files.find(path)
    put(files, path, b"newer", staged)
    staged.write_bytes(b"newest")
    with pytest.raises(Changed):
        files.put(path, staged, before)
    assert content(files, path) == b"newer"
    assert files.put(path, staged, files.find(path)) is not None
    assert content(files, path) == b"newest" and names(files, TABLE) == {"1.parquet": False}


def test_a_file_and_a_folder_move(files: ServedFiles, staged: Path) -> None:
    put(files, f"{TABLE}/_temp", b"rows", staged)
    files.move(f"{TABLE}/_temp", f"{TABLE}/1.parquet", None, is_folder=False)
    assert names(files, TABLE) == {"1.parquet": False} and content(files, f"{TABLE}/1.parquet") == b"rows"
    put(files, f"{TABLE}/_metadata.json", b"{}", staged)
    files.move(TABLE, "Files/LandingZone/sales", None, is_folder=True)
    assert names(files, "Files/LandingZone") == {"sales": True}
    assert names(files, "Files/LandingZone/sales") == {"1.parquet": False, "_metadata.json": False}
    with pytest.raises(FileNotFoundError):
        files.move(f"{TABLE}/gone", f"{TABLE}/2.parquet", None, is_folder=False)


def test_a_store_moves_no_file_over_one_that_came_meanwhile(files: ServedFiles, staged: Path) -> None:
    if not files.waits:
        pytest.skip("on a disk the service's lock holds it")
    put(files, f"{TABLE}/_temp", b"rows", staged)
    put(files, f"{TABLE}/1.parquet", b"another's", staged)
    with pytest.raises(Changed):
        files.move(f"{TABLE}/_temp", f"{TABLE}/1.parquet", None, is_folder=False)
    assert content(files, f"{TABLE}/1.parquet") == b"another's" and content(files, f"{TABLE}/_temp") == b"rows"


def test_a_large_file_is_read_and_copied_in_pieces(files: ServedFiles, staged: Path) -> None:
    data = os.urandom(17 << 20)
    put(files, f"{TABLE}/1.parquet", data, staged)
    file = files.open(f"{TABLE}/1.parquet")
    copy = staged.with_name("copy")
    with copy.open("wb") as target:
        file.copy_to(target.fileno(), len(data))
        with pytest.raises(EOFError):
            file.copy_to(target.fileno(), len(data) + 1)
    assert copy.read_bytes()[: len(data)] == data and file.read_at(10, len(data) - 5) == data[-5:]
    assert file.read_at(1, len(data)) == b""
    file.close()
