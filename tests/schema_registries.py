"""A schema registry for tests, on loopback: what it was asked, and answers that a test gives it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Registry:
    """Schemas by number. `asked`: the paths, in order. `answers`: states that come before any schema.

    `user_info`: `USER:PASSWORD` that is asked for; empty: nobody is.
    """

    def __init__(self, schemas: dict[str, Any], user_info: str = "") -> None:
        self.schemas, self.user_info = schemas, user_info
        self.asked: list[str] = []
        self.authorizations: list[str | None] = []
        self.answers: list[int] = []
        self.address = ""

    def answer(self, path: str) -> tuple[int, Any]:
        if self.answers:
            return self.answers.pop(0), {"error_code": 50001}
        found = self.schemas.get(path.rpartition("/")[2])
        if found is None:
            return 404, {"error_code": 40403, "message": "Schema not found"}
        return 200, found if "schema" in found else {"schema": json.dumps(found)}


@contextmanager
def running(registry: Registry) -> Iterator[Registry]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            import base64

            registry.asked.append(self.path)
            registry.authorizations.append(self.headers.get("Authorization"))
            wanted = f"Basic {base64.b64encode(registry.user_info.encode()).decode()}"
            status, said = registry.answer(self.path)
            if registry.user_info and registry.authorizations[-1] != wanted:
                status, said = 401, {"error_code": 401}
            body = json.dumps(said).encode()
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


__all__ = ["Registry", "running"]
