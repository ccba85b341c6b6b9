"""The rules of every store: one winner of a race, unclear answers read back, coded errors without secrets."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from tests.databases import Database
from tests.fault_proxy import DRIPPING, ERROR, LOST, REFUSED, SLOW, STALL, STALLED, TRUNCATED, FaultProxy, fault_proxy
from tests.free_ports import free_port
from tests.landing import MARKER
from tests.object_stores import SECRET, StoreServer, client, connect

from lakemirror.delta.commit import commit
from lakemirror.delta.commit_info import commit_info
from lakemirror.delta.log import read_snapshot
from lakemirror.errors import LakemirrorError
from lakemirror.storage import connections
from lakemirror.storage.object_storage import ObjectStorage
from lakemirror.storage.object_store import ObjectStore
from lakemirror.storage.storage import MOVING, Entry


@pytest.fixture
def proxy(server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """As often as elsewhere, but with short pauses, a request is sent again."""
    pauses = {"init_backoff": timedelta(milliseconds=5), "max_backoff": timedelta(milliseconds=100), "base": 2}
    monkeypatch.setitem(connections._RETRY, "backoff", pauses)
    with fault_proxy(server.endpoint) as found:
        yield found
    connections.forget_all()


def test_of_two_racing_creators_exactly_one_wins_a_hundred_times(server: StoreServer) -> None:
    store = connect(server.bucket(), server.options)
    for number in range(100):
        start, won = threading.Barrier(2), []

        def create(who: bytes, key: str = f"race/{number}", start=start, won=won) -> None:  # type: ignore[no-untyped-def]
            start.wait()
            if store.create(key, who) is not None:
                won.append(who)

        threads = [threading.Thread(target=create, args=(who,)) for who in (b"one", b"two")]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert len(won) == 1
        assert store.read(f"race/{number}") == won[0]


@pytest.mark.parametrize("fault", [LOST, ERROR, REFUSED, TRUNCATED, SLOW, STALLED, DRIPPING])
def test_a_create_whose_answer_is_lost_is_read_back(server: StoreServer, proxy: FaultProxy, fault: str) -> None:
    store = connect(server.bucket(), {**server.through(proxy.url), "timeout": f"{STALL - 1:.0f}s"})
    left = [fault, fault]
    proxy.fault = lambda method, _: left.pop() if method == "PUT" and left else ""
    assert store.create("commit", b"ours") is not None
    assert store.read("commit") == b"ours"
    left += [fault, fault]
    assert store.create("commit", b"another's") is None
    assert store.read("commit") == b"ours"


def test_a_commit_is_made_once_however_its_answers_are_lost(server: StoreServer, proxy: FaultProxy) -> None:
    database = Database(f"{server.bucket()}/shop", server.through(proxy.url))
    database.declare("orders", ["id"])
    tries = 0

    def fault(method: str, path: str) -> str:
        nonlocal tries
        tries += 1
        if method == "PUT" and "_delta_log" in path:
            return LOST
        return (ERROR, REFUSED, "", "")[tries % 4]

    for number in range(1, 3):
        database.put("orders", number, {"id": [number], "v": ["a"]})
        proxy.fault = fault
        result = database.opened().sync()
        proxy.fault = lambda *_: ""
        assert not result.failed
    database.sync()
    assert sorted(database.bag("orders")) == [(1, "a"), (2, "a")]
    commits = [path for path in database.files("Tables/orders/_delta_log") if path.endswith(".json")]
    assert len(commits) == 2


def test_a_store_that_ignores_the_condition_is_refused(server: StoreServer, proxy: FaultProxy) -> None:
    class Ignoring(ObjectStore):
        def create(self, key: str, data: bytes):  # type: ignore[no-untyped-def]
            return self.put(key, data)

    store = connect(server.bucket(), server.options)
    with pytest.raises(LakemirrorError) as raised:
        Ignoring(store.root, store._store).probe("")
    assert raised.value.code == "store-unsafe"
    assert store.root in raised.value.message
    store.probe("")
    assert list(store.entries("")) == []


def test_an_engine_does_not_start_where_the_condition_is_ignored(s3: StoreServer) -> None:
    """moto behind a proxy that takes the condition away: it checks no signature, so the put goes through."""
    with fault_proxy(s3.endpoint) as proxy:
        proxy.without = "if-none-match"
        database = Database(f"{s3.bucket()}/shop", s3.through(proxy.url))
        database.declare("orders", [])
        database.put("orders", 1, {"id": [1]})
        with pytest.raises(LakemirrorError) as raised:
            database.sync()
        assert raised.value.code == "store-unsafe" and database.address.rpartition("/")[0] in raised.value.message
        assert database.files("Tables") == []
        proxy.without = ""
        database.sync()
        assert sorted(database.bag("orders")) == [(1,)]
    connections.forget_all()


def test_wrong_credentials_a_missing_bucket_and_an_endpoint_that_is_down_are_coded(server: StoreServer) -> None:
    scheme = server.bucket().partition(":")[0]
    cases = [
        (f"{scheme}://no-such-bucket-here", server.options, "bucket-missing"),
        (f"{scheme}://any", server.through(f"http://127.0.0.1:{free_port()}"), "storage-unavailable"),
    ]
    if server.name == "minio":  # moto checks no credentials
        cases.append((server.bucket(), {**server.options, "AWS_SECRET_ACCESS_KEY": "wrong"}, "store-refused"))
    if server.name == "azurite":
        cases.append((server.bucket(), {**server.options, "AZURE_STORAGE_ACCOUNT_KEY": "d3Jvbmc="}, "store-refused"))
    for address, options, code in cases:
        with pytest.raises(LakemirrorError) as raised:
            Database(address, options).opened().sync()
        assert raised.value.code == code, address
        assert address in raised.value.message
        for secret in (SECRET, "wrong", "X-Amz-", "AWS4-HMAC", "Credential="):
            assert secret not in f"{raised.value!r} {raised.value} {raised.value.hint}"
    connections.forget_all()


def test_a_refusal_by_status_is_told_apart(server: StoreServer, proxy: FaultProxy) -> None:
    store = connect(server.bucket(), server.through(proxy.url))
    for status, code in ((403, "store-refused"), (401, "store-refused"), (400, "storage-unavailable")):
        proxy.fault, proxy.status = (lambda *_: ERROR), status
        for act in (lambda: store.read("a"), lambda: store.create("a", b""), lambda: list(store.entries(""))):
            with pytest.raises(LakemirrorError) as raised:
                act()
            assert raised.value.code == code


@pytest.mark.parametrize("fault", [TRUNCATED, STALLED, DRIPPING])
def test_a_read_that_ends_early_stalls_or_drips_gives_all_bytes(
    server: StoreServer, proxy: FaultProxy, fault: str
) -> None:
    store = connect(server.bucket(), {**server.through(proxy.url), "timeout": f"{STALL - 1:.0f}s"})
    content = bytes(range(256)) * 4_000
    store.put("a", content)
    left = [fault]
    proxy.fault = lambda method, _: left.pop() if method == "GET" and left else ""
    assert bytes(store.view("a", 100, 900_000)) == content[100:900_100]
    assert not left


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_may_pass_is_tried_again(server: StoreServer, proxy: FaultProxy, status: int) -> None:
    store = connect(server.bucket(), server.through(proxy.url))
    store.put("a", b"content")
    left = [ERROR] * 3
    proxy.fault, proxy.status = (lambda *_: left.pop() if left else ""), status
    assert store.read("a") == b"content"
    assert not left


def test_odd_prefixes_and_keys_stay_as_they_are(server: StoreServer) -> None:
    bucket = server.bucket()
    for prefix in ("with space", "per%20cent", "ünï/çødé", "a+b=c&d", "deep/er/and/deeper"):
        database = Database(f"{bucket}/{prefix}", server.options)
        database.declare("orders", ["id"])
        database.put("orders", 1, {"id": [1], "v": ["a"]})
        database.put("orders", 2, {"id": [1], "v": ["b"], "__rowMarker__": [1]})
        database.sync(batch_files=1)
        assert dict(database.bag("orders")) == {(1, "b"): 1}
    keys = [entry.path for entry in connect(bucket, server.options).entries("")]
    assert any(key.startswith("per%20cent/Tables/orders/_delta_log/") for key in keys)


def test_versions_of_a_bucket_do_no_harm(server: StoreServer) -> None:
    """Of each object the newest version counts; one that is deleted is gone, whatever the bucket keeps of it."""
    if server.name not in ("moto", "minio"):
        pytest.skip("versions of a bucket are turned on by S3's own client")
    bucket = server.bucket()
    name = bucket.partition("://")[2]
    vendor = client(server.endpoint)
    vendor.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    database = Database(f"{bucket}/shop", server.options)
    for table in ("orders", "others"):
        database.declare(table, ["id"])
        database.put(table, 1, {"id": [1, 2], "v": ["a", "b"]})
    database.sync()
    database.put("orders", 2, {"id": [1, 2], "v": ["A", "b"], MARKER: [1, 2]})
    database.put("orders", 2, {"id": [1, 2], "v": ["B", "b"], MARKER: [1, 2]})  # put again before it was applied
    database.sync()
    assert sorted(database.bag("orders")) == [(1, "B")]
    database.storage.delete("Files/LandingZone/others")
    assert [database.sync().dropped for _ in range(2)] == [[], ["Tables/others"]]
    assert database.files("Tables/others") == []
    database.declare("others", ["id"])
    database.put("others", 1, {"id": [7], "v": ["z"]})
    database.sync()
    assert sorted(database.bag("others")) == [(7, "z")]
    kept = vendor.list_object_versions(Bucket=name, Prefix=f"shop/Files/LandingZone/orders/{1:020}")
    assert kept["DeleteMarkers"] and kept["Versions"]  # the bucket has kept what was set aside
    connections.forget_all()


def test_empty_folder_objects_of_other_tools_are_ignored(server: StoreServer) -> None:
    bucket = server.bucket()
    database = Database(f"{bucket}/shop", server.options)
    zone = "shop/Files/LandingZone"
    for key in (
        f"{zone}/",
        f"{zone}/orders/",
        f"{zone}/empty/",
        f"{zone}/s.schema/",
        f"{zone}/orders/_ProcessedFiles/",
    ):
        server.put(bucket, key, b"")
    database.declare("orders", ["id"])
    database.put("orders", 1, {"id": [1], "v": ["a"]})
    database.sync()
    status = database.opened().status()
    assert [(table.name, table.position) for table in status.tables] == [("orders", 1)]
    assert status.warnings == ()


def test_a_key_that_no_client_can_name_concerns_its_table_alone(server: StoreServer) -> None:
    bucket = server.bucket()
    database = Database(f"{bucket}/shop", server.options)
    for name in ("orders", "bad"):
        database.declare(name, ["id"])
        database.put(name, 1, {"id": [1], "v": ["a"]})
    try:
        server.put(bucket, "shop/Files/LandingZone/bad//x", b"1")
    except Exception as error:
        pytest.skip(f"{server.name} takes no such key: {type(error).__name__}")
    result = database.opened().sync()
    assert result.tables["orders"].files == 1
    assert "bad" in result.failed


def test_a_move_that_was_killed_goes_on(server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(f"{server.bucket()}/shop", server.options)
    storage = database.storage
    assert isinstance(storage, ObjectStorage)
    names = ["a.parquet", "b.parquet", "_delta_log/0.json", "_delta_log/1.json"]
    left = 0

    def killed(verb: Any) -> Any:
        def act(*given: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
            return verb(*given)

        return act

    for verb in ("copy", "delete", "put", "create"):
        monkeypatch.setattr(ObjectStore, verb, killed(getattr(ObjectStore, verb)))
    for at in range(1, 14):
        left = 1000
        for name in names:
            storage.write(f"Tables/t/{name}", name.encode())
        left = at
        with contextlib.suppress(KeyboardInterrupt):
            storage.move("Tables/t", f"Files/_DroppedTables/t-{at}")
        left = 1000
        is_begun = bool(database.files(f"Files/_DroppedTables/t-{at}"))
        with contextlib.suppress(FileNotFoundError):
            storage.move("Tables/t", f"Files/_DroppedTables/other-{at}")  # the tombstone's target counts
        storage.finish_move(f"Files/_DroppedTables/t-{at}")
        assert database.files("Tables/t") == []
        moved = database.files("Files/_DroppedTables")
        assert [path.split("/", 3)[3] for path in moved] == sorted(names)
        if is_begun:
            assert {path.split("/")[2] for path in moved} == {f"t-{at}"}
        storage.delete("Files/_DroppedTables")


def test_a_commit_on_a_table_that_has_gone_or_moved_is_not_made(server: StoreServer) -> None:
    """A snapshot may be older than the last listing: the log's end is looked at before the commit is put."""
    name = "orders"
    for change in ("gone", "moving", "made again", "faster"):
        database = Database(f"{server.bucket()}/shop", server.options)
        database.declare(name, [])
        database.put(name, 1, {"id": [1]})
        database.sync()
        snapshot = read_snapshot(database.table(name))
        assert snapshot is not None and snapshot.version == 0
        log = f"Tables/{name}/_delta_log"
        first = database.storage.read(f"{log}/{0:020}.json")
        if change in ("gone", "made again"):
            database.storage.delete(f"Tables/{name}")
        if change == "made again":
            database.storage.write(f"{log}/{0:020}.json", first + b"\n")
        if change == "moving":
            database.storage.write(f"{log}/{MOVING}", b"{}")
        if change == "faster":
            database.storage.write(f"{log}/{1:020}.json", first)
        before = database.files(log)
        with pytest.raises(LakemirrorError) as raised:
            commit(database.table(name), snapshot, [{"commitInfo": commit_info(snapshot, "TEST", {})}])
        assert raised.value.code == "concurrent-commit", change
        assert database.files(log) == before, change
    connections.forget_all()


SMALL, LARGE = b"rows", b"rows" * 100_000
"""A file that is set aside by a put, and one that the store copies."""


@pytest.mark.parametrize("content", [SMALL, LARGE], ids=["small", "large"])
def test_two_engines_that_set_one_file_aside_keep_it(
    server: StoreServer, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    storage, entry, target = listed_file(server, content)
    other_engine: list[bool] = []
    after_the_copy(monkeypatch, lambda: other_engine.append(storage.move_listed(entry, target)))
    assert storage.move_listed(entry, target)
    assert other_engine == [False]
    assert [each.path for each in storage.list("Files/LandingZone/orders").files] == [target]
    assert storage.read(target) == content


@pytest.mark.parametrize("content", [SMALL, LARGE], ids=["small", "large"])
def test_a_file_of_a_folder_that_its_publisher_deletes_does_not_come_back(
    server: StoreServer, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    storage, entry, target = listed_file(server, content)
    after_the_copy(monkeypatch, lambda: storage.delete(entry.path))
    assert not storage.move_listed(entry, target)
    assert not storage.exists("Files/LandingZone/orders")


@pytest.mark.parametrize("content", [SMALL, LARGE], ids=["small", "large"])
def test_a_file_that_was_put_again_is_not_set_aside_and_replaces_nothing(
    server: StoreServer, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    """Neither before the copy nor after it; and what another engine set aside under this name stays."""
    again = content.upper()
    storage, entry, target = listed_file(server, content)
    storage.write(entry.path, again)
    storage.write(target, b"of the folder before")
    assert not storage.move_listed(entry, target)
    assert storage.read(target) == b"of the folder before"
    assert storage.read(entry.path) == again
    storage.delete(target)
    assert not storage.move_listed(entry, target)
    assert not storage.exists(target)
    storage.write(entry.path, content)
    after_the_copy(monkeypatch, lambda: storage.write(entry.path, again))
    assert not storage.move_listed(entry, target)
    assert not storage.exists(target)
    assert storage.read(entry.path) == again


def listed_file(server: StoreServer, content: bytes) -> tuple[ObjectStorage, Entry, str]:
    """A change file as a listing shows it, and where it is set aside."""
    storage = Database(f"{server.bucket()}/shop", server.options).storage
    assert isinstance(storage, ObjectStorage)
    table, name = "Files/LandingZone/orders", f"{1:020}.parquet"
    storage.write(f"{table}/{name}", content)
    entry = storage.stat(f"{table}/{name}")
    assert entry is not None
    return storage, entry, f"{table}/_ProcessedFiles/{name}"


def after_the_copy(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Does something once, between the copy of a file and what follows."""
    left = [act]

    def watched(true: Callable[..., bool]) -> Callable[..., bool]:
        def copied(*given: Any) -> bool:
            found = true(*given)
            if left:
                left.pop()()
            return found

        return copied

    for name in ("put_new", "copy_new"):
        monkeypatch.setattr(ObjectStore, name, watched(getattr(ObjectStore, name)))


def test_a_file_is_replaced_only_where_it_is_as_this_process_wrote_it(server: StoreServer) -> None:
    bucket = server.bucket()
    store = connect(bucket, server.options)
    assert not store.replace("status", b"1")  # nothing was written yet
    store.put("status", b"1")
    assert store.replace("status", b"2") and store.read("status") == b"2"
    server.delete(bucket, "status")
    assert not store.replace("status", b"3")
    assert store.head("status") is None
    store.put("status", b"4")
    server.delete(bucket, "status")
    server.put(bucket, "status", b"another")
    assert not store.replace("status", b"5") and store.read("status") == b"another"


def test_of_several_objects_to_delete_some_may_be_gone(server: StoreServer) -> None:
    store = connect(server.bucket(), server.options)
    names = [f"part {number}" for number in range(30)]
    for name in names[::2]:
        store.put(name, b"x")
    store.delete(names)
    assert list(store.entries("")) == []
    store.delete(names[:1])
