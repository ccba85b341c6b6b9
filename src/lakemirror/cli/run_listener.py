"""`lakemirror run --listen HOST:PORT`: `/metrics`, `/livez`, `/readyz` of the engine, with the names of the service.

Whoever reaches the address reads the tables' names and states: bind it to where only the monitoring is.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from lakemirror.errors import LakemirrorError

if TYPE_CHECKING:
    from lakemirror.api import MirroredDatabase

_PATIENCE = 10.0  # seconds that a client has for its request


def listen(address: str, opened: MirroredDatabase, name: str) -> str:
    """Answers from threads of its own as long as the process lives. Returns the address, with the port that was free
    for port 0. `name`: of the database in the metrics.

    LakemirrorError `listen-failed`, `service-extra-missing`.
    """
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise LakemirrorError("listen-failed", f"{address!r} is no address such as 127.0.0.1:9464")
    text = _metrics(opened, name)

    class Handler(BaseHTTPRequestHandler):
        timeout = _PATIENCE

        def do_GET(self) -> None:
            if self.path == "/livez":
                self._answer(200, b'{"alive": true}', "application/json")
            elif self.path == "/readyz":
                ready = opened.has_looked
                self._answer(200 if ready else 503, json.dumps({"ready": ready}).encode(), "application/json")
            elif self.path == "/metrics":
                body, kind = text()
                self._answer(200, body, kind)
            else:
                self._answer(404, b"{}", "application/json")

        def _answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Requests of a monitoring are not logged."""

    try:
        server = _Server((host.strip("[]"), int(port)), Handler)
    except OSError as error:
        raise LakemirrorError("listen-failed", f"{address}: {error.strerror or error}") from error
    threading.Thread(target=server.serve_forever, args=(0.5,), name="metrics", daemon=True).start()
    return f"{host}:{server.server_address[1]}"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def handle_error(self, *_: object) -> None:
        """A client that went away is no event."""


def _metrics(opened: MirroredDatabase, name: str) -> Callable[[], tuple[bytes, str]]:
    try:
        from prometheus_client import CollectorRegistry, Gauge, ProcessCollector
        from prometheus_client.exposition import generate_latest
    except ImportError as error:
        raise LakemirrorError("service-extra-missing", "--listen needs prometheus-client") from error
    from lakemirror import __version__
    from lakemirror.status.status_reader import last_status
    from lakemirror.status.table_metrics import CONTENT_TYPE, DatabaseSeen, TableMetrics

    registry = CollectorRegistry()
    Gauge("lakemirror_build_info", "The version that runs.", ["version"], registry=registry).labels(__version__).set(1)
    ProcessCollector(registry=registry)

    def look() -> list[DatabaseSeen]:
        status = last_status(opened.storage)
        return [DatabaseSeen("", name, "Running" if opened.has_looked else "Starting", status.tables)]

    registry.register(TableMetrics(look))
    return lambda: (generate_latest(registry), CONTENT_TYPE)
