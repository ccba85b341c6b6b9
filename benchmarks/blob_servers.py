"""The servers that `benchmarks.service` puts files into: lakemirror's service, and Azurite."""

from __future__ import annotations

import base64
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from benchmarks.runner import say
from lakemirror.service.auth.principals import Principals

_AZURITE_ACCOUNT = "bench"
_AZURITE_KEY = base64.b64encode(b"a key for one run of a benchmark").decode()


@dataclass(frozen=True)
class Target:
    """Where Put Blob goes: the path before a file's name, and the query that signs it."""

    port: int
    path: str
    signature: str
    process: int


@contextmanager
def lakemirror(root: Path) -> Iterator[Target]:
    """A service of this root, with the empty database `shop` besides what is there."""
    root.mkdir(parents=True, exist_ok=True)
    issued = Principals(root).add("bench", ["sales=contribute"]).shown()
    (root / "sales/shop/Files/LandingZone").mkdir(parents=True)
    words = [sys.executable, "-m", "lakemirror.cli", "serve", str(root), "--http", "--port", "0"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        port = next(
            int(found[1]) for line in process.stderr if (found := re.match(r"serving .*:(\d+)$", line.rstrip()))
        )
        said = process.stderr
        threading.Thread(target=lambda: [None for _ in said], daemon=True).start()
        signature = _signature("bench", issued["account_key"])
        yield Target(port, "/bench/sales/shop/Files/bench", signature, process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


@contextmanager
def azurite(folder: Path, npm: str) -> Iterator[Target | None]:
    program = Path(npm) / "node_modules/azurite/dist/src/blob/main.js"
    if not npm or not program.exists():
        say("Azurite is left out: --azurite names no folder in which `npm install azurite` was run")
        yield None
        return
    folder.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [
        "node",
        program,
        "--silent",
        "--disableTelemetry",
        "--skipApiVersionCheck",
        "--blobHost",
        "127.0.0.1",
        "--blobPort",
        str(port),
    ]
    accounts = {**os.environ, "AZURITE_ACCOUNTS": f"{_AZURITE_ACCOUNT}:{_AZURITE_KEY}"}
    process = subprocess.Popen([*map(str, words), "--location", str(folder)], stdout=subprocess.DEVNULL, env=accounts)
    try:
        signature = _signature(_AZURITE_ACCOUNT, _AZURITE_KEY)
        for _ in range(300):
            try:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                path = f"/{_AZURITE_ACCOUNT}/bench?restype=container&{signature}"
                connection.request("PUT", path, headers={"Content-Length": "0"})
                answer = connection.getresponse()
                assert answer.status == 201, answer.read()
                break
            except OSError:
                time.sleep(0.1)
        yield Target(port, f"/{_AZURITE_ACCOUNT}/bench", signature, process.pid)
    finally:
        process.terminate()
        process.wait(30)


def _signature(account: str, key: str) -> str:
    """An account SAS for an hour."""
    from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas

    now = datetime.now(timezone.utc)
    may = AccountSasPermissions(read=True, write=True, create=True)
    begin, end = now - timedelta(minutes=5), now + timedelta(hours=1)
    return generate_account_sas(account, key, ResourceTypes(container=True, object=True), may, end, start=begin)
