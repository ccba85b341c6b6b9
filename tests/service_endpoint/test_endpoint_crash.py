"""kill -9 between stage, sync, rename and answer: nothing acknowledged is lost, nothing unfinished is seen."""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from endpoint_double import DATABASE_ID
from tests import preloaded
from tests.object_stores import StoreServer, s3_server
from wire import ZONE, Wire

from lakemirror.failpoints import STORAGE_NAMES

DATA = [b"first " * 1000, b"second " * 1000]
LENGTH = sum(map(len, DATA))


def full(failpoint: str) -> Any:
    return pytest.param(failpoint, marks=pytest.mark.full)


class Killed:
    """The endpoint in a process of its own, started again after it died.

    `store`: has the copies of what is staged, and each start is on a machine that has nothing of it.
    """

    def __init__(self, root: Path, store: StoreServer | None = None) -> None:
        self.root = root
        self.environment = {} if store is None else {**store.options, "STAGED_COPIES": f"{store.bucket()}/staged"}
        self.file = root / "ws" / "sales" / "Files" / "LandingZone" / "t" / "1.parquet"
        self.process: subprocess.Popen[str] | None = None
        self.wire: Wire | None = None

    def start(self, failpoint: str = "") -> Wire:
        self.stop()
        environment = {**os.environ, **self.environment, "LAKEMIRROR_FAILPOINT": failpoint}
        if self.environment:
            shutil.rmtree(self.root / ".lakemirror", ignore_errors=True)
        program = [sys.executable, str(Path(__file__).with_name("endpoint_double.py")), str(self.root)]
        self.process = preloaded.Popen(program, stdout=subprocess.PIPE, text=True, env=environment)
        assert self.process.stdout is not None
        self.wire = Wire(int(self.process.stdout.readline()))
        return self.wire

    def died(self) -> bool:
        assert self.process is not None
        return self.process.wait(10) == -signal.SIGKILL

    def stop(self) -> None:
        if self.wire is not None:
            self.wire.close()
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.kill()
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()


@pytest.fixture(scope="module")
def store() -> Iterator[StoreServer]:
    with s3_server() as server:
        yield server


@pytest.fixture(params=["here", "elsewhere"])
def killed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Killed]:
    """Started again on the same machine, and on one that has nothing but the store."""
    server = Killed(tmp_path, request.getfixturevalue("store") if request.param == "elsewhere" else None)
    yield server
    server.stop()


def ends(wire: Wire, method: str, target: str, body: bytes | None = None, **headers: str) -> None:
    """The request that the process does not survive."""
    with pytest.raises((http.client.HTTPException, OSError)):
        wire(method, target, body, **headers)


def test_every_place_of_an_upload_is_one_where_a_test_here_kills() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert [name for name in STORAGE_NAMES if f'"{name}' not in text] == []


FILE = f"{ZONE}/t/1.parquet"
FLUSH = f"{FILE}?action=flush&position={LENGTH}"


@pytest.mark.parametrize("failpoint", [full("publish.synced"), "publish.renamed", full("publish.durable")])
def test_a_flush_that_is_killed_can_be_repeated(killed: Killed, failpoint: str) -> None:
    assert failpoint in STORAGE_NAMES
    wire = killed.start(failpoint)
    assert wire("PUT", f"{FILE}?resource=file").status == 201
    assert wire("PATCH", f"{FILE}?action=append&position={len(DATA[0])}", DATA[1]).status == 202
    assert wire("PATCH", f"{FILE}?action=append&position=0", DATA[0]).status == 202
    ends(wire, "PATCH", FLUSH)
    assert killed.died()
    assert not killed.file.exists() or killed.file.read_bytes() == b"".join(DATA)
    wire = killed.start()
    if failpoint != "publish.synced":
        assert wire("GET", FILE).body == b"".join(DATA)
    assert wire("PATCH", FLUSH).status == 200
    assert killed.file.read_bytes() == b"".join(DATA)
    assert wire("GET", FILE).body == b"".join(DATA)
    assert list((killed.root / ".lakemirror" / "staged" / DATABASE_ID).glob("up-*")) == []


@pytest.mark.parametrize("failpoint", [full("upload.created"), "upload.written:2", full("upload.counted:2")])
def test_an_upload_goes_on_after_the_restart(killed: Killed, failpoint: str) -> None:
    wire = killed.start(failpoint)
    if failpoint == "upload.created":
        ends(wire, "PUT", f"{FILE}?resource=file")
        wire = killed.start()
        assert wire("HEAD", FILE).headers["Content-Length"] == "0"
        assert wire("PATCH", f"{FILE}?action=append&position=0", DATA[0]).status == 202
    else:
        assert wire("PUT", f"{FILE}?resource=file").status == 201
        assert wire("PATCH", f"{FILE}?action=append&position=0", DATA[0]).status == 202
        ends(wire, "PATCH", f"{FILE}?action=append&position={len(DATA[0])}", DATA[1])
        wire = killed.start()
    assert not killed.file.exists()
    assert wire("PATCH", f"{FILE}?action=append&position={len(DATA[0])}", DATA[1]).status == 202
    assert wire("PATCH", FLUSH).status == 200
    assert killed.file.read_bytes() == b"".join(DATA)


@pytest.mark.full
def test_blocks_outlive_the_process(killed: Killed) -> None:
    wire = killed.start("block.staged:2")
    assert wire("PUT", f"{FILE}?comp=block&blockid=MQ==", DATA[0]).status == 201
    ends(wire, "PUT", f"{FILE}?comp=block&blockid=Mg==", DATA[1])
    wire = killed.start("publish.synced")
    body = b"<BlockList><Latest>MQ==</Latest><Latest>Mg==</Latest></BlockList>"
    ends(wire, "PUT", f"{FILE}?comp=blocklist", body)
    assert not killed.file.exists()
    wire = killed.start()
    assert wire("PUT", f"{FILE}?comp=blocklist", body).status == 201
    assert killed.file.read_bytes() == b"".join(DATA)


@pytest.mark.parametrize("failpoint", ["rename.done", full("remove.done")])
def test_a_rename_or_delete_is_done_or_not(killed: Killed, failpoint: str) -> None:
    wire = killed.start(failpoint)
    wire.upload("t/_tmp", b"abc")
    if failpoint == "rename.done":
        ends(wire, "PUT", FILE, x_ms_rename_source=f"{ZONE}/t/_tmp")
        assert killed.start()("GET", FILE).body == b"abc"
    else:
        ends(wire, "DELETE", f"{ZONE}/t?recursive=true")
        assert killed.start()("HEAD", f"{ZONE}/t").status == 404


def test_a_publish_syncs_the_file_before_and_the_folders_after_its_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lakemirror.service.storage.conditions import Conditions
    from lakemirror.service.storage.database_files import DatabaseFiles
    from lakemirror.service.storage.publish_file import create_file, flush, publish, sync_file

    acts: list[str] = []
    fsync, rename = os.fsync, os.rename

    def recorded_fsync(file: int) -> None:
        acts.append(f"fsync {str(Path(f'/proc/self/fd/{file}').readlink()).removeprefix(str(tmp_path))}")
        fsync(file)

    def recorded_rename(source: object, target: object, **fds: int) -> None:
        acts.append(f"rename {target}")
        rename(source, target, **fds)  # type: ignore[call-overload]

    (tmp_path / "db").mkdir()
    files = DatabaseFiles(tmp_path / "db", tmp_path / "staged")
    create_file(files, "Files/LandingZone/t/1.parquet", Conditions())
    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "rename", recorded_rename)
    flush(files, "Files/LandingZone/t/1.parquet", 0, Conditions(), None)
    assert acts[0].startswith("fsync /staged/up-") and acts[1] == "rename 1.parquet"
    assert acts[2] == "fsync /db/Files/LandingZone/t"
    assert {"fsync /db", "fsync /db/Files", "fsync /db/Files/LandingZone"} <= set(acts[2:])
    acts.clear()
    complete = files.temporary("put")
    complete.write_bytes(b"x")
    sync_file(complete)
    publish(files, complete, "Files/LandingZone/t/2.parquet", Conditions(), "BlobAlreadyExists")
    assert len(acts) == 3 and acts[2] == "fsync /db/Files/LandingZone/t"


@pytest.mark.full
def test_random_kills_lose_nothing(killed: Killed) -> None:
    acknowledged: dict[str, bytes] = {}
    number = 0
    for turn in range(20):
        wire = killed.start()
        stop_at = time.monotonic() + 0.05 * (turn % 5 + 1)
        with suppress(http.client.HTTPException, OSError):
            while True:
                number += 1
                name, data = f"t/{number:020d}.parquet", f"{number} ".encode() * 5000
                if time.monotonic() > stop_at and killed.process is not None:
                    killed.process.kill()
                wire.upload(name, data)
                acknowledged[name] = data
    zone = killed.file.parents[1]
    seen = {f"t/{path.name}": path.read_bytes() for path in (zone / "t").iterdir()}
    assert acknowledged and acknowledged.items() <= seen.items()
    assert all(data == f"{int(name[2:22])} ".encode() * 5000 for name, data in seen.items())


@pytest.mark.full
def test_memory_does_not_grow_with_the_file(killed: Killed) -> None:
    wire = killed.start()
    assert killed.process is not None
    wire.upload("t/small", b"x" * 1000)
    size, piece = 256 << 20, b"x" * (1 << 20)
    for headers in (f"Content-Length: {size}", "Transfer-Encoding: chunked"):
        connection = http.client.HTTPConnection("127.0.0.1", wire.port)
        name, _, value = headers.partition(": ")
        sent = {"Authorization": "Bearer loader", "x-ms-blob-type": "BlockBlob", name: value}
        chunked = value == "chunked"
        connection.request("PUT", FILE, (piece for _ in range(size >> 20)), sent, encode_chunked=chunked)
        assert connection.getresponse().status == 201
        connection.close()
        assert killed.file.stat().st_size == size
    connection = http.client.HTTPConnection("127.0.0.1", wire.port)
    connection.request("GET", FILE, headers={"Authorization": "Bearer loader"})
    answer = connection.getresponse()
    assert sum(len(data) for data in iter(lambda: answer.read(1 << 20), b"")) == size
    connection.close()
    peak = next(
        int(line.split()[1])
        for line in Path(f"/proc/{killed.process.pid}/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    assert peak < 200_000, "kB"
