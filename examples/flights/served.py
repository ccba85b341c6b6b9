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

from rich.console import Console

from flights import show
from flights.performance import clear, follow
from flights.source import FlightsSource
from flights.tables_compared import compared
from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing
from lakemirror.publisher.folders.credentials import Tokens

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
        found = compared(root / WORKSPACE / DATABASE, source, days)
        right = found.print(console, show.in_all(found.counts, max(seconds.values())))
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


__all__ = ["serve_flights"]
