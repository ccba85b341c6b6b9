"""A local folder as a store: regular files only, no link is followed, nothing waits, reads are bounded."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakemirror.errors import LakemirrorError
from lakemirror.storage import Entry, LocalStorage
from lakemirror.storage.durable import put_new


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    place = tmp_path / "outside"
    (place / "inner").mkdir(parents=True)
    (place / "file").write_bytes(b"secret")
    return place


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    (tmp_path / "shop/a").mkdir(parents=True)
    (tmp_path / "shop/a/file").write_bytes(b"content")
    return LocalStorage(tmp_path / "shop")


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(LakemirrorError) as caught:
        act()
    assert caught.value.code == "path-refused"
    return caught.value.message


def test_regular_files_are_read(storage: LocalStorage) -> None:
    assert storage.read("a/file") == b"content"
    assert storage.read("a/file", 7) == b"content"
    with storage.open("a/file") as file:
        file.seek(3)
        assert file.read() == b"tent"
    for act in (storage.read, storage.open, storage.touch):
        with pytest.raises(FileNotFoundError):
            act("a/other")  # type: ignore[operator]
        with pytest.raises(FileNotFoundError):
            act("b/other")  # type: ignore[operator]
    assert storage.stat("b/other") is None
    assert storage.stat("a/file/below") is None
    assert not storage.exists("a/file/below")


def test_nothing_is_opened_but_regular_files(storage: LocalStorage) -> None:
    os.mkfifo(storage.root / "a/fifo")
    (storage.root / "a/zero").symlink_to("/dev/zero")
    for act in (storage.open, storage.read, storage.stat):
        assert "a FIFO" in refused(lambda act=act: act("a/fifo"))  # type: ignore[misc]
        assert "a link" in refused(lambda act=act: act("a/zero"))  # type: ignore[misc]
    assert "a folder" in refused(lambda: storage.read("a"))


def test_no_part_of_a_path_may_be_a_link(storage: LocalStorage, outside: Path) -> None:
    (storage.root / "out").symlink_to(outside)
    before = sorted(outside.rglob("*"))
    for act in (
        lambda: storage.read("out/file"),
        lambda: storage.stat("out/file"),
        lambda: storage.exists("out/file"),
        lambda: storage.list("out"),
        lambda: storage.list("out/inner"),
        lambda: storage.write("out/new", b""),
        lambda: storage.write("out/deep/new", b""),
        lambda: storage.write_new("out/new", b""),
        lambda: storage.create("out/new"),
        lambda: storage.move("a/file", "out/file"),
        lambda: storage.move("out/file", "a/other"),
        lambda: storage.touch("out/file"),
        lambda: storage.delete("out/file"),
    ):
        assert "out is a link" in refused(act)
    for path in ("../outside/file", "a/../../outside/file"):
        refused(lambda path=path: storage.read(path))  # type: ignore[misc]
        refused(lambda path=path: storage.delete(path))  # type: ignore[misc]
    assert sorted(outside.rglob("*")) == before
    assert (outside / "file").read_bytes() == b"secret"


def test_links_themselves_are_replaced_moved_and_deleted(storage: LocalStorage, outside: Path) -> None:
    for name in ("written", "created", "deleted", "moved"):
        (storage.root / "a" / name).symlink_to(outside / "file")
    (storage.root / "a/tree").symlink_to(outside)
    storage.write("a/written", b"ours")
    with storage.create("a/created") as file:
        file.write(b"ours")
    storage.delete("a/deleted")
    storage.delete("a/tree")
    storage.move("a/moved", "b/moved")
    assert storage.read("a/written") == storage.read("a/created") == b"ours"
    assert (storage.root / "b/moved").is_symlink()
    assert (outside / "file").read_bytes() == b"secret"


def test_a_folder_is_deleted_without_what_its_links_lead_to(storage: LocalStorage, outside: Path) -> None:
    (storage.root / "a/out").symlink_to(outside)
    (storage.root / "a/deep/deeper").mkdir(parents=True)
    (storage.root / "a/deep/deeper/file").write_bytes(b"x")
    storage.delete("a")
    assert not storage.exists("a")
    assert (outside / "file").exists()


def test_the_root_itself_may_be_a_link(storage: LocalStorage, tmp_path: Path) -> None:
    (tmp_path / "linked").symlink_to(storage.root)
    other = LocalStorage(tmp_path / "linked")
    assert other.read("a/file") == b"content"
    other.write("a/new", b"x")
    assert sorted(entry.path for entry in other.list("").files) == ["a/file", "a/new"]


def test_a_file_that_is_replaced_by_a_link_while_it_is_opened(storage: LocalStorage, outside: Path) -> None:
    """Another process swaps file and link all the time: what is read is the file's content or an error."""
    place, stop = storage.root / "a/file", threading.Event()

    def swap() -> None:
        while not stop.is_set():
            (storage.root / "link").symlink_to(outside / "file")
            (storage.root / "link").replace(place)
            (storage.root / "real").write_bytes(b"content")
            (storage.root / "real").replace(place)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        seen = set()
        for _ in range(3000):
            try:
                seen.add(storage.read("a/file"))
            except LakemirrorError as error:
                seen.add(error.code.encode())
    finally:
        stop.set()
        thread.join()
    assert seen <= {b"content", b"path-refused"}


def test_a_file_that_becomes_a_fifo_while_it_is_opened(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused, not waited for, also where the FIFO comes between the look at the name and the open."""
    place, true_open = storage.root / "a/file", os.open

    def open_late(path: object, flags: int, *given: int, dir_fd: int | None = None) -> int:
        if path == "file":
            place.unlink()
            os.mkfifo(place)
            assert flags & os.O_NONBLOCK, "an open that waits for a writer never ends"
        return true_open(path, flags, *given, dir_fd=dir_fd)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", open_late)
    assert "FIFO" in refused(lambda: storage.read("a/file"))


def test_what_is_too_large_is_not_read(storage: LocalStorage) -> None:
    with (storage.root / "a/huge").open("wb") as file:
        file.truncate(5 * 1024**3)
    with pytest.raises(LakemirrorError) as caught:
        storage.read("a/huge", 16 * 1024**2)
    assert caught.value.code == "content-too-large"
    assert "5,368,709,120 bytes" in caught.value.message


def test_a_listing_tells_links_and_fifos_apart_and_enters_none(storage: LocalStorage, outside: Path) -> None:
    (storage.root / "a/self").symlink_to("self")
    (storage.root / "a/out").symlink_to(outside)
    (storage.root / "a/loop").symlink_to(".")
    os.mkfifo(storage.root / "a/fifo")
    found = storage.list("")
    assert [entry.path for entry in found.files] == ["a/file"]
    assert found.folders == ["a"]
    assert found.others == {"a/self": "a link", "a/out": "a link", "a/loop": "a link", "a/fifo": "a FIFO"}
    assert found.errors == {}


def test_a_folder_that_cannot_be_listed_is_an_error_of_its_own(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    (storage.root / "closed").mkdir()
    true = os.open

    def fails(name: str, *rest: object, **more: object) -> int:
        if name == "closed" and rest and not int(rest[0]) & os.O_PATH:  # type: ignore[call-overload]
            raise PermissionError(13, "Permission denied", name)
        return true(name, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", fails)
    found = storage.list("")
    assert [entry.path for entry in found.files] == ["a/file"]
    assert {path: error.code for path, error in found.errors.items()} == {"closed": "storage-unavailable"}
    with pytest.raises(LakemirrorError) as caught:
        storage.list("closed")
    assert caught.value.message == "closed: Permission denied"


def test_listings_end_where_folders_are_too_large_or_too_deep(tmp_path: Path) -> None:
    for n in range(5):
        (tmp_path / f"few-{n % 2}").mkdir(exist_ok=True)
        (tmp_path / f"many/{n}").mkdir(parents=True)
    (tmp_path / "deep/1/2/3/4/5").mkdir(parents=True)
    found = LocalStorage(tmp_path, most_entries=4, most_levels=3).list("")
    assert {path: error.code for path, error in found.errors.items()} == {
        "many": "listing-too-large",
        "deep/1/2/3": "listing-too-large",
    }
    assert {"few-0", "few-1"} <= set(found.folders)


def test_names_that_are_no_text_are_listed(storage: LocalStorage) -> None:
    (storage.root / os.fsdecode(b"a/caf\xe9\n")).write_bytes(b"x")
    (name,) = (entry.path for entry in storage.list("a").files if entry.name != "file")
    assert storage.read(name) == b"x"
    assert name == "a/caf\udce9\n"


def test_folders_are_made_for_a_move_only_below_what_both_paths_share(storage: LocalStorage) -> None:
    with pytest.raises(FileNotFoundError):
        storage.move("gone/file", "gone/aside/file")
    assert not storage.exists("gone")
    storage.move("a/file", "a/aside/deeper/file")
    assert storage.read("a/aside/deeper/file") == b"content"


def test_folders_that_are_held_are_entered_once(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    place = storage.root / "held"
    for number in range(20):
        (place / str(number)).mkdir(parents=True)
        (place / str(number) / "file").write_bytes(b"%d" % number)
    entered: list[object] = []
    plain = os.open
    monkeypatch.setattr(os, "open", lambda name, *rest, **more: entered.append(name) or plain(name, *rest, **more))
    with storage.holding_folders():
        for _ in range(3):
            assert storage.read("held/0/file") == b"0"
            with storage.holding_folders():
                assert storage.stat("held/0/file") is not None
        assert entered.count("0") == 1
        for number in range(1, 20):  # more folders than are held
            storage.move(f"held/{number}/file", f"held/{number - 1}/moved")
        assert storage.read("held/18/moved") == b"19" and storage.exists("held/0/file")
    assert not [each for each in Path("/proc/self/fd").glob("*") if "held" in _link(each)], "none stays open"


def _link(descriptor: Path) -> str:
    try:
        return str(descriptor.readlink())
    except OSError:
        return ""


def test_a_held_folder_that_is_made_again_is_not_mistaken(storage: LocalStorage) -> None:
    place = storage.root / "held"
    place.mkdir()
    (place / "file").write_bytes(b"old")
    entry = storage.stat("held/file")
    assert entry is not None
    with storage.holding_folders():
        assert storage.read("held/file") == b"old"
        (place / "file").unlink()
        place.rmdir()
        place.mkdir()
        (place / "file").write_bytes(b"new")
        with pytest.raises(FileNotFoundError):
            storage.read("held/file")
        assert not storage.move_listed(entry, "held/_ProcessedFiles/file")
    assert storage.read("held/file") == b"new" and not storage.exists("held/_ProcessedFiles")


def test_files_appear_at_once_where_there_are_no_hard_links(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", refuse)
    commit = storage.root / "a/commit"
    assert storage.write_new("a/new", b"first") and not storage.write_new("a/new", b"second")
    assert put_new(commit, b"first", durable=True) is not None and put_new(commit, b"second", durable=True) is None
    assert storage.read("a/new") == commit.read_bytes() == b"first"
    assert sorted(path.name for path in commit.parent.iterdir()) == ["commit", "file", "new"]


def test_a_link_that_was_made_although_the_answer_says_it_is_taken(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system that sends a request twice."""
    link = os.link

    def twice(*given: Any, **named: Any) -> None:
        link(*given, **named)
        link(*given, **named)

    monkeypatch.setattr(os, "link", twice)
    assert storage.write_new("a/new", b"first") and not storage.write_new("a/new", b"second")
    assert put_new(storage.root / "a/commit", b"first", durable=False) is not None


def test_a_file_of_the_same_size_and_time_is_another(tmp_path: Path) -> None:
    """Its inode and its ctime tell; one of them alone does not."""
    storage, path = LocalStorage(tmp_path), tmp_path / "file"
    path.write_bytes(b"one")
    (found,) = storage.list("").files
    listed = replace(found, changed=found.changed - 1)  # else all may be within one tick of the clock
    os.link(path, tmp_path / "link")
    path.chmod(0o600)
    path.rename(tmp_path / "moved")
    (tmp_path / "moved").rename(path)
    touched = storage.stat("file")
    assert touched is not None and touched.changed != listed.changed and touched.is_same(listed)
    assert listed.is_same(replace(listed, inode=listed.inode + 1)), "as on some network mounts"
    assert listed.is_same(Entry("file", 3, listed.modified)), "as a table remembers it"
    (tmp_path / "new").write_bytes(b"two")
    os.utime(tmp_path / "new", ns=(listed.modified, listed.modified))
    (tmp_path / "new").replace(path)
    other = storage.stat("file")
    assert other == listed and not other.is_same(listed)
    assert not storage.move_listed(listed, "_ProcessedFiles/file") and path.read_bytes() == b"two"
    assert storage.move_listed(other, "_ProcessedFiles/file")
