"""How fast shared tables are answered: one query of a table with 1,000 files, and 200 readers side by side.

    python -m benchmarks.sharing

Service and readers are processes of their own on one machine. `alone`: one reader after the other, time until the last
byte of the answer. `server_cpu_ms`: of the service, for one query, while 200 readers ask. `apart`: each reader asks a
question of its own, with the same answer; `hints`: with a predicate of its own, which leaves out a few files.
`grew_mib`: the service, by the first round of all readers; `grew_again_mib`: by the second.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from lakemirror.service.auth.principals import Principals
from lakemirror.service.auth.tokens import Tokens

FILES, READERS, QUERIES = 1_000, 200, 10
QUERY = "/delta-sharing/shares/sales/schemas/shop/tables/{}/query"
_END = b"\r\n0\r\n\r\n"  # of a body in chunks
_LENGTH = re.compile(rb"content-length: (\d+)\r.*?\r\n\r\n", re.I | re.S)


def rss(process: int) -> float:
    """MiB that a process has in memory."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * 4096 / 1024**2


def cpu(process: int) -> float:
    """Seconds of CPU that a process has had."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Reader(asyncio.Protocol):
    """Asks again as soon as it has an answer, over one connection, as the client's session does. `taken`: seconds."""

    def __init__(self, request: bytes, queries: int) -> None:
        self.request, self.left = request, queries
        self.taken: list[float] = []
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.ask()

    def ask(self) -> None:
        self.first, self.last, self.length, self.begun = b"", b"", 0, time.perf_counter()
        self.transport.write(self.request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self.first = self.first or data
        self.length += len(data)
        self.last = (self.last + data)[-len(_END) :]
        told = _LENGTH.search(self.first)
        if self.length < told.end() + int(told[1]) if told else self.last != _END:
            return
        self.taken.append(time.perf_counter() - self.begun)
        self.left -= 1
        if b" 200 " in self.first[:15] and self.left:
            self.ask()
        else:
            self.transport.close()

    def connection_lost(self, _error: Exception | None) -> None:
        assert b" 200 " in self.first[:15] and not self.left, self.first
        self.ended.set_result(None)


async def side_by_side(port: int, requests: Sequence[bytes]) -> list[float]:
    """The seconds of each query of so many readers."""
    loop = asyncio.get_running_loop()
    made = []
    for request in requests:
        _, reader = await loop.create_connection(partial(Reader, request, QUERIES), "127.0.0.1", port)
        made.append(reader)
    await asyncio.gather(*(each.ended for each in made))
    return [taken for each in made for taken in each.taken]


def question(table: str, token: str, wanted: Mapping[str, object]) -> bytes:
    """A request. `wanted`: its body."""
    body = json.dumps(wanted)
    lines = (
        f"POST {QUERY.format(table)} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}",
        f"Content-Length: {len(body)}", "", body,
    )  # fmt: skip
    return "\r\n".join(lines).encode()


def measure(root: Path) -> dict[str, float]:
    """Milliseconds of queries, and MiB that the service grew by."""
    issued = Principals(root).add("reader", ["sales=read"])
    for name, files in (("large", FILES), ("usual", 10)):
        rows = pa.table({"id": list(range(files)), "part": [str(i) for i in range(files)], "name": ["x" * 20] * files})
        write_deltalake(str(root / "sales/shop/Tables" / name), rows, partition_by=["part"])
    command = [sys.executable, "-m", "lakemirror.cli", "serve", str(root), "--port", "0", "--http"]
    service = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert service.stdout is not None
        serving = next(line for line in service.stdout if line.startswith("serving"))
        port = int(serving.rpartition(":")[2])
        token, _ = Tokens(root / ".lakemirror/keys").issue_for_sharing(issued.principal, issued.tenant_id, 3600)
        time.sleep(8)  # until the databases have been found
        found: dict[str, float] = {}
        for own, wanted in (
            ("large", lambda _: {}),
            ("large_apart", lambda n: {"limitHint": FILES * 10 + n}),
            ("large_hints", lambda n: {"predicateHints": [f"id >= {n % 20}"]}),
            ("usual_apart", lambda n: {"limitHint": FILES * 10 + n}),
        ):
            requests = [question(own.partition("_")[0], token, wanted(n)) for n in range(READERS)]
            asyncio.run(side_by_side(port, requests[:20]))
            found[f"{own}_alone_median_ms"] = statistics.median(asyncio.run(side_by_side(port, requests[:1]))) * 1000
            before, used = rss(service.pid), cpu(service.pid)
            taken = sorted(asyncio.run(side_by_side(port, requests)))
            found[f"{own}_server_cpu_ms"] = (cpu(service.pid) - used) / len(taken) * 1000
            found[f"{own}_{READERS}_readers_median_ms"] = statistics.median(taken) * 1000
            found[f"{own}_{READERS}_readers_p95_ms"] = taken[int(len(taken) * 0.95)] * 1000
            found[f"{own}_grew_mib"], before = rss(service.pid) - before, rss(service.pid)
            asyncio.run(side_by_side(port, requests))
            found[f"{own}_grew_again_mib"] = rss(service.pid) - before
        return found
    finally:
        service.terminate()
        service.wait(60)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps({name: round(value, 1) for name, value in measure(Path(folder)).items()}, indent=1))
