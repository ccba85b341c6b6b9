"""A relay between clients and one HTTP server: counts requests and their bytes, and can add a delay to each.

    client ─▶ relay: note the request, wait ─▶ server          GET /-/requests   what was noted since the last asking
                     bytes of the answer as they come ◀─       GET /-/delay/10   milliseconds from now on

A process of its own, so that it takes no turn from what is measured: python -m benchmarks.relay HOST PORT
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from benchmarks.runner import REPOSITORY

_PIECE = 1 << 20


@dataclass(frozen=True)
class Request:
    """One request: when it came and when its answer began (`time.monotonic`; 0.0: no answer), and bytes each way."""

    began: float
    answered: float
    method: str
    path: str
    sent: int
    received: int

    def shown(self, since: float) -> str:
        """The request as a line: seconds since `since`, milliseconds to its answer, bytes each way."""
        took = 1000 * (self.answered - self.began)
        path = unquote(self.path).replace("0000000000000000", "…")
        return f"{self.began - since:7.3f} {took:5.0f} ms {self.sent:>9} {self.received:>9} {self.method} {path}"


@dataclass(frozen=True)
class Relay:
    """A relay that runs, asked from outside its process."""

    url: str

    def requests(self) -> list[Request]:
        """What was noted since this was asked last."""
        return [Request(*each) for each in json.loads(self._get("requests"))]

    def delay(self, milliseconds: int) -> None:
        """Each request waits so long before the server gets it."""
        self._get(f"delay/{milliseconds}")

    def _get(self, what: str) -> bytes:
        with urllib.request.urlopen(f"{self.url}/-/{what}", timeout=60) as answer:
            found: bytes = answer.read()
            return found


@contextlib.contextmanager
def relay(host: str, port: int) -> Iterator[Relay]:
    """A relay to a server, until the block ends."""
    words = [sys.executable, "-m", "benchmarks.relay", host, str(port)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
    assert process.stdout is not None
    try:
        yield Relay(f"http://127.0.0.1:{int(process.stdout.readline())}")
    finally:
        process.kill()
        process.wait()


class _Notes:
    def __init__(self) -> None:
        self.delay = 0.0
        self._all: list[list[object]] = []
        self._lock = threading.Lock()

    def note(self, method: str, path: str) -> list[object]:
        """A new request; the thread that carries it counts in it."""
        one: list[object] = [time.monotonic(), 0.0, method, path, 0, 0]
        with self._lock:
            self._all.append(one)
        return one

    def answer(self, path: str) -> bytes:
        _, _, what = path.partition("/-/")
        if what.startswith("delay/"):
            self.delay = int(what.removeprefix("delay/")) / 1000
            return b"[]"
        with self._lock:
            found = [each for each in self._all if each[1]]
            self._all = [each for each in self._all if not each[1]]  # their answers are still to come
        return json.dumps(found).encode()


class _Connection:
    """One client's connection, and one to the server for it."""

    def __init__(self, client: socket.socket, server: tuple[str, int], notes: _Notes) -> None:
        self._client, self._notes = client, notes
        self._server = socket.create_connection(server)
        for each in (client, self._server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""
        self._now: list[object] = [0.0, 0.0, "", "", 0, 0]

    def run(self) -> None:
        threading.Thread(target=self._answers, daemon=True).start()
        with contextlib.suppress(OSError, EOFError):
            while True:
                self._request()
        for each in (self._client, self._server):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _request(self) -> None:
        head = self._until(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        method, path, _ = lines[0].split(" ", 2)
        if path.startswith("/-/"):
            body = self._notes.answer(path)
            self._client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            return
        fields = {name.lower(): text.strip() for name, _, text in (line.partition(":") for line in lines[1:])}
        self._now = now = self._notes.note(method, path)
        time.sleep(self._notes.delay)
        self._server.sendall(head)
        if "chunked" in fields.get("transfer-encoding", ""):
            now[4] = self._chunks()
        else:
            now[4] = size = int(fields.get("content-length", "0"))
            self._carry(size)

    def _chunks(self) -> int:
        total = 0
        while True:
            line = self._until(b"\r\n")
            size = int(line.split(b";")[0], 16)
            self._server.sendall(line)
            self._carry(size + 2)
            total += size
            if not size:
                return total

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._buffer:
            self._buffer += self._more()
        found, _, self._buffer = self._buffer.partition(mark)
        return found + mark

    def _carry(self, size: int) -> None:
        while size:
            piece = self._buffer[:size] or self._more(min(size, _PIECE))
            self._buffer = self._buffer[len(piece) :]
            self._server.sendall(piece)
            size -= len(piece)

    def _more(self, most: int = 1 << 16) -> bytes:
        found = self._client.recv(most)
        if not found:
            raise EOFError
        return found

    def _answers(self) -> None:
        piece = memoryview(bytearray(_PIECE))
        with contextlib.suppress(OSError):
            while size := self._server.recv_into(piece):
                now = self._now
                now[1] = now[1] or time.monotonic()
                now[5] = int(now[5]) + size  # type: ignore[call-overload]
                self._client.sendall(piece[:size])
        with contextlib.suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)


def main() -> None:
    host, port = sys.argv[1], int(sys.argv[2])
    notes = _Notes()
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            client, _ = listener.accept()
            threading.Thread(target=_Connection(client, (host, port), notes).run, daemon=True).start()


if __name__ == "__main__":
    main()
