"""Health, metrics, the description of REST, the page, the audit log: over the wire."""

from __future__ import annotations

import base64
import json
import os
import re
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from running_service import Answer, Running, principals_of, until
from tests.databases import parquet

from lakemirror.service import service as service_module
from lakemirror.service.auth.audit_log import AuditLog
from lakemirror.service.auth.principals import Issued
from lakemirror.service.operating.openapi import description
from lakemirror.service.operating.page import overview_page
from lakemirror.service.rest.calls import CALLS
from lakemirror.service.rest.rest import Rest, call_at


def basic(issued: Issued) -> dict[str, str]:
    pair = f"{issued.principal.name}:{issued.client_secret}"
    return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


@pytest.fixture(scope="module")
def shop(running: Running, token: str) -> str:
    """A database with a table that is fine, two that failed, and one whose name is markup."""
    database = running.create(token, "shop", start=True)
    zone = running.root / "sales/shop/Files/LandingZone"
    for table, metadata in (("orders", '{"keyColumns": ["id"]}'), ("bad", "{"), ("<b>&x", '{"keyColumns": ["id"]}')):
        (zone / table).mkdir()
        (zone / table / "_metadata.json").write_text(metadata)
        if table == "orders":
            (zone / table / f"{3:020}.parquet").write_bytes(parquet({"id": [4]}))  # waits for file 2
        (zone / table / "new.tmp").write_bytes(parquet({"id": [1, 2]}))
        (zone / table / "new.tmp").rename(zone / table / f"{1:020}.parquet")
    (zone / "torn").mkdir()
    (zone / "torn/_metadata.json").write_text('{"keyColumns": ["id"]}')
    (zone / "torn" / f"{1:020}.parquet").write_bytes(b"no Parquet")
    for path in (zone / "bad" / f"{1:020}.parquet", zone / "torn" / f"{1:020}.parquet"):
        if isinstance(path, Path):
            os.utime(path, (time.time() - 100, time.time() - 100))
    path = f"/v1/workspaces/sales/mirroredDatabases/{database}/getTablesMirroringStatus"

    def settled() -> bool:
        rows = running.send("POST", path, token=token).json["data"]
        return sorted(row["status"] for row in rows) == ["Failed", "Failed", "Replicating", "Replicating"]

    until(settled)
    return database


def test_health_is_open(running: Running) -> None:
    assert running.send("GET", "/livez").status == 200
    until(lambda: running.send("GET", "/readyz").status == 200)
    assert running.send("GET", "/readyz").json == {"ready": True, "reasons": []}
    assert running.send("POST", "/livez").status == 405


def test_a_full_disk(running: Running, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "LEAST_FREE", 1 << 62)
    monkeypatch.setattr(service_module, "ROOM_LOOK", -1.0)
    found = running.send("GET", "/readyz")
    assert (found.status, found.json["reasons"][0]["reason"]) == (503, "DiskFull")
    refused = running.send("PUT", "/sales/shop/Files/LandingZone/x?resource=file", token=token)
    assert (refused.status, refused.headers["x-ms-error-code"]) == (503, "ServerBusy")
    body = {"displayName": "late", "definition": {}}
    answer = running.send("POST", "/v1/workspaces/sales/mirroredDatabases", body, token=token)
    assert (answer.status, answer.code) == (503, "ServerBusy")
    assert running.send("GET", "/v1/workspaces", token=token).status == 200
    monkeypatch.undo()
    running.service._room_seen = float("-inf")  # the disk is looked at again at once


def test_metrics(running: Running, shop: str, writer: Issued, admin: Issued) -> None:
    assert running.send("GET", "/metrics").status == 401
    assert running.send("GET", "/metrics", headers=basic(writer)).status == 403
    answer = running.send("GET", "/metrics", token=running.token(admin))
    assert answer.status == 200
    assert running.send("GET", "/metrics", headers=basic(admin)).status == 200
    text = answer.body.decode()
    families = text_string_to_metric_families(text)
    samples = {(each.name, frozenset(each.labels.items())): each.value for found in families for each in found.samples}

    def value(name: str, **labels: str) -> float:
        return samples[name, frozenset(labels.items())]

    shop_of = {"workspace": "sales", "database": "shop"}
    orders = {**shop_of, "schema": "", "table": "orders"}
    assert value("lakemirror_databases", **shop_of, state="Running") == 1
    assert value("lakemirror_table_rows_total", **orders) == 2
    assert value("lakemirror_table_state", **{**orders, "table": "bad"}, state="Failed") == 1
    assert value("lakemirror_table_pending_files", **orders) == 1
    assert value("lakemirror_table_lag_seconds", **orders) > 0
    assert value("lakemirror_table_lag_seconds", **{**orders, "table": "torn"}) >= 100
    assert value("lakemirror_auth_failures_total", reason="Unauthorized") >= 1
    assert value("process_resident_memory_bytes") > 1e6
    assert value("lakemirror_http_in_flight") >= 1
    for name in ("build_info", "http_request_seconds_bucket", "staged_bytes", "table_last_commit_timestamp_seconds"):
        assert any(key.startswith(f"lakemirror_{name}") for key, _ in samples), name
    for secret in (writer.client_secret, writer.principal.account_key):
        assert secret not in text


def test_openapi_describes_every_call(running: Running) -> None:
    found = running.send("GET", "/openapi.json")
    assert found.status == 200
    content = found.json
    assert content["openapi"] == "3.1.0"
    assert content["servers"] == [{"url": f"{running.url}/v1"}]
    described = {
        operation["operationId"]
        for path in content["paths"].values()
        for verb, operation in path.items()
        if verb != "parameters"
    }
    assert described == {call.operation for call in CALLS}
    rest = Rest.__new__(Rest)
    for call in CALLS:
        assert call_at(call.path.strip("/").split("/"), call.method) == call
        assert not call.offered or rest.act(call.operation)
    text = json.dumps(content)
    for reference in re.findall(r'"#/components/schemas/(\w+)"', text):
        assert reference in content["components"]["schemas"]
    for path, item in content["paths"].items():
        named = {each["name"] for each in item.get("parameters", []) if each["in"] == "path"}
        assert named == set(re.findall(r"\{(\w+)\}", path))
    assert description("https://x", "1")["info"]["version"] == "1"


class Tags(HTMLParser):
    """What a page is made of, and which addresses it names."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.addresses: list[str] = []
        self.feed(text)
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        assert not any(name.startswith("on") or name == "style" for name, _ in attrs)
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src")]
        if tag not in ("meta", "link", "br", "rect"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "rect":
            assert self.open.pop() == tag


def page(running: Running, path: str, issued: Issued) -> Answer:
    answer = running.send("GET", path, headers=basic(issued))
    assert answer.status == 200, (path, answer.body)
    if answer.headers["Content-Type"].startswith("text/html"):
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        found = Tags(answer.body.decode())
        assert not found.seen & {"script", "style", "iframe", "img"}
        assert all(address.startswith("/") for address in found.addresses)
    return answer


def test_the_pages(running: Running, shop: str, reader: Issued) -> None:
    assert running.send("GET", "/").status == 401
    assert running.send("GET", "/").headers["WWW-Authenticate"].startswith("Basic ")
    first = page(running, "/", reader)
    assert ">shop<" in first.body.decode()
    assert "refresh" in first.body.decode()
    twin = page(running, "/ui/overview.json", reader).json
    found = next(each for each in twin["databases"] if each["databaseId"] == shop)
    assert found["tables"] == {"Failed": 2, "Replicating": 1, "Waiting": 1}
    assert re.search('1 <span class="wait">Waiting</span>', first.body.decode())
    assert (found["rows"], found["state"], found["pendingFiles"]) == (4, "Running", 3)
    for failed in ("bad", "torn"):  # their files are not applied either, however old they are
        one = page(running, f"/ui/databases/{shop}/tables/{failed}.json", reader).json
        assert (one["state"], one["pendingFiles"]) == ("Failed", 1)
        assert one["lagSeconds"] >= 100

    seen, todo = set(), ["/"]
    while todo:
        path = todo.pop()
        seen.add(path)
        body = page(running, path, reader).body.decode()
        if body.startswith("<!doctype"):
            todo += [each for each in Tags(body).addresses if each not in seen and not each.endswith(".css")]
    assert f"/ui/databases/{shop}/tables/bad" in seen
    assert f"/ui/databases/{shop}/tables/bad.json" in seen
    bad = page(running, f"/ui/databases/{shop}/tables/bad.json", reader).json
    assert bad["error"]["code"] == "metadata-invalid"
    assert bad["error"]["hint"]
    shown = page(running, f"/ui/databases/{shop}/tables/bad", reader).body.decode()
    assert "metadata-invalid" in shown
    assert bad["error"]["hint"] in shown
    odd = page(running, f"/ui/databases/{shop}", reader).body.decode()
    assert "<b>&x" not in odd
    assert "&lt;b&gt;&amp;x" in odd
    orders = page(running, f"/ui/databases/{shop}/tables/orders.json", reader).json
    assert [each["rows"] for each in orders["history"]] == [2]
    shown = page(running, f"/ui/databases/{shop}/tables/orders", reader).body.decode()
    assert (orders["state"], orders["waitingFor"]["what"]) == ("Waiting", "number 2")
    assert '<dt>State</dt><dd><span class="wait">Waiting</span>' in shown
    assert f"number 2, since {orders['waitingFor']['since'][:10]}" in shown
    for way in (*orders["whatToDo"], *bad["whatToDo"]):
        assert not way["command"] or way["command"].startswith("lakemirror ")
    for text, ways in ((shown, orders["whatToDo"]), (odd, [*orders["whatToDo"], *bad["whatToDo"]])):
        assert all(f"<li>{way['what']}" in text and way["command"] in text for way in ways)
    assert f"{2:020}" in orders["whatToDo"][0]["what"]
    assert "lakemirror publish ROOT/sales/shop orders --recreate --from FILE" in shown
    assert "<rect" in page(running, f"/ui/databases/{shop}/tables/orders", reader).body.decode()
    for nowhere in (
        "/ui/x",
        "/ui/databases/x",
        f"/ui/databases/{shop}/tables/none",
        f"/ui/databases/{shop}/x/y",
        "/ui/%ff",
    ):
        assert running.send("GET", nowhere, headers=basic(reader)).status == 404


def test_nobody_sees_what_is_not_theirs(running: Running, shop: str, root: Path) -> None:
    other = principals_of(root).add("other", ["elsewhere=contribute"])
    until(lambda: running.ask_token(other).status == 200)
    assert page(running, "/ui/overview.json", other).json["databases"] == []
    for path in (f"/ui/databases/{shop}", f"/ui/databases/{shop}.json", f"/ui/databases/{shop}/tables/orders"):
        assert running.send("GET", path, headers=basic(other)).status == 404


def test_the_audit_log(running: Running, root: Path, token: str, reader: Issued) -> None:
    database = running.create(token, "audited")
    one = f"/v1/workspaces/sales/mirroredDatabases/{database}"
    running.send("GET", one, token=token)
    running.send("DELETE", one, token=running.token(reader))
    running.send("GET", "/v1/workspaces?secret=in-the-query", token="forged")
    running.ask_token(reader, client_secret="wrong-secret")
    running.send("DELETE", one, token=token)
    text = running.audit()
    records = [json.loads(line) for line in text.splitlines()]
    mine = [(r["principal"], r["operation"], r["status"]) for r in records if r["path"] == one]
    assert mine == [("reader", "DeleteMirroredDatabase", 403), ("writer", "DeleteMirroredDatabase", 200)]
    assert any(r["path"] == "/v1/workspaces" and r["status"] == 401 for r in records)
    assert any(r["operation"] == "Token" and r["status"] == 401 for r in records)
    assert all(set(r) == {"time", "principal", "operation", "path", "status", "requestId", "remote"} for r in records)
    for secret in (token, "forged", "wrong-secret", "in-the-query", reader.client_secret):
        assert secret not in text
    if isinstance(root, Path):
        assert (root / ".lakemirror/audit.log").stat().st_mode & 0o777 == 0o600


def audited(running: Running, request_id: str) -> list[tuple[str, str, int]]:
    """Principal, path and status of the records of one request."""
    records = [json.loads(line) for line in running.audit().splitlines()]
    return [(r["principal"], r["path"], r["status"]) for r in records if r["requestId"] == request_id]


def test_each_change_and_refusal_of_the_storage_plane_is_audited(running: Running, shop: str, token: str) -> None:
    zone = f"/sales/{shop}/Files/LandingZone"
    done = running.send("PUT", f"{zone}/note?resource=file", token=token)
    assert audited(running, done.headers["x-ms-request-id"]) == [("writer", f"{zone}/note", 201)]
    assert audited(running, running.send("HEAD", f"{zone}/note", token=token).headers["x-ms-request-id"]) == []
    refused = running.send("DELETE", f"/sales/{shop}/Tables/orders", token=token)
    assert audited(running, refused.headers["x-ms-request-id"]) == [("writer", f"/sales/{shop}/Tables/orders", 403)]
    paths = [f"{zone}/note", f"{zone}/none", f"/sales/{shop}/Tables/x"]
    parts = "".join(f"--b\r\nContent-Type: application/http\r\n\r\nDELETE {path}?x HTTP/1.1\r\n\r\n" for path in paths)
    batch = running.send(
        "POST", "/sales?restype=container&comp=batch", f"{parts}--b--\r\n".encode(), token=token,
        headers={"Content-Type": "multipart/mixed; boundary=b"},
    )  # fmt: skip
    assert audited(running, batch.headers["x-ms-request-id"]) == [
        ("writer", "/sales", 202), ("writer", paths[0], 202), ("writer", paths[2], 403),
    ]  # fmt: skip


def test_each_token_that_is_refused_is_audited(running: Running, writer: Issued) -> None:
    for change, status in (
        ({"grant_type": "password"}, 400),
        ({"client_secret": "x"}, 401),
        ({"tenant": "other"}, 400),
    ):
        answer = running.ask_token(writer, **change)
        assert answer.status == status
        found = audited(running, answer.headers["x-ms-request-id"])
        assert found == [("", f"/{change.get('tenant', 'adfs')}/oauth2/v2.0/token", status)]
    assert audited(running, running.ask_token(writer).headers["x-ms-request-id"]) == []


def test_guessing_the_secret_of_the_page_is_slowed_down(running: Running, reader: Issued) -> None:
    good = basic(reader)
    assert running.send("GET", "/", headers=good).status == 200  # is remembered
    wrong = {"Authorization": "Basic " + base64.b64encode(b"reader:wrong").decode()}

    def slowed() -> bool:
        for _ in range(11):
            running.service.failures.note("127.0.0.1")
        answer = running.send("GET", "/", headers=wrong)
        assert running.send("GET", "/", headers=good).status == 200
        return answer.status == 429 and answer.headers["Retry-After"] == "1"

    until(slowed)
    until(lambda: running.send("GET", "/", headers=wrong).status == 401)


def test_the_audit_log_keeps_the_beginning_of_a_refused_address(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    for status in (401, 201):
        log.write("/" + "x" * 2000, status, principal="", operation="o", requestId="r", remote="::1")
    log.close()
    lengths = [len(json.loads(line)["path"]) for line in (tmp_path / "audit.log").read_text().splitlines()]
    assert lengths == [513, 2001]


def test_the_audit_log_is_rotated(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log", most_bytes=1000)

    def write(number: int) -> None:
        log.write(f"/{number}", 200, principal="p", operation="o", requestId="r", remote="::1")

    for number in range(60):
        write(number)
    log.close()
    log = AuditLog(tmp_path / "audit.log", most_bytes=1000)
    write(60)
    log.close()
    files = sorted(tmp_path.iterdir(), key=lambda each: -int("0" + each.suffix.removeprefix(".log").strip(".")))
    assert [each.stat().st_size <= 1000 for each in files] == [True] * len(files)
    numbers: list[Any] = [json.loads(line)["path"] for each in files for line in each.read_text().splitlines()]
    assert numbers == [f"/{number}" for number in range(61)][-len(numbers) :]
    assert len(numbers) > 40


@pytest.mark.parametrize("missed", [0, 1])
def test_the_page_marks_a_missed_goal_of_freshness(missed: int) -> None:
    database = {
        "workspace": "sales", "database": "shop", "databaseId": "x", "state": "Running", "error": None, "tables": {},
        "rows": 0, "bytes": 0, "pendingFiles": 1, "lagSeconds": 90.0, "freshnessMissed": missed,
    }  # fmt: skip
    shown = overview_page({"time": "2026-11-26T15:00:00Z", "databases": [database]})
    assert ("misses its goal" in shown) == bool(missed)
