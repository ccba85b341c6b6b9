"""One service at a time for an address of a store, and what stays of deleted databases there."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.object_stores import StoreServer

from lakemirror.errors import LakemirrorError
from lakemirror.service import root_folder
from lakemirror.service.own_folder import own_folder
from lakemirror.service.rest.registry import KEPT, FolderRegistry
from lakemirror.service.root_folder import read_object, write_object
from lakemirror.storage import Place, lease, place, served_prefix
from lakemirror.storage.connections import give_options
from lakemirror.storage.durable import put_over
from lakemirror.storage.lease import Lease
from lakemirror.storage.place import served_files, storage_of
from lakemirror.storage.store_path import StorePath


@pytest.fixture
def root(server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> Place:
    give_options("", server.options)
    monkeypatch.setattr(lease, "LAPSES", 1.5)
    monkeypatch.setattr(lease, "RENEWED", 0.0)
    monkeypatch.setattr(lease, "_LOOK", 0.1)
    return place(f"{server.bucket()}/lake")


def holder(root: Place, folder: Path) -> Lease:
    folder.mkdir(exist_ok=True)
    return Lease(root / ".lakemirror", folder)


def test_two_services_never_serve_one_address(root: Place, tmp_path: Path) -> None:
    here, there = holder(root, tmp_path / "here"), holder(root, tmp_path / "there")
    here.take()
    begun = time.monotonic()
    there.take()  # here is dead: it renews no more
    assert time.monotonic() - begun >= 1.4
    assert there.renew() and not here.renew() and not here.held and there.renew()


def test_a_holder_that_renews_is_left_alone(root: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = holder(root, tmp_path / "here"), holder(root, tmp_path / "there")
    here.take()
    monkeypatch.setattr(lease.time, "sleep", lambda _: here.renew())
    with pytest.raises(LakemirrorError) as refused:
        there.take()
    assert refused.value.code == "root-in-use" and here.renew()


def test_a_restart_on_the_same_machine_and_a_clean_end_do_not_wait(root: Place, tmp_path: Path) -> None:
    holder(root, tmp_path / "here").take()
    begun = time.monotonic()
    again = holder(root, tmp_path / "here")
    again.take()
    assert again.renew()
    again.give_up()
    holder(root, tmp_path / "there").take()
    assert time.monotonic() - begun < 1.4


@pytest.mark.parametrize("ignored", ["create", "put_over"])
def test_a_store_without_conditions_is_refused_at_the_start(
    root: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ignored: str
) -> None:
    store = root.store  # type: ignore[union-attr]
    monkeypatch.setattr(type(store), ignored, lambda self, key, data, *_: self.put(key, data))
    with pytest.raises(LakemirrorError) as refused:
        holder(root, tmp_path / "here").take()
    assert refused.value.code == "store-unsafe"


def test_a_service_of_a_store_needs_a_folder_on_a_disk(root: Place, tmp_path: Path) -> None:
    with pytest.raises(LakemirrorError, match="--state FOLDER") as refused:
        own_folder(root)
    assert refused.value.code == "service-option-invalid"
    assert own_folder(root, tmp_path / "a/state").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("hard", [False, True])
def test_a_deleted_database_in_a_store_stays_for_seven_days(root: Place, tmp_path: Path, hard: bool) -> None:
    write_object(root / "sales", ".lakemirror-workspace.json", {"id": "11111111-2222-3333-4444-555555555555"})
    registry = FolderRegistry(root, state=tmp_path / "state")
    workspace = registry.workspaces()[0]
    made = registry.create(workspace, "shop", "", b"{}")
    assert FolderRegistry(root, state=tmp_path / "other").all_databases()[0].id == made.id
    registry.delete(made, hard=hard)
    registry.bury(made)
    again = FolderRegistry(root, state=tmp_path / "state")
    for each in (registry, again):
        each.look()
        for doomed in each.doomed():
            each.bury(doomed)
        assert not each.all_databases()
    storage = storage_of(made.folder)
    assert storage.exists("Files/LandingZone") != hard
    another = again.create(again.workspaces()[0], "shop", "", b"{}")
    assert (another.folder == made.folder) == hard and another.display_name == "shop"
    again.sweep(time.time() + KEPT / 2)
    assert storage.exists("Files/LandingZone") or hard
    again.sweep(time.time() + KEPT + 3600)
    assert storage.exists("Files/LandingZone") == hard and again.all_databases() == [another]


def test_a_create_that_was_killed_is_seen_by_nobody(
    root: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_object(root / "sales", ".lakemirror-workspace.json", {"id": "11111111-2222-3333-4444-555555555555"})
    registry = FolderRegistry(root, state=tmp_path / "state")
    made: list[Place] = []

    def dies(path: Place, data: bytes, *, durable: bool) -> None:
        if path.name != ".lakemirror-item.json":
            made.append(path.parent)
            raise KeyboardInterrupt
        put_over(path, data, durable=durable)

    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(root_folder, "put_over", dies)
        registry.create(registry.workspaces()[0], "shop", "", b"{}")
    folder = made[0]
    assert read_object(folder, ".lakemirror-item.json") is not None
    again = FolderRegistry(root, state=tmp_path / "state")
    assert not again.all_databases()
    for doomed in again.doomed():
        again.bury(doomed)
    again.sweep(time.time() + 7200)
    assert read_object(folder, ".lakemirror-item.json") is None


def test_what_a_killed_upload_left_goes_after_a_day(
    root: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_prefix, "_IN_ONE", 10)
    made = root / "sales/shop"
    upload = tmp_path / "staged"

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    assert isinstance(made, StorePath)
    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(type(made.store), "copy_new", dies)
        killed.setattr(type(made.store), "delete", dies)
        upload.write_bytes(b"x" * 20)
        served_files(made).put("Files/LandingZone/t/1.parquet", upload, None)
    assert served_files(made).find("Files/LandingZone/t/1.parquet") is None
    registry = FolderRegistry(root, state=tmp_path / "state")
    parts = storage_of(root / ".lakemirror/parts")
    (left,) = parts.list("").files
    put_over(root / ".lakemirror/parts/mine.parquet", b"", durable=True)
    registry.sweep(time.time() + 3600)
    assert parts.exists(left.path)
    registry.sweep(time.time() + 90_000)
    assert [each.path for each in parts.list("").files] == ["mine.parquet"]
