"""A service beside the soak's engines: clients that send slowly, and definitions with settings that are not theirs."""

from __future__ import annotations

import base64
import contextlib
import http.client
import importlib.util
import json
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.free_ports import free_port

from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing
from lakemirror.service.auth.principals import Principals
from lakemirror.service.rest import definition

WORKSPACE = "soak"
_MANY = 520 if importlib.util.find_spec("lakemirror.service.under_way") else 20
"""Slow connections at one time: as many as once stopped a service for everybody, where it bounds them."""

_OWNED = hasattr(definition, "stored_definition")  # a definition is held against who owns a setting
_PATIENCE = 20.0  # seconds for an answer on a machine that does much else
_FOREIGN: dict[str, Any] = {
    "cache_dir": "soak", "memory": 10**13, "key_index_bytes": 10**13, "spark": {"spark.x": "1"}, "jars": "/x.jar",
    "engine": "spark", "durability": "process", "trust_footers": True, "drop_after": 0, "settle": 0,
}  # fmt: skip


class Served:
    """One service with one database, started by its first act. `findings`: what must not have happened."""

    def __init__(self, place: Path) -> None:
        self.findings: list[str] = []
        self._root = place / "served"
        self._log = place / "serve.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._slow: list[socket.socket] = []
        self._principal: Any = None
        self._token = ""
        self._port = 0
        self._rows = 0

    def be_slow(self, chance: random.Random) -> str:
        """Many clients send the begin of a body, those of an earlier act one more byte; others are served meanwhile."""
        self._start()
        for each in self._slow:
            with contextlib.suppress(OSError):
                each.send(b"x")
        if chance.random() < 0.3:
            self._close()
        lines = ("POST /adfs/oauth2/v2.0/token", f"POST /v1/workspaces/{WORKSPACE}/mirroredDatabases")
        while len(self._slow) < _MANY:
            line = f"{chance.choice(lines)} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\n"
            self._slow.append(socket.create_connection(("127.0.0.1", self._port), _PATIENCE))
            with contextlib.suppress(OSError):
                self._slow[-1].sendall(line.encode())
        if not (ready := self._ready()):
            self.findings.append("the service is not ready beside slow clients")
        return f"{len(self._slow)} slow: ready {ready}, {self._publish()}"

    def set_foreign(self, chance: random.Random) -> str:
        """A definition sets something of the operator's, or of the process: it is refused."""
        if not _OWNED:
            return "left out: a definition is not held against who owns a setting"
        self._start()
        name = chance.choice(sorted(_FOREIGN))
        content = json.dumps({"lakemirror": {name: _FOREIGN[name]}}).encode()
        part = {"path": "mirroring.json", "payload": base64.b64encode(content).decode(), "payloadType": "InlineBase64"}
        body: dict[str, Any] = {"definition": {"parts": [part]}}
        target = f"/v1/workspaces/{WORKSPACE}/mirroredDatabases"
        if chance.random() < 0.5:
            body["displayName"] = f"db{chance.randrange(10**9)}"
        else:
            databases = json.loads(self._ask("GET", target)[1])["value"]
            target = f"{target}/{databases[0]['id']}/updateDefinition"
        status, answer = self._ask("POST", target, json.dumps(body).encode())
        if status != 400 or b"InvalidDefinition" not in answer:
            self.findings.append(f"a definition set {name}: {status} {answer[:200]!r}")
        return f"{name}: {status}"

    def end(self) -> None:
        """Ends the service: within 40 s, whatever clients do, without a traceback."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(60)
            if code:
                self.findings.append(f"the service ended with {code}")
        except subprocess.TimeoutExpired:
            self.findings.append("SIGTERM did not end the service within 60 s")
        self.kill()
        if "Traceback" in self._log.read_text(errors="replace"):
            self.findings.append("a traceback is in the log of the service")

    def kill(self) -> None:
        """Leaves no process behind."""
        self._close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _start(self) -> None:
        if self._process is not None:
            return
        (self._root / WORKSPACE / "db" / "Files" / "LandingZone").mkdir(parents=True)
        issued = Principals(self._root).add("loader", [f"{WORKSPACE}=contribute"])
        self._principal = issued.shown()
        self._port = free_port()
        words = [sys.executable, "-m", "lakemirror.cli", "serve", str(self._root), "--http", "--port", str(self._port)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(words, stdout=log, stderr=log)
        until = time.monotonic() + 120
        while not self._ready() and time.monotonic() < until and self._process.poll() is None:
            time.sleep(0.1)
        form = {
            "grant_type": "client_credentials", "client_id": issued.principal.client_id,
            "client_secret": issued.client_secret, "scope": "https://storage.azure.com/.default",
        }  # fmt: skip
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        status, answer = self._ask("POST", "/adfs/oauth2/v2.0/token", urlencode(form).encode(), headers)
        self._token = json.loads(answer)["access_token"] if status == 200 else ""

    def _ready(self) -> bool:
        try:
            return self._ask("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def _publish(self) -> str:
        """One row by a publisher like any other: within PATIENCE."""
        begun = time.monotonic()
        address = f"http://127.0.0.1:{self._port}/{WORKSPACE}/db"
        try:
            Landing(address, self._principal).table("orders", keys=["id"]).insert([{"id": self._rows}])
        except LakemirrorError as error:
            self.findings.append(f"nothing can be published beside slow clients: {error}")
            return error.code
        self._rows += 1
        took = time.monotonic() - begun
        if took > _PATIENCE:
            self.findings.append(f"a publish beside slow clients took {took:.0f} s")
        return f"published in {took:.1f} s"

    def _ask(
        self, method: str, target: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:  # fmt: skip
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_PATIENCE)
        try:
            given = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
            connection.request(method, target, body, {**given, **(headers or {})})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def _close(self) -> None:
        for each in self._slow:
            each.close()
        self._slow = []
