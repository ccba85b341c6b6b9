"""What acts ask of a store: applied files are set aside together, bytes are read once, a new engine asks for little."""

from __future__ import annotations

import random
import re
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pytest
from tests.databases import Database
from tests.fault_proxy import fault_proxy
from tests.object_stores import StoreServer

from lakemirror.storage import Entry, connections
from lakemirror.storage.object_storage import ObjectStorage
from lakemirror.storage.object_store import ObjectStore

TABLE = "Files/LandingZone/orders"


@pytest.fixture(
    params=["s3", *(pytest.param(each, marks=pytest.mark.full) for each in ("minio_server", "azurite_server"))]
)
def server(request: pytest.FixtureRequest) -> StoreServer:
    found: StoreServer = request.getfixturevalue(request.param)
    return found


def moves_of(storage: ObjectStorage, names: list[str]) -> list[tuple[Entry, str]]:
    found = [storage.stat(f"{TABLE}/{name}") for name in names]
    return [(entry, f"{TABLE}/_ProcessedFiles/{entry.name}") for entry in found if entry is not None]


def test_files_are_set_aside_together_and_only_as_they_were_listed(
    server: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = server.bucket()
    database = Database(f"{bucket}/shop", server.options)
    storage = database.storage
    assert isinstance(storage, ObjectStorage)
    names = [f"{number:020}.parquet" for number in range(1, 7)]
    for name in ("_metadata.json", *names):
        server.put(bucket, f"shop/{TABLE}/{name}", name.encode())
    moves = moves_of(storage, names)
    copy = ObjectStore.put_new

    def beside_a_publisher(self: ObjectStore, to: str, content: bytes) -> bool:
        is_copied = copy(self, to, content)
        if to.endswith(names[1]):
            storage.write(f"{TABLE}/{names[1]}", b"published again")
        return is_copied

    monkeypatch.setattr(ObjectStore, "put_new", beside_a_publisher)
    storage.delete(f"{TABLE}/{names[4]}")
    storage.store.requests.clear()
    moved = [entry.name for entry, _ in storage.move_all_listed(moves)]
    assert moved == [names[0], names[2], names[3], names[5]]
    assert storage.store.requests["head"] == 0 and storage.store.requests["list"] == 1
    assert database.files(TABLE) == [
        f"{TABLE}/{names[1]}", *(f"{TABLE}/_ProcessedFiles/{name}" for name in moved), f"{TABLE}/_metadata.json",
    ]  # fmt: skip
    assert storage.read(f"{TABLE}/{names[1]}") == b"published again"


def test_files_of_a_folder_that_its_publisher_deletes_do_not_come_back_together(
    server: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(f"{server.bucket()}/shop", server.options)
    storage = database.storage
    assert isinstance(storage, ObjectStorage)
    names = [f"{number:020}.parquet" for number in range(1, 5)]
    for name in names:
        storage.write(f"{TABLE}/{name}", b"rows")
    moves = moves_of(storage, names)
    entries = ObjectStore.entries

    def deleted_before(self: ObjectStore, prefix: str, after: str = "") -> object:
        for name in names:
            self.delete([f"shop/{TABLE}/{name}"])
        return entries(self, prefix, after)

    monkeypatch.setattr(ObjectStore, "entries", deleted_before)
    assert list(storage.move_all_listed(moves)) == []
    monkeypatch.setattr(ObjectStore, "entries", entries)
    assert database.files(TABLE) == []


def test_a_kill_between_copy_and_delete_leaves_a_second_copy_and_right_rows(server: StoreServer) -> None:
    """What such a kill leaves is a copy beside its file: the next pass moves the file to a name of its own."""
    database = Database(f"{server.bucket()}/shop", server.options)
    database.declare("orders", ["id"])
    for number in (1, 2, 3):
        database.put("orders", number, {"id": [number]})
    content = database.storage.read(f"{TABLE}/{1:020}.parquet")
    database.storage.write(f"{TABLE}/_ProcessedFiles/{1:020}.parquet", content)
    database.sync()
    database.sync()
    archived = [path.rpartition("/")[2] for path in database.files(f"{TABLE}/_ProcessedFiles")]
    assert archived == [f"{1:020}.parquet", f"{1:020}.parquet.1", f"{2:020}.parquet"]
    assert sorted(database.bag("orders")) == [(1,), (2,), (3,)]


def test_a_first_load_reads_each_byte_of_the_copy_once(server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(f"{server.bucket()}/shop", server.options)
    database.declare("orders", [])
    noise = [random.Random(number).randbytes(1000) for number in range(12_000)]
    database.put("orders", 1, pa.table({"id": range(12_000), "noise": noise}), row_group_size=4_000)
    (size,) = (e.size for e in database.storage.list("Files/LandingZone").files if e.name.endswith(".parquet"))
    assert size > 8 << 20  # smaller objects are read by one request
    connections.forget_all()
    read: list[int] = []
    view = ObjectStore.view

    def counted(self: ObjectStore, key: str, begin: int, size: int, tag: str = "") -> memoryview:
        if "Tables/" in key:
            read.append(size)
        return view(self, key, begin, size, tag)

    monkeypatch.setattr(ObjectStore, "view", counted)
    database.sync()
    assert 0.9 * size < sum(read) <= size and max(read) >= 3 << 20
    assert sum(database.bag("orders").values()) == 12_000


def test_files_that_are_too_large_for_the_store_to_copy_go_through_this_machine(
    server: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 copies at most 5 GiB by one request: here 1 MiB."""
    database = Database(f"{server.bucket()}/shop", server.options)
    database.declare("orders", [])
    for number in (1, 2):
        noise = [random.Random(row).randbytes(1000) for row in range(3_000)]
        database.put("orders", number, pa.table({"id": range(3_000), "noise": noise}))
    monkeypatch.setattr("lakemirror.storage.object_store._LARGEST_COPY", 1 << 20)
    through: list[str] = []
    copied = ObjectStore._copy_through

    def noted(self: ObjectStore, source: str, target: str, size: int) -> None:
        through.append(target)
        copied(self, source, target, size)

    monkeypatch.setattr(ObjectStore, "_copy_through", noted)
    database.sync()
    assert sum(database.bag("orders").values()) == 6_000
    archive = f"shop/{TABLE}/_ProcessedFiles/{1:020}.parquet"
    assert archive.removeprefix("shop/") in database.files(TABLE)
    if server.name in ("moto", "minio"):
        assert len(through) == 3 and archive in through and sum("Tables/orders/" in each for each in through) == 2
    else:
        assert through == []


def test_an_engine_that_starts_again_asks_for_the_end_of_each_log_alone(server: StoreServer, tmp_path: Path) -> None:
    with fault_proxy(server.endpoint) as proxy:
        database = Database(f"{server.bucket()}/shop", server.through(proxy.url))
        for table in ("one", "two"):
            database.declare(table, ["id"])
            database.put(table, 1, {"id": [1]})
        for _ in range(2):  # the second one reads what the first one has written
            connections.forget_all()
            database.sync(cache_dir=str(tmp_path))
        connections.forget_all()
        proxy.seen.clear()
        database.sync(cache_dir=str(tmp_path))
        of_tables = [
            f"{method} {unquote(path)}" for method, path, _ in proxy.seen if re.search(r"/(one|two)/", unquote(path))
        ]
        assert len(of_tables) == 2 and all("/_delta_log/" in each and "prefix=" in each for each in of_tables), (
            of_tables
        )
        database.put("one", 2, {"id": [2]})
        database.sync(cache_dir=str(tmp_path))
        assert sorted(database.bag("one")) == [(1,), (2,)]
    connections.forget_all()
