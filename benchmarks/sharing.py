"""How fast shared tables are answered: one query of a table with 1,000 files, and 200 readers side by side.

    python -m benchmarks.sharing

Service and readers share the machine. `alone`: one reader after the other, time until the last byte of the answer.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import threading
import time
from pathlib import Path

import aiohttp
import pyarrow as pa
from deltalake import write_deltalake

from lakemirror.service.auth.principals import Principals
from lakemirror.service.auth.tokens import Tokens
from lakemirror.service.service import Options, Service

FILES, READERS, QUERIES = 1_000, 200, 5
QUERY = "/delta-sharing/shares/sales/schemas/shop/tables/{}/query"


def rss() -> float:
    """MiB that this process has in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1024**2


async def ask(session: aiohttp.ClientSession, url: str) -> float:
    """Seconds that one query takes."""
    begun = time.perf_counter()
    async with session.post(url, json={}) as answer:
        assert answer.status == 200, await answer.text()
        await answer.read()
    return time.perf_counter() - begun


async def side_by_side(url: str, token: str, readers: int) -> list[float]:
    """The seconds of each query of so many readers, who ask again as soon as they have an answer."""
    headers = {"Authorization": f"Bearer {token}"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(headers=headers, connector=connector) as session:

        async def reader() -> list[float]:
            return [await ask(session, url) for _ in range(QUERIES)]

        return [each for some in await asyncio.gather(*(reader() for _ in range(readers))) for each in some]


def measure(root: Path) -> dict[str, float]:
    """Milliseconds of queries, and MiB that the process grew by."""
    issued = Principals(root).add("reader", ["sales=read"])
    for name, files in (("large", FILES), ("usual", 10)):
        rows = pa.table({"id": list(range(files)), "part": [str(i) for i in range(files)], "name": ["x" * 20] * files})
        write_deltalake(str(root / "sales/shop/Tables" / name), rows, partition_by=["part"])
    token, _ = Tokens(root / ".lakemirror/keys").issue_for_sharing(issued.principal, issued.tenant_id, 3600)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def started() -> Service:
        service = Service(root, Options(port=0, clear=True))
        await service.start()
        return service

    service = asyncio.run_coroutine_threadsafe(started(), loop).result(60)
    while not service.registry.all_databases():
        time.sleep(0.1)
    found: dict[str, float] = {}
    for name in ("large", "usual"):
        url = service.url + QUERY.format(name)
        asyncio.run(side_by_side(url, token, 1))
        found[f"{name}_alone_median_ms"] = statistics.median(asyncio.run(side_by_side(url, token, 1))) * 1000
        before = rss()
        taken = sorted(asyncio.run(side_by_side(url, token, READERS)))
        found[f"{name}_{READERS}_readers_p95_ms"] = taken[int(len(taken) * 0.95)] * 1000
        found[f"{name}_grew_mib"] = rss() - before
    asyncio.run_coroutine_threadsafe(service.stop(), loop).result(60)
    loop.call_soon_threadsafe(loop.stop)
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps({name: round(value, 1) for name, value in measure(Path(folder)).items()}, indent=1))
