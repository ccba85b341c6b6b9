"""The service's own files, on a disk and in stores: principals, keys, certificates, the audit log, staged uploads."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.databases import Database
from tests.fault_proxy import ERROR, LOST, FaultProxy, fault_proxy
from tests.object_stores import StoreServer

from lakemirror.errors import LakemirrorError
from lakemirror.service.auth import audit_log
from lakemirror.service.auth.audit_log import AuditLog, audit_lines
from lakemirror.service.auth.principals import Principals
from lakemirror.service.auth.tokens import Tokens
from lakemirror.service.captures import capture_host
from lakemirror.service.captures.capture_declaration import CaptureDeclaration, declared
from lakemirror.service.captures.capture_host import CaptureHost
from lakemirror.service.certificates import made_certificate, tls_context
from lakemirror.service.interface import DatabaseEntry
from lakemirror.service.own_folder import IN_STORE, own_folder
from lakemirror.service.storage import blocks, staged_copies
from lakemirror.service.storage.blocks import keep_block, publish_blocks, remove_old_blocks, uncommitted
from lakemirror.service.storage.conditions import Conditions
from lakemirror.service.storage.database_files import DatabaseFiles
from lakemirror.service.storage.publish_file import create_file, drop_published, flush, publish, sync_file
from lakemirror.service.storage.rename import rename
from lakemirror.service.storage.staged_copies import StagedCopies
from lakemirror.service.storage.uploads import Part
from lakemirror.storage import Place, connections, place
from lakemirror.storage.durable import begin_folder, put_over
from lakemirror.storage.object_store import ObjectStore
from lakemirror.storage.place import files_below, local_path
from lakemirror.storage.served_files import now_ns
from lakemirror.storage.storage import Entry

TABLE = "Files/LandingZone/orders"
FILE = f"{TABLE}/1.parquet"


@pytest.fixture
def root(database: Database) -> Place:
    _ = database.storage  # its options are known then
    return place(database.address)


@pytest.fixture
def state(root: Place) -> str | None:
    return IN_STORE if local_path(root) is None else None


def test_every_change_of_many_processes_counts(root: Place, state: str | None) -> None:
    known = Principals(root, state)
    names = [f"writer{number}" for number in range(6)]
    together = [threading.Thread(target=Principals(root, state).add, args=(name, ["sales=read"])) for name in names]
    for each in together:
        each.start()
    for each in together:
        each.join()
    known.follow()
    assert [each.name for each in known.all()] == names
    assert {Principals(root, state).tenant_id for _ in range(2)} == {known.tenant_id}
    known.remove("writer0")
    other = Principals(root, state)
    other.rotate("writer1")
    known.follow()
    assert known.by_name("writer1") == other.by_name("writer1") and known.by_name("writer0") is None


def test_of_many_processes_that_begin_one_makes_the_key(root: Place, state: str | None) -> None:
    own, made = own_folder(root, state), []
    together = [threading.Thread(target=lambda: made.append(Tokens(own / "keys").key_id)) for _ in range(4)]
    for each in together:
        each.start()
    for each in together:
        each.join()
    assert len(made) == 4 and len(set(made)) == 1


def test_a_certificate_goes_on_and_one_that_a_power_cut_left_is_made_again(root: Place, state: str | None) -> None:
    folder = own_folder(root, state) / "tls"
    first = made_certificate(folder)
    trusted, chain, key = ((folder / name).read_bytes() for name in ("ca.pem", "cert.pem", "key.pem"))
    assert made_certificate(folder).chain.read_bytes() == chain
    assert isinstance(tls_context(first), ssl.SSLContext)
    made_certificate(folder, ["lake.example"])
    (folder / "key.pem").write_bytes(key)  # the chain that belongs to it came no more
    tls_context(made_certificate(folder, ["lake.example"]))
    assert (folder / "ca.pem").read_bytes() == trusted


def test_the_word_store_is_no_folder_that_was_used_before(
    server: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = place(f"{server.bucket()}/lake")
    (tmp_path / "store/principals").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LakemirrorError, match=r"--state \./store"):
        own_folder(root, "store")
    assert own_folder(root, "./store") == Path("store") and own_folder(root, Path("store")) == Path("store")
    with pytest.raises(LakemirrorError, match=r"in no store.* \./store"):
        own_folder(tmp_path, "store")


@pytest.fixture
def proxied(server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Place, FaultProxy]]:
    """A root behind a proxy, with short pauses between repeated requests."""
    pauses = {"init_backoff": timedelta(milliseconds=5), "max_backoff": timedelta(milliseconds=50), "base": 2}
    monkeypatch.setitem(connections._RETRY, "backoff", pauses)
    monkeypatch.setitem(connections._RETRY, "retry_timeout", timedelta(seconds=1))
    with fault_proxy(server.endpoint) as proxy:
        bucket = server.bucket()
        connections.give_options(bucket, server.through(proxy.url))
        yield place(f"{bucket}/lake"), proxy
        connections.forget_all()


@pytest.mark.parametrize("fault", [LOST, ERROR])
def test_a_change_whose_answer_is_lost_is_made_once(proxied: tuple[Place, FaultProxy], fault: str) -> None:
    root, proxy = proxied
    known = Principals(root, IN_STORE)
    left = [fault, fault]
    proxy.fault = lambda method, path: left.pop() if left and (method, path[-5:]) == ("PUT", ".json") else ""
    known.add("writer", ["*=read"])
    assert not left
    issued = known.rotate("writer").principal
    assert Principals(root, IN_STORE).all() == [issued]


CHANGES: dict[str, Callable[[Principals], object]] = {
    "add": lambda known: known.add("reader", ["*=read"]),
    "remove": lambda known: known.remove("writer"),
    "rotate": lambda known: known.rotate("writer"),
    "move_roles": lambda known: known.move_roles("sales", "goods"),
}
LATER: dict[str, Sequence[Callable[[Principals], object]]] = {
    "add": [lambda others: others.rotate("reader"), lambda others: others.remove("reader")],
    "remove": [lambda others: others.add("writer", ["sales=read"])],
    "rotate": [lambda others: others.rotate("writer"), lambda others: others.remove("writer")],
    "move_roles": [lambda others: others.add("more", ["sales=read"]), lambda others: others.move_roles("goods", None)],
}


@pytest.mark.parametrize("is_repeated", [True, False], ids=["repeated", "refused"])
@pytest.mark.parametrize(("change", "later"), [(each, later) for each in CHANGES for later in LATER[each]])
def test_a_change_whose_answer_is_lost_is_not_made_over_a_later_one(
    proxied: tuple[Place, FaultProxy], change: str, later: Callable[[Principals], object], is_repeated: bool
) -> None:
    root, proxy = proxied
    known, others = Principals(root, IN_STORE), Principals(root, IN_STORE)
    others.add("writer", ["sales=read"])
    lost, left = threading.Event(), list[bytes]()

    def fault(method: str, path: str) -> str:
        if not path.endswith("principals.json"):
            return ""
        if method == "PUT" and not lost.is_set():
            lost.set()
            return LOST
        if lost.is_set() and not left:
            left.append(b"")
            later(others)
            left[0] = (others.own / "principals/principals.json").read_bytes()
        elif method == "PUT" and left[0] and not is_repeated:
            return ERROR
        return ""

    proxy.fault = fault
    CHANGES[change](known)
    assert left == [(known.own / "principals/principals.json").read_bytes()]
    known.follow()
    assert known.all() == Principals(root, IN_STORE).all()


def test_a_change_that_was_made_twice_by_a_repeated_request_counts_once(
    server: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeated conditional put meets its own object."""
    connections.give_options("", server.options)
    root = place(f"{server.bucket()}/lake")
    known = Principals(root, IN_STORE)
    put_over = ObjectStore.put_over

    def repeated(self: ObjectStore, key: str, data: bytes, tag: str) -> Entry | None:
        put_over(self, key, data, tag)
        return put_over(self, key, data, tag)

    monkeypatch.setattr(ObjectStore, "put_over", repeated)
    known.add("writer", ["*=read"])
    assert [each.name for each in Principals(root, IN_STORE).all()] == ["writer"]


def test_a_store_that_does_not_answer_changes_nothing_and_says_so(proxied: tuple[Place, FaultProxy]) -> None:
    root, proxy = proxied
    known = Principals(root, IN_STORE)
    known.add("writer", ["*=read"])
    proxy.down = True
    for act in (lambda: known.remove("writer"), known.follow):
        with pytest.raises(LakemirrorError) as refused:
            act()
        assert refused.value.code == "storage-unavailable" and refused.value.retry
    assert known.by_name("writer") is not None
    proxy.down = False
    known.remove("writer")
    assert Principals(root, IN_STORE).all() == []


def record(log: AuditLog, number: int) -> None:
    log.write(f"/{number}", 200, principal="p", operation="o", requestId="r", remote="::1")


def numbers_of(path: Place) -> list[int]:
    return [int(json.loads(line)["path"][1:]) for line in audit_lines(path)]


def test_the_audit_log_is_read_in_its_order(root: Place, state: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "DELAY", 0.05)
    monkeypatch.setattr(audit_log, "OBJECT", 1000)
    path = own_folder(root, state) / "audit.log"
    assert numbers_of(path) == []
    for begin in (0, 30):
        log = AuditLog(path)
        for number in range(begin, begin + 30):
            record(log, number)
            time.sleep(0.01 if number % 7 else 0.06)
        log.close()
    assert numbers_of(path) == list(range(60))


def test_the_oldest_of_an_audit_log_in_a_store_goes(server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "DELAY", 0.0)
    monkeypatch.setattr(audit_log, "OBJECT", 1)
    connections.give_options("", server.options)
    path = place(f"{server.bucket()}/lake/.lakemirror/audit.log")
    for number in range(12):
        log = AuditLog(path, most_bytes=100)
        record(log, number)
        log.close()
    found = numbers_of(path)
    assert found == list(range(12))[-len(found) :] and 4 <= len(found) < 12


def audited(
    proxied: tuple[Place, FaultProxy], monkeypatch: pytest.MonkeyPatch, pause: float
) -> tuple[Place, FaultProxy, AuditLog]:
    """An audit log behind a proxy, which is put after `pause` seconds, also after a failure."""
    for name in ("DELAY", "AGAIN"):
        monkeypatch.setattr(audit_log, name, pause)
    root, proxy = proxied
    path = root / ".lakemirror/audit.log"
    return path, proxy, AuditLog(path)


def test_who_asks_waits_until_its_audit_line_is_kept(
    proxied: tuple[Place, FaultProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, proxy, log = audited(proxied, monkeypatch, 1000.0)
    assert log.kept() is None
    for number in range(20):
        record(log, number)
        if number % 2:
            kept = log.kept()
            assert kept is not None and not kept.cancel()
            kept.result(60)
            assert numbers_of(path) == list(range(number + 1))
    assert log.kept() is None
    proxy.down = True
    record(log, 20)
    failed = [log.kept(), log.kept()]
    assert [each.result(60) for each in failed if each] == [None, None]  # it is written to the service's own log
    proxy.down = False
    log.close()
    assert numbers_of(path) == list(range(21))


def test_audit_lines_wait_for_a_store_that_fails(
    proxied: tuple[Place, FaultProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, proxy, log = audited(proxied, monkeypatch, 0.05)
    record(log, 0)
    proxy.down = True
    for number in range(1, 20):
        record(log, number)
    time.sleep(0.5)
    proxy.down = False
    for number in range(20, 30):
        record(log, number)
    log.close()
    assert numbers_of(path) == list(range(30))


class Machines:
    """Machines that serve one database of a store, one after the other."""

    def __init__(self, folder: Place, own: Path) -> None:
        self.folder, self._own, self._number = folder, own, 0
        self.copies = folder.parent / ".lakemirror/staged/x"

    def next(self, number: int = 0) -> DatabaseFiles:
        """The files as the next machine has them, or one that was there before."""
        self._number += 1
        files = DatabaseFiles(self.folder, self._own / str(number or self._number), self.copies)
        drop_published(files)
        return files

    def left(self) -> list[str]:
        return [path for path, _ in files_below(self.copies, lambda _: True)]


@pytest.fixture
def machines(server: StoreServer, tmp_path: Path) -> Iterator[Machines]:
    connections.give_options("", server.options)
    yield Machines(place(f"{server.bucket()}/shop"), tmp_path)
    connections.forget_all()


def append(files: DatabaseFiles, path: str, position: int, data: bytes, length: int | None = None) -> None:
    upload = files.uploads[path]
    file = upload.claim(position, length)
    with (upload.folder / file).open("r+b" if file == "data" else "wb") as target:
        target.seek(position if file == "data" else 0)
        target.write(data)
    files.copies.keep(upload, part := Part(position, len(data), file))
    upload.count(part)


def content(files: DatabaseFiles, path: str) -> bytes:
    file = files.published.open(path)
    return file.read_at(file.found.length, 0)


def test_an_upload_goes_on_with_the_parts_of_every_machine(machines: Machines) -> None:
    first = machines.next()
    created = create_file(first, FILE, Conditions())
    append(first, FILE, 4, b"ef", 2)
    append(first, FILE, 0, b"xxxx", 4)
    append(first, FILE, 0, b"abcd")  # over it: the later one counts
    append(first, FILE, 6, b"")
    second = machines.next()
    found = second.find(FILE)
    assert found == created and second.uploads[FILE].end == 6
    append(second, FILE, 6, b"gh", 2)
    third = machines.next()
    flush(third, FILE, 8, Conditions(), None)
    assert content(third, FILE) == b"abcdefgh" and machines.left() == []
    assert machines.next().uploads == {}


def test_appends_to_a_published_file_go_on_while_it_is_the_same(machines: Machines) -> None:
    first = machines.next()
    create_file(first, FILE, Conditions())
    append(first, FILE, 0, b"abc", 3)
    flush(first, FILE, 3, Conditions(), None)
    from lakemirror.service.storage.publish_file import begin_append

    begin_append(first, FILE)
    append(first, FILE, 3, b"def", 3)
    second = machines.next()
    upload = second.open_upload(FILE)
    assert upload is not None and (upload.base, upload.end) == (3, 6)
    flush(second, FILE, 6, Conditions(), None)
    assert content(second, FILE) == b"abcdef" and machines.left() == []


def test_of_two_appends_at_one_position_the_later_counts_whatever_the_clocks_say(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = machines.next()
    create_file(first, FILE, Conditions())
    with monkeypatch.context() as ahead:
        ahead.setattr(staged_copies, "now_ns", lambda: now_ns() + 3_600_000_000_000)
        append(first, FILE, 0, b"abc", 3)
    append(machines.next(), FILE, 0, b"xyz", 3)
    third = machines.next()
    flush(third, FILE, 3, Conditions(), None)
    assert content(third, FILE) == b"xyz"


def dies(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("other", [b"", b"abcdeX", b"ab"])
def test_what_was_published_at_the_death_of_a_machine_is_no_upload(
    machines: Machines, monkeypatch: pytest.MonkeyPatch, other: bytes
) -> None:
    first = machines.next()
    create_file(first, FILE, Conditions())
    append(first, FILE, 0, b"abc", 3)
    append(first, FILE, 3, b"def", 3)
    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(StagedCopies, "settle", dies)
        flush(first, FILE, 6, Conditions(), None)
    assert machines.left()
    if other:  # another program has put its own there: then the upload is still one
        (machines.folder / FILE).write_bytes(other)
    second = machines.next()
    found = second.find(FILE)
    assert found is not None and (found.length, found.is_staged) == ((0, True) if other else (6, False))
    assert bool(machines.left()) == bool(other)
    flush(second, FILE, 6, Conditions(), None)
    assert content(second, FILE) == b"abcdef" and machines.left() == []


def test_what_replaces_an_upload_ends_it_everywhere(machines: Machines) -> None:
    first = machines.next()
    for path in (FILE, f"{TABLE}/2.parquet"):
        create_file(first, path, Conditions())
        append(first, path, 0, b"abc", 3)
    complete = first.temporary("put")
    complete.write_bytes(b"new")
    sync_file(complete)
    publish(first, complete, FILE, Conditions(), "BlobAlreadyExists")
    assert {each.partition("/")[0] for each in machines.left()} == {first.uploads[f"{TABLE}/2.parquet"].folder.name}
    rename(first, TABLE, "Files/LandingZone/sales", Conditions(), Conditions())
    second = machines.next()
    assert list(second.uploads) == ["Files/LandingZone/sales/2.parquet"]
    assert second.uploads["Files/LandingZone/sales/2.parquet"].end == 0  # unflushed bytes are dropped


def test_blocks_go_on_and_what_nobody_goes_on_with_is_removed(machines: Machines) -> None:
    first = machines.next()
    for name, data in (("MQ==", b"one"), ("MQ==", b"1"), ("Mg==", b"two")):
        put_block(first, name, data)
    create_file(first, f"{TABLE}/2.parquet", Conditions())
    (machines.copies / "notes.txt").write_bytes(b"somebody's")
    second = machines.next()
    assert uncommitted(second, FILE) == [("MQ==", 1), ("Mg==", 3)]
    assert not (second.staging / "notes.txt").exists()
    second.copies.remove_old(time.time() - 3600)
    assert len(machines.left()) == 4
    second.copies.remove_old(time.time() + 3600)
    assert machines.left() == ["notes.txt"]


def put_block(files: DatabaseFiles, name: str, data: bytes) -> None:
    block = files.temporary("block")
    block.write_bytes(data)
    keep_block(files, FILE, name, block, Conditions())


def test_a_block_outlives_that_those_before_it_are_forgotten(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop, waiting = blocks.drop_blocks, [b"of the next file"]

    def drop_slowly(*of: Any) -> None:
        drop(*of)
        while waiting:  # another request comes before the copies are deleted
            put_block(files, "MQ==", waiting.pop())

    files = machines.next()
    put_block(files, "MQ==", b"published")
    put_block(files, "Mg==", b"left out")
    monkeypatch.setattr(blocks, "drop_blocks", drop_slowly)
    publish_blocks(files, FILE, [("Latest", "MQ==")], Conditions(), None)
    second = machines.next()
    assert content(second, FILE) == b"published" and uncommitted(second, FILE) == [("MQ==", 16)]
    put_block(second, "Mg==", b"its end")
    publish_blocks(second, FILE, [("Latest", "MQ=="), ("Latest", "Mg==")], Conditions(), None)
    assert content(second, FILE) == b"of the next fileits end" and machines.left() == []


def test_old_blocks_take_no_new_one_with_them(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    files = machines.next()
    put_block(files, "MQ==", b"old")
    remove_old_blocks(files, time.time() + 3600)
    put_block(files, "Mg==", b"new")
    files.copies.settle()
    assert uncommitted(files, FILE) == uncommitted(machines.next(), FILE) == [("Mg==", 3)]


def test_what_the_store_has_not_taken_is_not_acknowledged(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise LakemirrorError("storage-unavailable", "no answer")

    files = machines.next()
    create_file(files, FILE, Conditions())
    acts: list[Callable[[], object]] = [
        lambda: create_file(files, f"{TABLE}/2.parquet", Conditions()), lambda: append(files, FILE, 0, b"abc", 3)
    ]  # fmt: skip
    with monkeypatch.context() as down:
        for name in ("put_over", "put_table"):
            down.setattr(f"lakemirror.service.storage.staged_copies.{name}", fails)
        for act in acts:
            with pytest.raises(LakemirrorError):
                act()
    assert files.uploads[FILE].end == 0
    append(files, f"{TABLE}/2.parquet", 0, b"abc")  # its create has come with this
    assert machines.next().uploads[f"{TABLE}/2.parquet"].end == 3


def test_what_was_staged_on_a_disk_gives_way_to_the_copies(machines: Machines, tmp_path: Path) -> None:
    first = machines.next()
    create_file(first, FILE, Conditions())
    append(first, FILE, 0, b"abc", 3)
    block = first.temporary("block")
    block.write_bytes(b"one")
    keep_block(first, f"{TABLE}/2.parquet", "MQ==", block, Conditions())
    (first.staging / "notes.txt").write_text("somebody's")
    flush(machines.next(), FILE, 3, Conditions(), None)
    (machines.folder / FILE).write_bytes(b"later")
    again = machines.next(1)
    assert again.staging == first.staging and again.uploads == {}
    assert not list(again.staging.glob("up-*")) and (again.staging / "notes.txt").exists()
    assert uncommitted(again, f"{TABLE}/2.parquet") == [("MQ==", 3)]


class NoProcess:
    """What stands for the process of a capture. `began`: of all that began, what is declared and its password."""

    began: list[tuple[str, str | None]] = []  # noqa: RUF012, emptied by the test

    def __init__(self, declaration: CaptureDeclaration, folder: Place, own: Place, database: str) -> None:
        self.began.append((declaration.source, declaration.password(own)))
        self.ended = threading.Event()

    def stop(self) -> None:
        self.ended.set()


def test_captures_go_on_with_the_passwords_of_the_state(
    root: Place, state: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture_host, "CaptureProcess", NoProcess)
    NoProcess.began.clear()
    own = own_folder(root, state)
    shop = DatabaseEntry("aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", "shop", root / "sales/shop")
    first = CaptureHost(own)
    begin_folder(own / "secrets", "shop", b"secret\n")
    put_over(own / "secrets/shop", b"secret\n", durable=True)
    body = {"source": "postgresql://shop@db/shop", "passwordFrom": {"file": "shop"}, "tables": ["public.*"]}
    assert first.declare(shop, declared("shop", body))
    second = CaptureHost(own)
    second.follow([shop])
    assert NoProcess.began == [("postgresql://shop@db/shop", "secret")] * 2
    assert not second.declare(shop, declared("shop", {**body, "source": "postgresql://shop@other/shop"}))
    third = CaptureHost(own)
    third.follow([shop])
    assert [source for source, _ in NoProcess.began[2:]] == ["postgresql://shop@other/shop"] * 2
    third.forget(shop.id)
    CaptureHost(own).follow([shop])
    assert len(NoProcess.began) == 4


def test_a_state_folder_that_is_copied_into_the_store_goes_on(server: StoreServer, tmp_path: Path) -> None:
    """As the page says: all but what is staged and the audit log."""
    connections.give_options("", server.options)
    bucket = server.bucket()
    root = place(f"{bucket}/lake")
    before = Principals(root, tmp_path)
    before.add("writer", ["sales=read"])
    key, trusted = Tokens(tmp_path / "keys").key_id, made_certificate(tmp_path / "tls").authority
    for path in tmp_path.rglob("*"):
        if path.is_file():
            server.put(bucket, f"lake/.lakemirror/{path.relative_to(tmp_path).as_posix()}", path.read_bytes())
    after = Principals(root, IN_STORE)
    assert (after.tenant_id, after.all()) == (before.tenant_id, before.all())
    assert Tokens(after.own / "keys").key_id == key
    made = made_certificate(after.own / "tls")
    assert trusted and made.authority and made.authority.read_bytes() == trusted.read_bytes()


def test_a_root_on_a_disk_has_no_state_in_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LakemirrorError, match="is in no store: leave --state out") as refused:
        own_folder(place(str(tmp_path)), IN_STORE)
    assert refused.value.code == "service-option-invalid" and not (tmp_path / IN_STORE).exists()
    assert own_folder(place(str(tmp_path)), "./store") == Path("store")
