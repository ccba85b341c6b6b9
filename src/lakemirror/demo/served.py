"""`lakemirror demo --serve`: the flights arrive over the service's endpoint, and its page shows it.

lakemirror access ─▶ lakemirror serve (loopback, in clear) ─▶ REST: create, start ─▶ publish over the endpoint
                                                          └─▶ the page, until Ctrl-C
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console

from lakemirror.delta.log import read_snapshot
from lakemirror.demo import figures, show
from lakemirror.demo.performance import clear, follow
from lakemirror.demo.source import TABLES, FlightsSource
from lakemirror.engines.kernels.living_rows import living_rows
from lakemirror.engines.target import target_of
from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing
from lakemirror.publisher.credentials import Tokens
from lakemirror.storage import Place

WORKSPACE, DATABASE, PRINCIPAL = "demo", "flights", "viewer"
_PACE = 0.05  # seconds between two files, so that the page shows them arrive
_START = 60.0  # seconds that the service gets to listen


def serve_flights(root: Path, days: int | None, port: int, *, stay: bool = True) -> bool:
    """Serves `root` on loopback, publishes the flights through the endpoint, prints the page's address and what came of
    it; with `stay` it serves until Ctrl-C. True where all figures are right.

    A folder that an earlier demo made is replaced. LakemirrorError `setting-invalid`, `service-extra-missing`,
    `listen-failed`, SetupError `demo-data-missing`.
    """
    console = Console(highlight=False)
    source = FlightsSource(days)
    clear(root)
    root.mkdir(parents=True, exist_ok=True)
    (root / "mirrored-by-lakemirror-demo").touch()
    principal = _principal(root)
    with _service(root, port) as url:
        secret = principal["client_secret"]
        console.print(f"The page: {url}/", style="bold")
        console.print(f"Name {PRINCIPAL}, password {secret}", soft_wrap=True)
        service = _Rest(url, principal)
        service.create()
        seconds = _publish(service, source, f"{url}/{WORKSPACE}/{DATABASE}", principal)
        right = compare(console, root / WORKSPACE / DATABASE, source, days, seconds)
        if stay:
            console.print(f"The page stays at {url}/ until Ctrl-C.")
            _wait()
    return right


class _Rest:
    """The REST interface, as the demo's principal."""

    def __init__(self, url: str, principal: Mapping[str, str]) -> None:
        self._base = f"{url}/v1/workspaces/{WORKSPACE}/mirroredDatabases"
        self._tokens = Tokens(principal, url, _post)
        self._database = ""

    def create(self) -> None:
        definition = {"properties": {"source": {"type": "GenericMirror", "typeProperties": {}}}}
        part = {
            "path": "mirroring.json", "payloadType": "InlineBase64",
            "payload": base64.b64encode(json.dumps(definition).encode()).decode(),
        }  # fmt: skip
        made = self._ask("", {"displayName": DATABASE, "definition": {"parts": [part]}})
        self._database = f"/{made['id']}"
        self._ask("/startMirroring", {})

    def tables(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._ask("/getTablesMirroringStatus", {})["data"]
        return found

    def _ask(self, path: str, body: Mapping[str, Any]) -> Any:
        headers = {"Authorization": f"Bearer {self._tokens.token()}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._base}{self._database}{path}", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or b"{}")


def _principal(root: Path) -> dict[str, str]:
    """A principal that may do everything, and what `lakemirror access` printed of it."""
    words = ["access", str(root), "add", PRINCIPAL, "--role", f"{WORKSPACE}=contribute"]
    done = subprocess.run(_lakemirror(*words), capture_output=True, text=True, check=False)
    if done.returncode:
        raise LakemirrorError("service-extra-missing", done.stderr.strip().partition("\n")[0])
    found: dict[str, str] = json.loads(done.stdout)
    return found


@contextmanager
def _service(root: Path, port: int) -> Iterator[str]:
    """The address of a service in a process of its own, which ends with the block."""
    words = _lakemirror("serve", str(root), "--http", "--port", str(port))
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        yield _address(process)
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()


def _address(process: subprocess.Popen[str]) -> str:
    """The address in what the service says; LakemirrorError `listen-failed` where it ends."""
    assert process.stderr is not None
    deadline = time.monotonic() + _START
    said = []
    while time.monotonic() < deadline and (line := process.stderr.readline()):
        said.append(line)
        found = re.match(r"serving .* at (http://\S+)$", line.rstrip())
        if found:
            threading.Thread(target=_read_on, args=(process,), daemon=True).start()
            return found[1]
    raise LakemirrorError("listen-failed", "".join(said).strip().partition("\n")[0] or "the service did not start")


def _read_on(process: subprocess.Popen[str]) -> None:
    """Takes in the service's log, so that its pipe never fills; problems are shown."""
    assert process.stderr is not None
    for line in process.stderr:
        if " error " in line or " warning " in line:
            print(line, end="", file=sys.stderr)


def _publish(service: _Rest, source: FlightsSource, address: str, principal: Mapping[str, str]) -> dict[str, float]:
    """Publishes every step and waits until all are applied; for each table the seconds until it was."""
    landing = Landing(address, principal)
    steps = list(source.steps())
    rows: dict[str, int] = {}
    for step in steps:
        rows[step.table] = rows.get(step.table, 0) + len(step.rows)
    begun, seconds = time.monotonic(), dict.fromkeys(rows, 0.0)
    failures: list[BaseException] = []
    ended = threading.Event()

    def publish() -> None:
        try:
            for step in steps:
                source.publish(landing, step)
                if ended.wait(_PACE):
                    return
        except BaseException as error:
            failures.append(error)

    def applied() -> int:
        total = 0
        for table in service.tables():
            if table["status"] == "Failed":
                raise LakemirrorError("internal", f"{table['sourceTableName']}: {table['error']['message']}")
            done = int(table["metrics"]["processedRows"])
            name = table["sourceTableName"]
            total += done
            if done >= rows[name] and not seconds[name]:
                seconds[name] = time.monotonic() - begun
        return total

    publisher = threading.Thread(target=publish, name="publisher", daemon=True)
    publisher.start()
    try:
        follow("changes applied", applied, sum(rows.values()), failures)
    finally:
        ended.set()
        publisher.join()
    if failures:
        raise failures[0]
    return seconds


def compare(
    console: Console, database: Place, source: FlightsSource, days: int | None, seconds: Mapping[str, float]
) -> bool:
    """Prints the figures of the tables of a database, wherever it is; True where they are as computed from the source.

    `seconds`: for each table, from the first file until it was complete.
    """
    wanted = figures.expected(source.data, days)
    tables = {name: _rows(database / "Tables" / name) for name in TABLES}
    counts = {name: table.num_rows for name, table in tables.items()}
    flights = tables["flights"]
    carriers, months = (_figures(flights, group) for group in ("carrier", "month"))
    names = dict(zip(tables["airlines"]["carrier"].to_pylist(), tables["airlines"]["name"].to_pylist(), strict=True))
    console.print(show.delays(months))
    console.print(show.delays(carriers, names))
    total = sum(counts.values())
    console.print(f"{total:,} rows in {len(counts)} tables, {max(seconds.values()):.1f} s after the first file")
    wrong = figures.differences(wanted, counts, carriers, months)
    for line in wrong:
        console.print(f"WRONG: {line}", style="bold red")
    if not wrong:
        console.print("Every figure is as computed from the source.", style="green")
    return not wrong


def _rows(path: Place) -> pa.Table:
    """The rows of a Delta table."""
    snapshot = read_snapshot(path)
    if snapshot is None:
        raise LakemirrorError("internal", f"{path.name}: there is no table")
    target = target_of(str(path), snapshot.metadata.value)
    return pa.concat_tables([rows for add in snapshot.files.values() for rows in living_rows(add, target)])


def _figures(flights: pa.Table, group: str) -> list[tuple[Any, ...]]:
    """The rows of `figures.query(…, group)`."""
    wanted = [(group, "count"), ("arr_delay", "count"), *((name, "sum") for name in figures.SUMS)]
    found = flights.group_by(group).aggregate(wanted).sort_by(group)
    names = [group, *(f"{column}_{kind}" for column, kind in wanted)]
    columns = [found[name] if at == 0 else pc.fill_null(found[name], 0) for at, name in enumerate(names)]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def _post(origin: str, path: str, form: bytes) -> tuple[int, bytes]:
    request = urllib.request.Request(f"{origin}{path}", form)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status), bytes(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def _lakemirror(*words: str) -> list[str]:
    return [sys.executable, "-m", "lakemirror.cli", *words]


def _wait() -> None:
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        return


__all__ = ["compare", "serve_flights"]
