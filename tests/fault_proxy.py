"""A proxy between a client and an HTTP server that does to chosen requests what networks and stores do.

error       503 (or another status) instead of the answer; the server never sees the request
refused     the connection is cut before the server sees the request
lost        the server acts, and the connection is cut before its answer
truncated   half of the answer's body, then the connection is cut
slow        the answer comes after a pause
stalled     the server acts, and its answer does not come for a while: the client gives up
dripping    the answer comes in small pieces with pauses between them
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

ERROR, REFUSED, LOST, TRUNCATED, SLOW = "error", "refused", "lost", "truncated", "slow"
STALLED, DRIPPING = "stalled", "dripping"
STALL = 3.0  # seconds


@dataclass
class FaultProxy:
    """`fault(method, path)` names what becomes of a request; empty: nothing. `requests` counts methods.

    Paths are decoded: `%2F` is a slash. `without`: a header that the server never sees, in lower case.
    """

    endpoint: str
    fault: Callable[[str, str], str] = lambda _method, _path: ""
    status: int = 503
    pause: float = 0.0
    down: bool = False
    without: str = ""
    requests: Counter[str] = field(default_factory=Counter)
    seen: list[tuple[str, str, str]] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextlib.contextmanager
def fault_proxy(endpoint: str) -> Iterator[FaultProxy]:
    """A proxy in front of a server, until the block ends."""
    proxy = FaultProxy(endpoint)
    target = urlsplit(endpoint)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = (
                self._chunked() if "chunked" in self.headers.get("Transfer-Encoding", "") else self.rfile.read(length)
            )
            proxy.requests[self.command] += 1
            path = unquote(self.path)  # one client encodes more characters than another
            fault = REFUSED if proxy.down else proxy.fault(self.command, path)
            proxy.seen.append((self.command, path, fault))
            if proxy.pause:
                time.sleep(proxy.pause)
            if fault == REFUSED:
                self._cut()
                return
            if fault == ERROR:
                self._answer(proxy.status, {"Content-Type": "application/xml"}, _ERROR)
                return
            status, headers, data = self._forward(body)
            if fault == LOST:
                self._cut()
                return
            if fault == STALLED:
                time.sleep(STALL)
                self._cut()
                return
            if fault == SLOW:
                time.sleep(1.0)
            self._answer(status, headers, data, cut=fault == TRUNCATED, pieces=8 if fault == DRIPPING else 1)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve

        def _forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
            connection = http.client.HTTPConnection(target.hostname or "", target.port or 80, timeout=60)
            left_out = ("transfer-encoding", "content-length", "connection", proxy.without)
            headers = {name: value for name, value in self.headers.items() if name.lower() not in left_out}
            headers["Content-Length"] = str(len(body))
            connection.request(self.command, self.path, body=body, headers=headers)
            answer = connection.getresponse()
            data = answer.read()
            kept = {name: value for name, value in answer.getheaders() if name.lower() not in _OWN}
            if self.command == "HEAD":
                kept["Content-Length"] = answer.getheader("Content-Length") or "0"
            connection.close()
            return answer.status, kept, data

        def _answer(
            self, status: int, headers: dict[str, str], data: bytes, *, cut: bool = False, pieces: int = 1
        ) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if self.command != "HEAD":
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                sent = data[: len(data) // 2] if cut and data else data
                size = max(1, -(-len(sent) // pieces))
                for begin in range(0, len(sent), size):
                    self.wfile.write(sent[begin : begin + size])
                    self.wfile.flush()
                    time.sleep(0.1 if pieces > 1 else 0)
            if cut:
                self._cut()

        def _chunked(self) -> bytes:
            data = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return data

        def _cut(self) -> None:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.wfile.flush()
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                self.connection.shutdown(socket.SHUT_RDWR)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    proxy.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()


_OWN = {"content-length", "transfer-encoding", "connection", "keep-alive"}
_ERROR = b"<?xml version='1.0'?><Error><Code>InternalError</Code><Message>try again</Message></Error>"
