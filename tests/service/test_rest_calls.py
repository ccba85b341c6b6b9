"""Every call of the REST interface over the wire (specification of the service, section 4)."""

from __future__ import annotations

import base64
import io
import json
import time
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running_service import Answer, Running, new, principals_of, until
from tests.databases import parquet

from lakemirror.service.auth.principals import Issued, Principals
from lakemirror.service.rest.registry import FolderRegistry

SALES = "/v1/workspaces/sales"
DATABASES = f"{SALES}/mirroredDatabases"


def publish(folder: Path, ids: list[int], number: int = 1, table: str = "orders") -> None:
    zone = folder / "Files/LandingZone" / table
    if not zone.exists():
        zone.mkdir(parents=True)
        (zone / "_metadata.json").write_text('{"keyColumns": ["id"]}')
    (zone / "new.tmp").write_bytes(parquet({"id": ids}))
    (zone / "new.tmp").rename(zone / f"{number:020}.parquet")


def status(service: Running, database: str, token: str) -> str:
    answer = service.send("POST", f"{DATABASES}/{database}/getMirroringStatus", token=token)
    assert answer.status == 200, answer.body
    return str(answer.json["status"])


def tables(service: Running, database: str, token: str) -> dict[str, Any]:
    answer = service.send("POST", f"{DATABASES}/{database}/getTablesMirroringStatus", token=token)
    assert answer.status == 200
    return {row["sourceTableName"]: row for row in answer.json["data"]}


def rows(service: Running, database: str, token: str, table: str = "orders") -> int:
    found = tables(service, database, token).get(table)
    return int(found["metrics"]["processedRows"]) if found else 0


def refused(answer: Answer, status: int, code: str) -> None:
    assert (answer.status, answer.code) == (status, code), answer.body
    assert set(answer.json) == {"errorCode", "message", "requestId", "isRetriable"}


def test_workspaces(running: Running, token: str) -> None:
    found = running.send("GET", "/v1/workspaces", token=token).json["value"]
    assert [each["displayName"] for each in found] == ["sales"]
    assert found[0]["type"] == "Workspace"
    for name in ("sales", "SALES", found[0]["id"], found[0]["id"].upper()):
        assert running.send("GET", f"/v1/workspaces/{name}", token=token).json == found[0]


def test_the_life_of_a_database(running: Running, token: str) -> None:
    made = running.send("POST", DATABASES, new("Life of", description="d"), token=token)
    assert made.status == 201
    item = made.json
    assert "properties" not in item
    assert (item["type"], item["displayName"], item["description"]) == ("MirroredDatabase", "Life of", "d")
    database = item["id"]
    one = f"{DATABASES}/{database}"
    assert status(running, database, token) == "Initialized"
    got = running.send("GET", one, token=token).json
    assert got.pop("properties") == {
        "oneLakeTablesPath": f"{running.url}/{item['workspaceId']}/{database}/Tables",
    }  # fmt: skip
    assert got == item
    assert item in running.send("GET", f"{SALES}/items?type=MirroredDatabase", token=token).json["value"]
    assert running.send("GET", f"{SALES}/items?type=Lakehouse", token=token).json == {"value": []}
    listed = running.send("GET", DATABASES, token=token).json["value"]
    assert [each["id"] for each in listed if "properties" in each].count(database) == 1

    folder = running.root / "sales/Life of"
    publish(folder, [1, 2])  # waits: nothing runs yet
    assert tables(running, database, token)["orders"]["status"] == "Stopped"
    for _ in range(2):
        started = running.send("POST", f"{one}/startMirroring", token=token)
        assert (started.status, started.body) == (200, b"")
    until(lambda: tables(running, database, token).get("orders", {}).get("status") == "Replicating")
    assert status(running, database, token) == "Running"
    entry = tables(running, database, token)["orders"]
    assert entry["metrics"]["processedRows"] == 2
    assert entry["metrics"]["processedBytes"] > 0
    assert entry["metrics"]["lastSyncDateTime"].endswith("Z")

    for _ in range(2):
        stopped = running.send("POST", f"{one}/stopMirroring", token=token)
        assert (stopped.status, stopped.body) == (200, b"")
    until(lambda: status(running, database, token) == "Stopped")
    publish(folder, [3], 2)
    assert tables(running, database, token)["orders"]["status"] == "Stopped"
    assert rows(running, database, token) == 2
    running.send("POST", f"{one}/startMirroring", token=token)
    until(lambda: rows(running, database, token) == 3)  # goes on from its position

    renamed = running.send("PATCH", one, {"displayName": "Other"}, token=token)
    assert (renamed.status, renamed.json["displayName"], renamed.json["id"]) == (200, "Other", database)
    assert folder.is_dir()
    for name, found in (("Other", 200), ("OTHER.mirroredDatabase", 200), (database, 200), ("Life%20of", 404)):
        assert running.send("HEAD", f"/sales/{name}/Files/LandingZone", token=token).status == found, name
    publish(folder, [4], 3)
    until(lambda: rows(running, database, token) == 4)

    deleted = running.send("DELETE", one, token=token)
    assert (deleted.status, deleted.body) == (200, b"")
    refused(running.send("GET", one, token=token), 404, "ItemNotFound")
    for name in ("Other", database):
        assert running.send("HEAD", f"/sales/{name}/Files", token=token).headers["x-ms-error-code"] == "PathNotFound"
    assert folder.exists() == (not isinstance(folder, Path))  # in a bucket it stays in its place
    grave = running.root / ".lakemirror/deleted/sales" / database if isinstance(folder, Path) else folder
    assert (grave / "Tables/orders/_delta_log").is_dir()
    again = running.create(token, "Other")
    assert again != database
    assert running.send("DELETE", f"{DATABASES}/{again}?hardDelete=true", token=token).status == 200
    assert not (running.root / ".lakemirror/deleted/sales" / again).exists()
    assert not (running.root / "sales/Other").exists()


def test_what_is_uploaded_while_nothing_runs_waits(running: Running, token: str) -> None:
    """Over the endpoint, and with a body and labels that mean nothing here."""
    more = {"folderId": str(uuid.uuid4()), "labels": ["x"]}
    database = running.send("POST", DATABASES, new("waits", **more), token=token).json["id"]
    zone, one = f"/sales/{database}/Files/LandingZone/orders", f"{DATABASES}/{database}"
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": [1, 2]}), sink)
    for name, data in (("_metadata.json", b'{"keyColumns": ["id"]}'), (f"{1:020}.parquet", sink.getvalue())):
        put = running.send("PUT", f"{zone}/{name}", data, token=token, headers={"x-ms-blob-type": "BlockBlob"})
        assert put.status == 201
    assert tables(running, database, token)["orders"]["status"] == "Stopped"
    assert running.send("POST", f"{one}/startMirroring", {"mode": "x"}, token=token).status == 200
    until(lambda: rows(running, database, token) == 2)


def test_an_upload_does_not_end_in_another_database(running: Running, token: str) -> None:
    """A body that is on its way while its database is deleted, and another one gets the name and the folder."""
    first = running.create(token, "twice")
    path = "/sales/twice/Files/LandingZone/orders/1.parquet"
    connection = running.connection()
    connection.putrequest("PUT", path)
    for name, value in (("Authorization", f"Bearer {token}"), ("x-ms-blob-type", "BlockBlob"), ("Content-Length", "6")):
        connection.putheader(name, value)
    connection.endheaders(b"abc")
    until(lambda: list(running.service.registry.staging.glob(f"{first}")) or running.service.under_way.total)
    assert running.send("DELETE", f"{DATABASES}/{first}", token=token).status == 200
    assert running.create(token, "twice") != first
    connection.send(b"def")
    answer = connection.getresponse()
    assert (answer.status, answer.read() != b"") == (404, True)
    connection.close()
    assert list((running.root / "sales/twice/Files/LandingZone").iterdir()) == []


def test_deleted_databases_are_kept_for_seven_days(tmp_path: Path) -> None:
    Principals(tmp_path).add("keeper", ["sales=contribute"])
    registry = FolderRegistry(tmp_path)
    workspace = registry.workspace("sales")
    assert workspace is not None
    made = registry.create(workspace, "shop", "", b"{}")
    registry.delete(made, hard=False)
    for doomed in registry.doomed():
        registry.bury(doomed)
    grave = tmp_path / ".lakemirror/deleted/sales" / made.id
    registry.sweep(time.time() + 6.9 * 86_400)
    assert (grave / "Files/LandingZone").is_dir()
    registry.sweep(time.time() + 7.1 * 86_400)
    assert not grave.exists()


def test_definitions(running: Running, token: str) -> None:
    first = {"properties": {"target": {"typeProperties": {"defaultSchema": "dbo", "retentionInDays": 3}}}}
    database = running.create(token, "defined", definition=first)
    one = f"{DATABASES}/{database}"
    assert running.send("GET", one, token=token).json["properties"]["defaultSchema"] == "dbo"
    parts = running.send("POST", f"{one}/getDefinition", token=token).json["definition"]["parts"]
    assert [part["path"] for part in parts] == ["mirroring.json", ".platform"]
    assert json.loads(base64.b64decode(parts[0]["payload"])) == first
    platform = json.loads(base64.b64decode(parts[1]["payload"]))
    assert platform["metadata"] == {"type": "MirroredDatabase", "displayName": "defined"}

    def update(definition: Any) -> Answer:
        body = {"definition": new("x", definition)["definition"]}
        return running.send("POST", f"{one}/updateDefinition", body, token=token)

    first["properties"]["target"]["typeProperties"]["defaultSchema"] = "other"
    answer = update(first)
    assert (answer.status, answer.body) == (200, b"")
    running.send("POST", f"{one}/startMirroring", token=token)
    until(lambda: status(running, database, token) == "Running")
    publish(running.root / "sales/defined", [1])
    until(lambda: rows(running, database, token) == 1)
    assert (running.root / "sales/defined/Tables/other/orders").is_dir()
    refused(update({}), 400, "OperationNotSupportedForItem")
    first["lakemirror"] = {"on_bad_file": "quarantine"}
    assert update(first).status == 200
    refused(update({"properties": {"target": {"typeProperties": {"retentionInDays": 99}}}}), 400, "CorruptedPayload")
    both = {"definition": {"parts": [*new("x")["definition"]["parts"], *parts[1:]]}}
    running.send("POST", f"{one}/stopMirroring", token=token)
    until(lambda: status(running, database, token) == "Stopped")
    assert running.send("POST", f"{one}/updateDefinition", both, token=token).status == 200


def payload(**part: Any) -> dict[str, Any]:
    whole = {"path": "mirroring.json", "payload": "e30=", "payloadType": "InlineBase64", **part}
    return {"displayName": "bad", "definition": {"parts": [whole]}}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "InvalidRequest"),
        (b"{", "InvalidRequest"),
        (b"\xff", "InvalidRequest"),
        (b"[" * 100_000, "InvalidRequest"),
        ([], "InvalidRequest"),
        ({}, "InvalidRequest"),
        ({"displayName": "bad"}, "InvalidRequest"),
        ({"definition": new("x")["definition"]}, "InvalidRequest"),
        (new(""), "InvalidRequest"),
        (new("a" * 124), "InvalidRequest"),
        (new("../x"), "InvalidRequest"),
        (new("a/b"), "InvalidRequest"),
        (new(".a"), "InvalidRequest"),
        (new("a "), "InvalidRequest"),
        (new("a\nb"), "InvalidRequest"),
        (new("a\x00b"), "InvalidRequest"),
        (new("good", description="d" * 257), "InvalidRequest"),
        (new("good", description=1), "InvalidRequest"),
        ({**new("x"), "displayName": 1}, "InvalidRequest"),
        ({"displayName": "bad", "definition": {}}, "CorruptedPayload"),
        ({"displayName": "bad", "definition": {"parts": []}}, "CorruptedPayload"),
        ({"displayName": "bad", "definition": {"parts": [1]}}, "CorruptedPayload"),
        (payload(payload="!"), "CorruptedPayload"),
        (payload(payload=1), "CorruptedPayload"),
        (payload(payload="W10="), "CorruptedPayload"),
        (payload(payloadType="Plain"), "CorruptedPayload"),
        (payload(path="other.json"), "CorruptedPayload"),
    ],
)
def test_databases_that_are_not_made(running: Running, token: str, body: Any, code: str) -> None:
    before = sorted(path.name for path in (running.root / "sales").iterdir())
    refused(running.send("POST", DATABASES, body, token=token), 400, code)
    assert sorted(path.name for path in (running.root / "sales").iterdir()) == before


def test_names(running: Running, token: str) -> None:
    for name in ("n", "Ünïcode Ñame", "a.b-c d", "123", "漢" * 123):
        database = running.create(token, name)
        assert running.send("GET", f"{DATABASES}/{database}", token=token).json["displayName"] == name
    under = running.create(token, "_under")
    assert (running.root / "sales" / under / "Files/LandingZone").is_dir()
    for taken in ("N", "ÜNÏCODE ñAME", "_UNDER"):
        refused(running.send("POST", DATABASES, new(taken), token=token), 409, "ItemDisplayNameAlreadyInUse")
    other = f"{DATABASES}/{under}"
    refused(running.send("PATCH", other, {"displayName": "n"}, token=token), 409, "ItemDisplayNameAlreadyInUse")
    refused(running.send("PATCH", other, {}, token=token), 400, "InvalidRequest")
    refused(running.send("PATCH", other, {"displayName": "a/b"}, token=token), 400, "InvalidRequest")
    assert running.send("PATCH", other, {"displayName": "_Under"}, token=token).status == 200
    assert running.send("PATCH", other, {"description": "new"}, token=token).json["description"] == "new"


def test_who_may_do_what(running: Running, token: str, reader: Issued, admin: Issued) -> None:
    database = running.create(token, "roles")
    reading, all_of_it = running.token(reader), running.token(admin)
    one = f"{DATABASES}/{database}"
    may_read = [
        ("GET", SALES), ("GET", DATABASES), ("GET", f"{SALES}/items"), ("GET", one),
        ("POST", f"{one}/getMirroringStatus"), ("POST", f"{one}/getTablesMirroringStatus"),
    ]  # fmt: skip
    may_not = [
        ("POST", DATABASES), ("PATCH", one), ("DELETE", one),
        *(("POST", f"{one}/{act}") for act in ("getDefinition", "updateDefinition", "startMirroring", "stopMirroring")),
    ]  # fmt: skip
    for method, path in may_read:
        assert running.send(method, path, token=reading).status == 200, path
        assert running.send(method, path, token=all_of_it).status == 200, path
        refused(running.send(method, path), 401, "Unauthorized")
    for method, path in may_not:
        refused(running.send(method, path, new("x"), token=reading), 403, "InsufficientPrivileges")
    for secret in ("secret", "nowhere", str(uuid.uuid4())):
        path = f"/v1/workspaces/{secret}"
        refused(running.send("GET", path, token=token), 403, "InsufficientPrivileges")
        refused(running.send("POST", f"{path}/mirroredDatabases", new("x"), token=token), 403, "InsufficientPrivileges")
        if secret != "secret":
            refused(running.send("GET", path, token=all_of_it), 404, "WorkspaceNotFound")


def test_what_is_not_there(running: Running, token: str, root: Path, admin: Issued) -> None:
    principals_of(root).add("stock1", ["stock=contribute"])
    token_of_all = running.token(admin)
    until(lambda: running.send("GET", "/v1/workspaces/stock", token=token_of_all).status == 200)
    elsewhere = running.create(token_of_all, "elsewhere", workspace="stock")
    assert elsewhere in running.send("GET", "/v1/workspaces/stock/mirroredDatabases", token=token_of_all).body.decode()
    for missing in (elsewhere, str(uuid.uuid4()), "elsewhere", "%20"):
        refused(running.send("GET", f"{DATABASES}/{missing}", token=token), 404, "ItemNotFound")
        refused(running.send("POST", f"{DATABASES}/{missing}/startMirroring", token=token), 404, "ItemNotFound")
    for nowhere in ("/v1", "/v1/capacities", f"{SALES}/nothing", f"{DATABASES}/{elsewhere}/nothing"):
        refused(running.send("GET", nowhere, token=token), 404, "EntityNotFound")
    refused(running.send("PUT", DATABASES, token=token), 405, "OperationNotSupported")
    refused(running.send("GET", f"{DATABASES}/{elsewhere}/startMirroring", token=token), 405, "OperationNotSupported")
    refused(running.send("POST", "/v1/workspaces", {"displayName": "x"}, token=token), 403, "InsufficientPrivileges")
    refused(running.send("POST", f"{SALES}/items", {}, token=token), 501, "OperationNotSupported")
    refused(running.send("GET", f"{SALES}/lakehouses", token=token), 501, "OperationNotSupported")
    refused(running.send("POST", DATABASES, b"[" + b" " * 16 * 1024**2 + b"]", token=token), 413, "RequestBodyTooLarge")


def test_folders_put_there_by_hand(running: Running, token: str) -> None:
    publish(running.root / "sales/by hand", [1, 2, 3])
    (running.root / "sales/.hidden").mkdir()
    (running.root / "sales/_hidden").mkdir()
    (running.root / "sales/link").symlink_to(running.root / "sales/by hand")

    def adopted() -> Any:
        found = running.send("GET", DATABASES, token=token).json["value"]
        return next((each for each in found if each["displayName"] == "by hand"), None)

    item = until(adopted, 10)
    until(lambda: rows(running, item["id"], token) == 3)
    names = {each["displayName"] for each in running.send("GET", DATABASES, token=token).json["value"]}
    assert not names & {".hidden", "_hidden", "link"}


def test_pages(tmp_path: Path) -> None:
    from lakemirror.service.interface import Limits

    issued = Principals(tmp_path).add("pages", ["sales=contribute"])
    service = Running(tmp_path, limits=Limits(page_size=2))
    try:
        token = service.token(issued)
        made = {service.create(token, f"d{number}") for number in range(5)}
        found: list[str] = []
        path = DATABASES
        pages = 0
        while path:
            answer = service.send("GET", path, token=token)
            assert answer.status == 200
            found += [each["id"] for each in answer.json["value"]]
            pages += 1
            following = answer.json.get("continuationUri", "")
            assert ("continuationToken" in answer.json) == bool(following)
            path = following.removeprefix(service.url)
        assert (pages, len(found), set(found)) == (3, 5, made)
        first = service.send("GET", DATABASES, token=token).json["continuationToken"]
        for foreign in ("x", "e30=", first[:-8] + "AAAAAAA=", "é"):
            quoted = foreign.encode().hex() if foreign == "é" else foreign
            refused(service.send("GET", f"{DATABASES}?continuationToken={quoted}", token=token), 400, "InvalidRequest")
        refused(service.send("GET", f"{SALES}/items?continuationToken={first}", token=token), 400, "InvalidRequest")
    finally:
        service.stop()


def test_everything_survives_a_restart(tmp_path: Path) -> None:
    issued = Principals(tmp_path).add("again", ["sales=contribute"])
    service = Running(tmp_path)
    token = service.token(issued)
    made = {name: service.create(token, name, start=name == "runs") for name in ("runs", "waits", "gone")}
    service.send("PATCH", f"{DATABASES}/{made['waits']}", {"displayName": "still"}, token=token)
    workspace = service.send("GET", SALES, token=token).json
    until(lambda: status(service, made["runs"], token) == "Running")
    # a deletion that is cut off after its record
    entry = service.service.registry.workspace("sales")
    assert entry is not None
    database = service.service.registry.database(entry, made["gone"])
    assert database is not None
    service.service.registry.delete(database, hard=False)
    service.stop()
    publish(tmp_path / "sales/runs", [1])
    service = Running(tmp_path)
    try:
        assert service.send("GET", SALES, token=token).json == workspace
        found = {each["displayName"]: each["id"] for each in service.send("GET", DATABASES, token=token).json["value"]}
        assert found == {"runs": made["runs"], "still": made["waits"]}
        until(lambda: rows(service, made["runs"], token) == 1)
        assert status(service, made["waits"], token) == "Initialized"
        until(lambda: (tmp_path / ".lakemirror/deleted/sales" / made["gone"]).is_dir(), 10)
    finally:
        service.stop()


def test_a_definition_that_is_broken_by_hand(running: Running, token: str) -> None:
    database = running.create(token, "broken", start=True)
    other = running.create(token, "fine", start=True)
    folder = running.root / "sales/broken"
    until(lambda: status(running, database, token) == "Running")
    (folder / "mirroring.json").write_text("{")
    one = f"{DATABASES}/{database}/getMirroringStatus"
    found = until(lambda: running.send("POST", one, token=token).json.get("error"))
    assert found["errorCode"] == "definition-invalid"
    publish(running.root / "sales/fine", [1])
    until(lambda: rows(running, other, token) == 1)
    assert running.send("GET", f"{DATABASES}/{database}", token=token).status == 200
    body = {"definition": new("x")["definition"]}
    assert running.send("POST", f"{DATABASES}/{database}/updateDefinition", body, token=token).status == 200
    until(lambda: "error" not in running.send("POST", one, token=token).json)
