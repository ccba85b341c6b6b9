"""Servers of Unity Catalog's interface with a catalog `unity` that can be written: one in memory, and the real one."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qsl, unquote
from urllib.request import urlopen
from uuid import uuid4

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from lakemirror.readers.unity_columns import columns_of

API = "/api/2.1/unity-catalog"
CONTROL = "/api/1.0/unity-control"
TOKEN = "a token"
_START = """
public class Start {
  public static void main(String[] words) throws Exception {
    io.unitycatalog.server.UnityCatalogServer.builder().port(Integer.parseInt(words[0])).build().start();
    Thread.currentThread().join();
  }
}
"""  # its own main listens on every address of the machine


class _Handler(BaseHTTPRequestHandler):
    """As the real server answers: pages of two, deletes without JSON, names without spaces. `old`: without Delta's
    interface."""

    tables: dict[str, dict[str, Any]]
    schemas: set[str]
    old: bool

    def do_GET(self) -> None:
        kind, _, query = self.path.removeprefix(f"{API}/").partition("?")
        if kind.startswith("tables/"):
            known = self.tables.get(unquote(kind.removeprefix("tables/")))
            return self._answer(200 if known else 404, known or {"message": "Table not found"})
        asked = dict(parse_qsl(query))
        names = sorted(
            self.schemas
            if kind == "schemas"
            else [name for name, each in self.tables.items() if each["schema_name"] == asked["schema_name"]]
        )
        begin = int(asked.get("page_token", 0))
        shown = names[begin : begin + 2]
        rows = [self.tables[name] if kind == "tables" else {"name": name} for name in shown]
        return self._answer(200, {kind: rows, "next_page_token": str(begin + 2) if len(names) > begin + 2 else None})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.startswith(f"{API}/delta/"):
            return self._change(body)
        if " " in body["name"]:
            return self._answer(400, {"error_code": "INVALID_ARGUMENT", "message": "Name cannot contain a space"})
        if self.path == f"{API}/schemas":
            self.schemas.add(body["name"])
        elif body["schema_name"] not in self.schemas:
            return self._answer(404, {"error_code": "NOT_FOUND", "message": "Schema not found"})
        else:
            body["table_id"] = str(uuid4())
            self.tables[f"unity.{body['schema_name']}.{body['name']}"] = body
        return self._answer(200, body)

    def _change(self, body: dict[str, Any]) -> None:
        if self.old:
            return self._answer(404, "")
        parts = self.path.removeprefix(f"{API}/delta/v1/catalogs/").split("/")
        table = self.tables[".".join(unquote(part) for part in parts[::2])]
        (known,), (columns, partitions) = body["requirements"], body["updates"]
        assert (known["type"], known["uuid"]) == ("assert-table-uuid", table["table_id"])
        assert (columns["action"], partitions["action"]) == ("set-columns", "set-partition-columns")
        table["columns"] = columns_of(columns["columns"], partitions["partition-columns"])
        return self._answer(200, {})

    def do_DELETE(self) -> None:
        known = self.tables.pop(unquote(self.path.rpartition("/")[2]), None)
        self._answer(200 if known else 404, "200 OK")

    def _answer(self, status: int, content: Any) -> None:
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            status, content = 401, {"message": "UNAUTHENTICATED"}
        self.send_response(status)
        self.end_headers()
        self.wfile.write((content if isinstance(content, str) else json.dumps(content)).encode())

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def in_memory(*, old: bool = False) -> Iterator[str]:
    """Its address."""
    handler = type("Handler", (_Handler,), {"tables": {}, "schemas": {"default"}, "old": old})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def real(folder: Path, port: int, *, authorized: bool = False) -> Iterator[str]:
    """Its address. Skips without the server's classes. `authorized`: who asks needs a token of `token_of`."""
    classes = os.environ.get("UNITY_SERVER_CLASSPATH")
    if not classes:
        pytest.skip(
            "UNITY_SERVER_CLASSPATH names no classes of Unity Catalog's server (unitycatalog-server and what it needs)"
        )
    (folder / "etc/conf").mkdir(parents=True)
    (folder / "etc/conf/server.properties").write_text(
        f"server.env=test\nserver.authorization={'enable' if authorized else 'disable'}\n"
        "server.allowed-issuers=https://nobody.example\nserver.audiences=nothing\n"
    )
    (folder / "etc/conf/hibernate.properties").write_text(
        "hibernate.connection.driver_class=org.h2.Driver\nhibernate.hbm2ddl.auto=update\n"
        "hibernate.connection.url=jdbc:h2:file:./etc/db/h2db;DB_CLOSE_DELAY=-1\n"
    )
    (folder / "Start.java").write_text(_START)
    command = ["java", "-Xmx512m", "-cp", classes, "Start.java", str(port)]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(360):
            assert server.poll() is None, (folder / "log").read_text()[-2000:]
            try:
                urlopen(f"{url}{API}/catalogs").close()
                break
            except HTTPError:  # without a token
                break
            except OSError:
                time.sleep(0.5)
        yield url
    finally:
        server.terminate()
        server.wait(60)


def token_of(folder: Path, user: str) -> str:
    """A token of the `real` server in a folder, signed with its key, for one of its users; `admin` owns everything."""
    key = serialization.load_der_private_key((folder / "etc/conf/private_key.der").read_bytes(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    claims = {"iss": "internal", "sub": user, "type": "ACCESS", "iat": int(time.time()), "jti": str(uuid4())}
    return jwt.encode(claims, key, "RS512", {"kid": (folder / "etc/conf/key_id.txt").read_text().strip()})
