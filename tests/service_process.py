"""A real service: `lakemirror serve` in a process that can be stopped and killed, and a client that knows only HTTP."""

from __future__ import annotations

import base64
import http.client
import json
import signal
import socket
import ssl
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from lakemirror.service.auth.principals import Issued, Principals
from lakemirror.storage import place
from tests import preloaded
from tests.free_ports import free_port


@dataclass
class Answer:
    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class ServiceProcess:
    """The service of one root folder, on one port from start to start.

    `address`: of a root in a store; then `root` is the service's own folder on a disk, or with `in_store` an empty
    folder, and the service's own files are in the store.
    """

    root: Path
    log: Path
    port: int = 0
    environment: dict[str, str] | None = None
    address: str = ""
    in_store: bool = False
    _process: subprocess.Popen[bytes] | None = None
    _tokens: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"

    @property
    def ca(self) -> Path:
        if self.in_store:
            copy = self.root / "ca.pem"
            copy.write_bytes((place(self.address) / ".lakemirror/tls/ca.pem").read_bytes())
            return copy
        return self.root / ("" if self.address else ".lakemirror") / "tls/ca.pem"

    def principal(self, name: str, *roles: str) -> Issued:
        """A principal, made before the service starts."""
        if self.address:
            return Principals(place(self.address), self.state).add(name, list(roles))
        return Principals(self.root).add(name, list(roles))

    @property
    def state(self) -> str:
        """The option `--state` of a root in a store."""
        return "store" if self.in_store else str(self.root)

    def start(self) -> None:
        """Starts the service and waits until it listens."""
        root = [self.address, "--state", self.state] if self.address else [str(self.root)]
        words = [sys.executable, "-m", "lakemirror.cli", "serve", *root, "--port", str(self.port)]
        with self.log.open("ab") as said:
            self._process = preloaded.Popen(words, stdout=said, stderr=said, env=self.environment)
        end = time.monotonic() + 60
        while socket.socket().connect_ex(("127.0.0.1", self.port)):
            assert time.monotonic() < end and self._process.poll() is None, self.said()
            time.sleep(0.05)

    def end(self, number: int = signal.SIGKILL) -> int:
        """Ends the service by a signal; its exit code."""
        assert self._process is not None
        self._process.send_signal(number)
        code = self._process.wait(90)
        self._process = None
        return code

    def close(self) -> None:
        """Ends a service that still runs."""
        if self._process is not None:
            self.end(signal.SIGTERM)

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def token(self, issued: Issued) -> str:
        """A token of a principal."""
        name = issued.principal.name
        if name not in self._tokens:
            form = {
                "grant_type": "client_credentials", "client_id": name, "client_secret": issued.client_secret,
                "scope": "https://storage.azure.com/.default",
            }  # fmt: skip
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            answer = self._send("POST", "/adfs/oauth2/v2.0/token", urlencode(form).encode(), headers)
            assert answer.status == 200, answer.body
            self._tokens[name] = answer.json["access_token"]
        return self._tokens[name]

    def ask(self, issued: Issued, method: str, path: str, body: Any = None) -> Answer:
        """A call of the REST interface, or of another plane that takes tokens."""
        data = None if body is None else json.dumps(body).encode()
        return self._send(method, path, data, {"Authorization": f"Bearer {self.token(issued)}"})

    def send(self, issued: Issued, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """A call of the storage endpoint."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self._send(method, path, body, {"Authorization": f"Bearer {self.token(issued)}", **named})

    def page(self, issued: Issued, path: str) -> Answer:
        """A page, or its twin."""
        secret = base64.b64encode(f"{issued.principal.name}:{issued.client_secret}".encode()).decode()
        return self._send("GET", path, None, {"Authorization": f"Basic {secret}"})

    def database(self, issued: Issued, name: str, workspace: str = "sales") -> str:
        """The address of a new database below `/v1`, which runs."""
        definition = base64.b64encode(b'{"properties": {"source": {"type": "GenericMirror", "typeProperties": {}}}}')
        part = {"path": "mirroring.json", "payload": definition.decode(), "payloadType": "InlineBase64"}
        all_ = f"/v1/workspaces/{workspace}/mirroredDatabases"
        made = self.ask(issued, "POST", all_, {"displayName": name, "definition": {"parts": [part]}})
        assert made.status == 201, made.body
        address = f"{all_}/{made.json['id']}"
        assert self.ask(issued, "POST", f"{address}/startMirroring").status == 200
        return address

    def _send(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        context = ssl.create_default_context(cafile=str(self.ca))
        connection = http.client.HTTPSConnection("localhost", self.port, timeout=90, context=context)
        try:
            connection.request(method, path, body, headers)
            found = connection.getresponse()
            return Answer(found.status, found.read())
        finally:
            connection.close()


__all__ = ["Answer", "ServiceProcess"]
