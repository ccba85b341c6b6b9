"""A service in a thread of the test's process, and a client that knows nothing but HTTP."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.seen_in_store import SeenInStore

from lakemirror.service.auth.audit_log import audit_lines
from lakemirror.service.auth.principals import Issued, Principals
from lakemirror.service.own_folder import IN_STORE
from lakemirror.service.service import Options, Service
from lakemirror.storage import Place, place


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> Any:
        return self.json.get("errorCode")


class Running:
    """A service that runs in its own thread."""

    def __init__(self, root: Path | Place | SeenInStore, **options: Any) -> None:
        """A root in a store needs the option `state`, or is seen with it; without one its state is in the store."""
        if isinstance(root, SeenInStore):
            options = {"state": root.own or IN_STORE, **options}
        self.root: Any = root
        self._loop = asyncio.new_event_loop()
        self._options = Options(port=0, **options)
        self._up = threading.Event()
        self.ended: bool | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._up.wait(30)
        self.port = int(self.service.url.rpartition(":")[2])
        self.url = f"https://localhost:{self.port}"
        self.ca = Path(str(options.get("state") or self.root / ".lakemirror")) / "tls/ca.pem"
        if options.get("state") == IN_STORE and self.service.authority_file is not None:
            self.ca = Path(tempfile.mkdtemp()) / "ca.pem"
            self.ca.write_bytes(self.service.authority_file.read_bytes())

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self.service = Service(place(str(self.root)), self._options)
        self._loop.run_until_complete(self.service.start())
        self._up.set()
        self._loop.run_forever()

    def stop(self) -> None:
        self.ended = asyncio.run_coroutine_threadsafe(self.service.stop(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def audit(self) -> str:
        """The audit log so far, on a disk or in a store."""
        lines = self.service._audit._lines
        until(lambda: not getattr(lines, "_waiting", b""))
        return b"".join(audit_lines(self.service._own / "audit.log")).decode()

    def connection(self) -> http.client.HTTPConnection:
        if self._options.clear:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        context = ssl.create_default_context(cafile=str(self.ca))
        return http.client.HTTPSConnection("localhost", self.port, timeout=30, context=context)

    def send(
        self, method: str, path: str, body: Any = None, *, token: str = "", headers: Mapping[str, str] | None = None
    ) -> Answer:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = dict(headers or {})
        if token:
            sent["Authorization"] = f"Bearer {token}"
        connection = self.connection()
        try:
            connection.request(method, path, data, sent)
            found = connection.getresponse()
            return Answer(found.status, found.headers, found.read())
        finally:
            connection.close()

    def token(self, issued: Issued, **form: str) -> str:
        answer = self.ask_token(issued, **form)
        assert answer.status == 200, answer.body
        return str(answer.json["access_token"])

    def ask_token(self, issued: Issued, tenant: str = "adfs", **form: str) -> Answer:
        fields = {
            "grant_type": "client_credentials",
            "client_id": issued.principal.client_id,
            "client_secret": issued.client_secret,
            "scope": "https://storage.azure.com/.default",
            **form,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        return self.send("POST", f"/{tenant}/oauth2/v2.0/token", urlencode(fields).encode(), headers=headers)

    def create(self, token: str, name: str, workspace: str = "sales", start: bool = False, **inner: Any) -> str:
        answer = self.send("POST", f"/v1/workspaces/{workspace}/mirroredDatabases", new(name, **inner), token=token)
        assert answer.status == 201, answer.body
        database = str(answer.json["id"])
        if start:
            self.send("POST", f"/v1/workspaces/{workspace}/mirroredDatabases/{database}/startMirroring", token=token)
        return database


def principals_of(root: Any) -> Principals:
    """The principals of a root, also of one in a store."""
    return Principals(place(str(root)), root.own or IN_STORE) if isinstance(root, SeenInStore) else Principals(root)


def new(name: str, definition: Any = None, **more: Any) -> dict[str, Any]:
    """The body that makes a mirrored database."""
    if definition is None:
        target = {"type": "MountedRelationalDatabase", "typeProperties": {"format": "Delta"}}
        source = {"type": "GenericMirror", "typeProperties": {}}
        definition = {"properties": {"source": source, "target": target}}
    data = definition if isinstance(definition, bytes) else json.dumps(definition).encode()
    part = {"path": "mirroring.json", "payload": base64.b64encode(data).decode(), "payloadType": "InlineBase64"}
    return {"displayName": name, "definition": {"parts": [part]}, **more}


def until(act: Callable[[], Any], seconds: float = 20.0) -> Any:
    """What `act` gives back once that is true."""
    deadline = time.monotonic() + seconds
    while True:
        found = act()
        if found or time.monotonic() > deadline:
            assert found
            return found
        time.sleep(0.05)
