"""Credentials for one table: a SAS that opens this table's folder, for reading and listing, and nothing else."""

from __future__ import annotations

import base64
import json
import logging
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.filedatalake import FileSystemClient
from running_service import Answer, Running, principals_of, until
from tests.landing import declare, put
from tests.object_stores import s3_server
from tests.seen_in_store import SeenInStore

from lakemirror.api import MirroredDatabase
from lakemirror.service.auth import folder_sas
from lakemirror.service.auth.principals import Issued, Principal
from lakemirror.service.sharing.profile import write_profile
from lakemirror.service.unity.unity_endpoints import Unity
from lakemirror.storage import connections, place

API = "/api/2.1/unity-catalog"
XML = {"Accept": "application/xml", "x-ms-version": "2021-08-06"}


@pytest.fixture(scope="module", params=["disk", pytest.param("bucket", marks=pytest.mark.full)])
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The root that is served, with mirrored tables: a folder, and a prefix of a bucket."""
    made = tmp_path_factory.mktemp("credentials")
    for place_of in ("sales/shop", "hidden/shop"):
        for table in ("orders", "orders2", "crm.people"):
            declare(made / place_of, table, ["id"])
            put(made / place_of, table, 1, {"id": [1], "name": ["a"], "__rowMarker__": [0]})
        MirroredDatabase(made / place_of, engine="local").sync()
    if request.param == "disk":
        yield made
        return
    with s3_server() as server:
        connections.give_options("", server.options)
        seen = SeenInStore(place(f"{server.bucket()}/lake"), own=tmp_path_factory.mktemp("state"))
        for each in made.rglob("*"):
            if each.is_file():
                (seen / str(each.relative_to(made))).write_bytes(each.read_bytes())
        yield seen
        connections.forget_all()


@dataclass(frozen=True)
class Key:
    """Credentials for a table. `place`: its path on the endpoint. `fields`: of the SAS."""

    sas: str
    expiry: int
    place: str

    @property
    def fields(self) -> dict[str, str]:
        return dict(parse_qsl(self.sas))

    @property
    def workspace(self) -> str:
        return self.place.split("/")[1]

    @property
    def inner(self) -> str:
        """The table's folder below the workspace."""
        return self.place.split("/", 2)[2]


def asked(running: Running, token: str, table_id: Any, operation: Any = "READ") -> Answer:
    body = {"table_id": table_id, "operation": operation}
    return running.send("POST", f"{API}/temporary-table-credentials", body, token=token)


def key_for(running: Running, token: str, table: str) -> Key:
    row = running.send("GET", f"{API}/tables/{quote(table)}", token=token).json
    answer = asked(running, token, row["table_id"])
    assert answer.status == 200, answer.body
    assert answer.headers["Cache-Control"] == "no-store"
    location = urlsplit(row["storage_location"])
    sas, expiry = answer.json["azure_user_delegation_sas"]["sas_token"], answer.json["expiration_time"]
    return Key(sas, expiry, f"/{location.username}{location.path}")


@pytest.fixture(scope="module")
def writer_token(running: Running, writer: Issued) -> str:
    return running.token(writer)


@pytest.fixture(scope="module")
def key(running: Running, writer_token: str) -> Key:
    """Of a principal that may write, so that a SAS that does not narrow its role is seen."""
    return key_for(running, writer_token, "sales.shop.orders")


def send(
    running: Running, method: str, path: str, sas: str, body: bytes | None = None, **headers: Mapping[str, str] | str
) -> Answer:
    query = f"{'&' if '?' in path else '?'}{sas}"
    sent = {name.replace("_", "-"): str(value) for name, value in headers.items()}
    return running.send(method, path + query, body, headers=sent)


def listed(running: Running, key: Key, directory: str, sas: str = "") -> Answer:
    path = f"/{key.workspace}?resource=filesystem&recursive=true&directory={quote(directory, safe='')}"
    return send(running, "GET", path, sas or key.sas)


def listed_blobs(running: Running, key: Key, prefix: str, more: str = "") -> Answer:
    path = f"/{key.workspace}?restype=container&comp=list&prefix={quote(prefix, safe='')}{more}"
    return send(running, "GET", path, key.sas, **XML)


def test_the_folder_is_listed_and_read_in_both_dialects(running: Running, key: Key) -> None:
    assert set(key.fields) >= {"sp", "st", "se", "skoid", "sktid", "sv", "sr", "sdd", "sig"}
    assert (key.fields["sp"], key.fields["sr"], key.fields["sdd"], key.fields["spr"]) == ("rl", "d", "3", "https")
    assert 3000 < key.expiry / 1000 - time.time() <= 3600
    names = [each["name"] for each in listed(running, key, key.inner).json["paths"]]
    log = f"{key.inner}/_delta_log/00000000000000000000.json"
    assert log in names and all(name.startswith(f"{key.inner}/") for name in names)
    assert log in listed_blobs(running, key, f"{key.inner}/").body.decode()
    commit = (running.root / "sales/shop/Tables/orders/_delta_log/00000000000000000000.json").read_bytes()
    for prefix in ("", "/onelake", "/writer"):
        whole = f"{prefix}/{key.workspace}/{log}"
        assert send(running, "GET", whole, key.sas).body == commit
        assert send(running, "GET", whole, key.sas, Range="bytes=0-3", **XML).body == commit[:4]
        assert send(running, "HEAD", whole.upper().replace(log.upper(), log), key.sas).status in (200, 403)
    inner = send(running, "GET", f"/{key.workspace}/{key.inner}?resource=filesystem&recursive=false", key.sas)
    assert inner.status == 200 and f"{key.inner}/_delta_log" in [each["name"] for each in inner.json["paths"]]
    assert send(running, "HEAD", f"/{key.workspace.upper()}/{log}", key.sas).status == 200


def test_the_vendors_library_reads_by_it(running: Running, key: Key) -> None:
    client = FileSystemClient(
        running.url, key.workspace, credential=key.sas, connection_verify=str(running.ca), retry_total=0
    )
    inside = client.get_directory_client(key.inner)
    names = [each.name.rpartition("/")[2] for each in client.get_paths(key.inner)]
    assert any(name.endswith(".parquet") for name in names)
    assert inside.get_file_client("_delta_log/00000000000000000000.json").download_file().readall().startswith(b"{")
    for act in (inside.delete_directory, lambda: inside.create_file("x"), lambda: list(client.get_paths())):
        with pytest.raises(HttpResponseError) as refused:
            act()
        assert refused.value.status_code == 403


@pytest.mark.parametrize(
    "path",
    [
        "{db}/Tables/orders2/_delta_log/00000000000000000000.json",
        "{db}/Tables/crm/people/_delta_log/00000000000000000000.json",
        "{db}/Tables",
        "{db}/Files/LandingZone/orders/_metadata.json",
        "{db}",
        "",
        "shop/Tables/orders/_delta_log/00000000000000000000.json",
        "{inner}/../orders2/_delta_log/00000000000000000000.json",
        "{inner}%2F..%2Forders2",
        "{inner}%2f%2e%2e%2forders2",
        "{inner}%252F..%252Forders2",
        "{inner}/..%5Corders2",
        "{inner}2",
        "{inner}%00",
        "{inner}%0A/orders2",
        "{upper}/_delta_log/00000000000000000000.json",
    ],
)
def test_nothing_beside_the_folder_is_opened(running: Running, key: Key, path: str) -> None:
    database = key.inner.partition("/")[0]
    written = path.format(db=database, inner=key.inner, upper=f"{database}/TABLES/ORDERS")
    named = f"/{key.workspace}/{written}"
    more = "directory={0}&prefix={0}/&startFrom={0}".format(quote(key.inner, safe=""))
    listing = f"{named}?{more}&comp=list" if path else f"{named}?resource=account"  # of a workspace: a list that fits
    for address in (named, f"{named}?{more}", listing, f"{named}?{more}&restype=container"):
        for method, headers in (("GET", {}), ("HEAD", {}), ("GET", XML)):
            answer = send(running, method, address, key.sas, **headers)
            assert answer.status in (400, 403), (method, address, answer.status)


@pytest.mark.parametrize("tail", ["", "/", "/../orders2", "2", "2/", "/_delta_log/../../orders2", "//..//orders2"])
def test_no_other_folder_is_listed(running: Running, key: Key, tail: str) -> None:
    database = key.inner.partition("/")[0]
    for folder in ("", database, f"{database}/Tables", f"{database}/Files"):
        assert listed(running, key, folder + ("" if folder else "/")).status == 403
        assert listed_blobs(running, key, folder).status == 403
        assert listed_blobs(running, key, f"{folder}/" if folder else "").status == 403
    if tail not in ("", "/"):
        assert listed(running, key, key.inner + tail).status in (400, 403)
        assert listed_blobs(running, key, key.inner + tail).status in (400, 403)
    # a start of a name that other tables have, too; and parameters that mean something in the other dialect alone
    assert listed_blobs(running, key, key.inner).status == 403
    for more in ("startFrom", "marker", "continuation", "directory"):
        assert listed_blobs(running, key, f"{database}/Tables/", f"&{more}={quote(key.inner, safe='')}").status == 403
    both = f"resource=filesystem&restype=container&comp=list&directory={quote(key.inner, safe='')}&prefix={database}/"
    for host in ("onelake.blob.localhost", "onelake.dfs.localhost", "localhost"):
        swapped = both.replace("directory=", "x=").replace("prefix=", "directory=").replace("x=", "prefix=")
        for query in (both, swapped):
            answer = send(running, "GET", f"/{key.workspace}?recursive=true&{query}", key.sas, Host=host)
            assert b"orders2" not in answer.body and b"LandingZone" not in answer.body, (host, query)
    assert b"orders2" not in send(running, "GET", "/?comp=list", key.sas, **XML).body
    assert send(running, "GET", f"/?comp=list&prefix={key.workspace}/{key.inner}/", key.sas, **XML).status == 403


def test_nothing_is_changed_by_it(running: Running, key: Key) -> None:
    before = {str(each): each.read_bytes() for each in (running.root / "sales").rglob("*") if each.is_file()}
    database = key.inner.partition("/")[0]
    landing, own = f"{database}/Files/LandingZone/orders", key.inner
    source = f"/{key.workspace}/{own}/_delta_log/00000000000000000000.json"
    block = {"x_ms_blob_type": "BlockBlob"}
    for folder in (landing, own):
        name = f"/{key.workspace}/{folder}/x.parquet"
        for method, path, headers in (
            ("PUT", f"{name}?resource=file", {}), ("PUT", f"{name}?resource=directory", {}),
            ("PATCH", f"{name}?action=append&position=0", {}), ("PATCH", f"{name}?action=flush&position=0", {}),
            ("PATCH", f"{name}?action=append&position=0&flush=true", {}), ("PUT", name, block),
            ("PATCH", f"{name}?action=setProperties", {}), ("PUT", f"{name}?comp=block&blockid=AAAA", {}),
            ("PUT", f"{name}?comp=blocklist", {}), ("PUT", f"{name}?comp=metadata", {}),
            ("PUT", name, {"x_ms_copy_source": source, **block}), ("PUT", name, {"x_ms_copy_source": source}),
            ("PUT", name, {"x_ms_copy_source": f"{source}?{key.sas}"}), ("PUT", name, {"x_ms_rename_source": source}),
            ("PUT", f"{name}?action=append&position=0", {"X_HTTP_Method_Override": "PATCH"}),
            ("DELETE", f"/{key.workspace}/{folder}?recursive=true", {}), ("DELETE", source, {}),
            ("DELETE", source, XML),
            ("POST", f"/{key.workspace}?restype=container&comp=batch", {"Content_Type": "multipart/mixed; boundary=b"}),
            ("PUT", f"/{key.workspace}?resource=filesystem", {}), ("DELETE", f"/{key.workspace}?restype=container", {}),
        ):  # fmt: skip
            batch = f"--b\r\nContent-Type: application/http\r\n\r\nDELETE {source} HTTP/1.1\r\n\r\n\r\n--b--\r\n"
            body = batch.encode() if "batch" in path else b"x"
            answer = send(running, method, path, key.sas, body, **headers)
            assert answer.status == 403, (method, path, headers, answer.status, answer.body)
    assert {str(each): each.read_bytes() for each in (running.root / "sales").rglob("*") if each.is_file()} == before


@pytest.mark.parametrize(
    "changed",
    [
        {"sp": "rlw"}, {"sp": "rwdl"}, {"sp": "l"}, {"se": "2100-01-01T00:00:00Z"}, {"ske": "2100-01-01T00:00:00Z"},
        {"st": "2000-01-01T00:00:00Z"}, {"sdd": "2"}, {"sdd": "1"}, {"sdd": "0"}, {"sdd": "4"}, {"sdd": "-1"},
        {"sdd": "٣"}, {"sdd": "9" * 5000}, {"sdd": ""}, {"sr": "c"}, {"sr": "b"}, {"sr": ""}, {"spr": "https,http"},
        {"sv": "2020-02-10"}, {"skv": ""}, {"sig": ""}, {"sig": "AAAA"}, {"sig": "é"}, {"sip": "127.0.0.1"},
        {"skoid": ""}, {"skoid": "writer"}, {"skoid": "reader"}, {"sktid": ""}, {"srt": "sco", "ss": "b"},
        {"rsct": "x"},
        {"sp": "rl\n", "st": ""}, {"saoid": "x"}, {"snapshot": "x"}, {"ses": "x"},
    ],
)  # fmt: skip
def test_a_changed_one_opens_nothing(running: Running, key: Key, changed: dict[str, str]) -> None:
    commit = f"{key.place}/_delta_log/00000000000000000000.json"
    assert send(running, "GET", commit, key.sas).status == 200
    account = running.send("GET", f"/writer{commit}?{urlencode({**key.fields, **changed})}")
    for answer in (send(running, "GET", commit, urlencode({**key.fields, **changed})), account):
        if changed.get("srt"):  # a field that is not of it, and is not looked at
            assert answer.status == 200
        else:
            assert (answer.status, answer.headers["x-ms-error-code"]) == (403, "AuthenticationFailed")
    assert send(running, "GET", commit, f"{key.sas}&sdd=3").status == 400


def test_a_key_of_the_principal_makes_none(running: Running, key: Key, writer: Issued) -> None:
    """The account key alone signs an account SAS: a SAS for one folder is made by the service."""
    for secret in (b"", base64.b64decode(writer.principal.account_key), writer.principal.account_key.encode()):
        issuer = folder_sas.FolderSas(secret)
        forged, _ = issuer.issue(writer.principal, key.fields["sktid"], key.place[1:], secure=True)
        assert send(running, "GET", f"{key.place}/_delta_log/00000000000000000000.json", forged).status == 403


def test_it_ends_with_its_time_and_is_for_https(monkeypatch: pytest.MonkeyPatch) -> None:
    principal = Principal("writer", "id", {}, "a2V5", {})
    issuer = folder_sas.FolderSas(b"secret")
    for secure in (True, False):
        sas, ends = issuer.issue(principal, "tenant", "ws/db/Tables/orders", secure=secure)
        query, name = dict(parse_qsl(sas)), "ws/db/Tables/orders/part"
        assert issuer.folder_of(query, principal, [name], secure=True) == "ws/db/Tables/orders"
        assert issuer.folder_of(query, principal, ["ws/db/Tables"], secure=True) == ""
        assert bool(issuer.folder_of(query, principal, [name], secure=False)) is not secure
        for now, opens in ((ends - 1, True), (ends, False), (ends - 3601 - 300, False), (ends - 3600, True)):
            monkeypatch.setattr(time, "time", lambda now=now: now)
            assert bool(issuer.folder_of(query, principal, [name], secure=True)) is opens, now
        monkeypatch.undo()


def test_the_text_that_is_signed_is_the_vendors() -> None:
    """The fields in the order of the vendor's user-delegation SAS of version 2020-12-06 and later."""
    principal = Principal("writer", "OID", {}, "a2V5", {})
    sas, _ = folder_sas.FolderSas(b"secret").issue(principal, "TID", "ws/db/Tables/orders", secure=True)
    q = dict(parse_qsl(sas))
    text = (
        f"rl\n{q['st']}\n{q['se']}\n/blob/onelake/ws/db/Tables/orders\nOID\nTID\n{q['skt']}\n{q['ske']}\nb\n{q['skv']}\n"
        f"\n\n\n\nhttps\n{q['sv']}\nd\n\n\n\n\n\n\n"
    )
    derived = folder_sas.hmac.digest(
        b"secret", "\n".join(["a2V5", "OID", "TID", q["skt"], q["ske"], "b", q["skv"]]).encode(), "sha256"
    )
    assert q["sig"] == folder_sas.signature(base64.b64encode(derived).decode(), text)


def test_who_gets_credentials(running: Running, writer_token: str, reader: Issued, tmp_path: Path) -> None:
    token = running.token(reader)
    row = running.send("GET", f"{API}/tables/sales.shop.orders", token=token).json
    assert asked(running, token, row["table_id"]).status == 200
    hidden = json.loads((running.root / "hidden/shop/Tables/orders/_delta_log/00000000000000000000.json")
                        .read_bytes().decode().split("metaData")[1][2:].split("\n")[0][:-1])["id"]  # fmt: skip
    for table_id, operation, status, code in (
        (row["table_id"], "READ_WRITE", 403, "PERMISSION_DENIED"),
        (row["table_id"], "WRITE", 400, "INVALID_ARGUMENT"),
        (row["table_id"], None, 400, "INVALID_ARGUMENT"), (hidden, "READ", 404, "NOT_FOUND"),
        ("absent", "READ", 404, "NOT_FOUND"), ("", "READ", 400, "INVALID_ARGUMENT"),
        (7, "READ", 400, "INVALID_ARGUMENT"),
    ):  # fmt: skip
        answer = asked(running, token, table_id, operation)
        assert (answer.status, answer.json["error_code"]) == (status, code), answer.body
    path = f"{API}/temporary-table-credentials"
    assert running.send("POST", path, b"[" * 60_000, token=token).status == 400
    assert running.send("POST", path, b'{"table_id": ["x"], "operation": "READ"}', token=token).status == 400
    assert running.send("POST", path, b"x" * 70_000, token=token).status == 413
    assert running.send("GET", path, token=token).status == 405
    assert running.send("POST", path, {}).status == 401
    write_profile(principals_of(running.root), "reader", tmp_path / "profile", running.url, 3600)
    shared = json.loads((tmp_path / "profile").read_text())["bearerToken"]
    assert running.send("GET", f"{API}/tables/sales.shop.orders", token=shared).status == 200
    assert asked(running, shared, row["table_id"]).status == 401


def test_it_ends_with_the_principals_key_role_and_name(running: Running) -> None:
    known = principals_of(running.root)
    for name, end in (
        ("turned", known.rotate), ("gone", known.remove), ("without", lambda _: known.move_roles("hidden", None)),
    ):  # fmt: skip
        workspace = "hidden" if name == "without" else "sales"
        issued = known.add(name, [f"{workspace}=read"])
        token = until(lambda issued=issued: running.ask_token(issued).status == 200) and running.token(issued)
        key = key_for(running, token, f"{workspace}.shop:crm.people")
        commit = f"{key.place}/_delta_log/00000000000000000000.json"
        assert send(running, "GET", commit, key.sas).status == 200 and key.fields["sdd"] == "4"
        end(name)
        until(lambda commit=commit, key=key: send(running, "GET", commit, key.sas).status == 403)
        assert listed(running, key, key.inner).status == 403


def test_a_copy_has_credentials_of_its_own(running: Running, writer_token: str, key: Key) -> None:
    """Also where the service has not looked at it before: it was started anew since the client asked for the id."""
    folder = running.root / "sales/shop/Tables"
    shutil.copytree(folder / "orders", folder / "copied")
    try:
        copied = key_for(running, writer_token, "sales.shop.copied")
        assert copied.inner.endswith("/Tables/copied") and copied.fields["sdd"] == "3"
        assert listed(running, copied, copied.inner).status == 200 and listed(running, copied, key.inner).status == 403
        table_id = running.send("GET", f"{API}/tables/sales.shop.copied", token=writer_token).json["table_id"]
        catalog = Unity(*[None] * 10)  # type: ignore[arg-type]
        catalog.registry = running.service.registry
        caller = running.service.principals.by_name("writer").caller()  # type: ignore[union-attr]
        assert catalog._with_id(caller, table_id).name == "copied"
        read = [place.name for place in catalog._snapshots._known]
        assert read == ["copied"], "the log of no other table is read"
    finally:
        shutil.rmtree(folder / "copied")
    assert asked(running, writer_token, table_id).status == 404


def test_the_audit_log_says_what_was_given(running: Running, writer_token: str, key: Key) -> None:
    answer = asked(running, writer_token, running.send("GET", f"{API}/tables/sales.shop.orders", token=writer_token)
                   .json["table_id"])  # fmt: skip
    records = [json.loads(line) for line in (running.root / ".lakemirror/audit.log").read_text().splitlines()]
    found = next(each for each in records if each["requestId"] == answer.headers["x-ms-request-id"])
    until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(answer.json["expiration_time"] / 1000))
    assert found.pop("time")[:2] == "20" and found.pop("requestId") and found == {
        "principal": "writer", "operation": "GenerateTemporaryTableCredential", "remote": "127.0.0.1", "status": 200,
        "path": f"{API}/temporary-table-credentials", "table": "sales.shop.orders", "until": until,
    }  # fmt: skip


def test_no_log_has_it(running: Running, key: Key, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        send(running, "DELETE", f"{key.place}?recursive=true", key.sas)
        send(running, "GET", f"/{key.workspace}/x", key.sas)
        send(running, "GET", key.place, key.sas.replace("sdd=3", "sdd=2"))
    audit = (running.root / ".lakemirror/audit.log").read_text()
    lines = [json.loads(line) for line in audit.splitlines()]
    assert [each["principal"] for each in lines if each["operation"] == "DeletePath"][-1] == "writer"
    signature = key.fields["sig"]
    for text in (audit, caplog.text):
        assert signature not in text and quote(signature, safe="") not in text and "sig=" not in text
