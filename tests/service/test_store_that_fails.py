"""A service whose files are in a store that fails for a while: coded answers, and nothing that was answered is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta

import pytest
from running_service import Running, new, until
from tests.fault_proxy import LOST, FaultProxy, fault_proxy
from tests.object_stores import s3_server

from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing
from lakemirror.service.auth.audit_log import audit_lines
from lakemirror.service.auth.principals import Issued, Principals
from lakemirror.service.own_folder import IN_STORE
from lakemirror.storage import connections, place
from lakemirror.storage.place import Place, files_below
from lakemirror.storage.served_prefix import ServedPrefix

FILE = "/sales/shop/Files/LandingZone/orders/00000000000000000001.csv"
ROWS = [b"id,name\n1,a\n", b"2,b\n"]


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Place, FaultProxy]]:
    """A root behind a proxy, whose requests are repeated for a second."""
    pauses = {"init_backoff": timedelta(milliseconds=5), "max_backoff": timedelta(milliseconds=50), "base": 2}
    monkeypatch.setitem(connections._RETRY, "backoff", pauses)
    monkeypatch.setitem(connections._RETRY, "retry_timeout", timedelta(seconds=1))
    with s3_server() as server, fault_proxy(server.endpoint) as proxy:
        bucket = server.bucket()
        connections.give_options("", server.through(proxy.url))
        yield place(f"{bucket}/lake"), proxy
        connections.forget_all()


def test_nothing_that_was_answered_is_lost(failing: tuple[Place, FaultProxy]) -> None:
    root, proxy = failing
    issued: Issued = Principals(root, IN_STORE).add("writer", ["sales=contribute"])
    service = Running(root, state=IN_STORE)
    service.ca.write_bytes((root / ".lakemirror/tls/ca.pem").read_bytes())
    token = service.token(issued)
    service.create(token, "shop", start=True)
    blob = {"x-ms-blob-type": "BlockBlob"}
    metadata = "/sales/shop/Files/LandingZone/orders/_metadata.json"
    assert service.send("PUT", metadata, b'{"keyColumns": ["id"]}', token=token, headers=blob).status == 201
    assert service.send("PUT", f"{FILE}?resource=file", token=token).status == 201
    assert service.send("PATCH", f"{FILE}?action=append&position=0", ROWS[0], token=token).status == 202

    proxy.down = True
    append, flush = (
        f"{FILE}?action=append&position={len(ROWS[0])}",
        f"{FILE}?action=flush&position={len(b''.join(ROWS))}",
    )
    for method, path, body in (
        ("PATCH", append, ROWS[1]),
        ("PUT", f"{FILE}2?resource=file", None),
        ("PUT", f"{FILE}3", ROWS[0]),
        ("POST", "/v1/workspaces/sales/mirroredDatabases", new("other")),
    ):
        answer = service.send(method, path, body, token=token, headers=blob)
        assert answer.status == 503 and (b"ServiceUnavailable" in answer.body or b"ServerBusy" in answer.body), (
            method,
            path,
            answer.body,
        )
    assert service.send("GET", "/livez").status == 200
    assert service.send("GET", "/v1/workspaces", token="wrong").status == 401
    assert service.send("GET", "/v1/workspaces", token=service.token(issued)).status == 200

    proxy.down = False
    left = [LOST] * 3
    proxy.fault = lambda method, path: left.pop() if left and method == "PUT" and "/staged/" in path else ""
    assert service.send("PATCH", append, ROWS[1], token=token).status == 202
    assert not left
    assert service.send("PATCH", flush, token=token).status == 200
    assert service.send("GET", FILE, token=token).body == b"".join(ROWS)
    assert service.send("POST", "/v1/workspaces/sales/mirroredDatabases", new("other"), token=token).status == 201
    staged = root / ".lakemirror/staged"
    until(lambda: not [path for path, _ in files_below(staged, lambda _: True)])
    service.stop()
    told = [json.loads(line) for line in audit_lines(root / ".lakemirror/audit.log")]
    assert [each["operation"] for each in told if each["status"] < 300 and each["path"].startswith(FILE)] == [
        "CreateFile", "Append", "Append", "Flush",
    ]  # fmt: skip
    assert [each["status"] for each in told].count(401) == 1


def test_a_file_whose_rename_was_cut_in_two_gets_one_number(
    failing: tuple[Place, FaultProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, _ = failing
    issued: Issued = Principals(root, IN_STORE).add("writer", ["sales=contribute"])
    service = Running(root, state=IN_STORE)
    service.create(service.token(issued), "shop")
    left: list[int] = []
    keep_folder = ServedPrefix._keep_folder_of

    def fails_once(self: ServedPrefix, path: str) -> None:
        """Between the copy and the deletion of a renamed file."""
        if left and "_publishing" in path:
            left.pop()
            raise LakemirrorError("storage-unavailable", "no answer")
        keep_folder(self, path)

    monkeypatch.setattr(ServedPrefix, "_keep_folder_of", fails_once)
    table = Landing(f"{service.url}/sales/shop", issued.shown(), ca=str(service.ca)).table("orders", keys=["id"])
    table.insert([{"id": 1}])
    left.append(1)
    table.insert([{"id": 2}])
    assert not left
    files = [path for path, _ in files_below(root / "sales/shop/Files", lambda _: True) if path.endswith(".parquet")]
    assert files == [f"LandingZone/orders/{number:020}.parquet" for number in (1, 2)]
    assert not [path for path, _ in files_below(root / "sales/shop/Files/_publishing", lambda _: True) if "tmp" in path]
    service.stop()
