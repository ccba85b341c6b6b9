"""The DFS dialect over the wire, row by row (service.md section 5)."""

from __future__ import annotations

from pathlib import Path

import pytest
from endpoint_double import DATABASE_ID, WORKSPACE_ID, EndpointServer
from wire import BASE, ZONE, Wire


def test_an_upload_is_seen_by_the_engine_at_its_flush_only(wire: Wire, endpoint: EndpointServer) -> None:
    file = endpoint.landing_zone / "t" / "1.parquet"
    assert wire("PUT", f"{ZONE}/t/1.parquet?resource=file").status == 201
    assert wire("PATCH", f"{ZONE}/t/1.parquet?action=append&position=0", b"abc").status == 202
    assert not file.exists()
    head = wire("HEAD", f"{ZONE}/t/1.parquet")
    assert (head.status, head.headers["Content-Length"], head.headers["x-ms-resource-type"]) == (200, "0", "file")
    assert wire("PATCH", f"{ZONE}/t/1.parquet?action=flush&position=3").status == 200
    assert file.read_bytes() == b"abc"
    assert endpoint.registry.wakes == [DATABASE_ID]
    assert endpoint.staged() == []
    got = wire("GET", f"{ZONE}/t/1.parquet")
    assert (got.status, got.body) == (200, b"abc")


def test_a_listing_and_a_rename_name_the_same_etag(wire: Wire) -> None:
    wire.upload("t/_tmp", b"abc")
    renamed = wire("PUT", f"{ZONE}/t/2.parquet", x_ms_rename_source=f"{ZONE}/t/_tmp")
    listed = wire("GET", "/ws?resource=filesystem&recursive=true&directory=sales/Files").json["paths"]
    assert [entry["name"] for entry in listed] == [
        "sales/Files/LandingZone", "sales/Files/LandingZone/t", "sales/Files/LandingZone/t/2.parquet",
    ]  # fmt: skip
    assert listed[2]["etag"] == renamed.etag
    assert wire("DELETE", f"{ZONE}/t?recursive=true&paginated=true").status == 200


@pytest.mark.parametrize("workspace", ["ws", "WS", WORKSPACE_ID, WORKSPACE_ID.upper()])
@pytest.mark.parametrize("database", ["sales", "SALES", "sales.MirroredDatabase", DATABASE_ID, DATABASE_ID.upper()])
@pytest.mark.parametrize("account", ["", "/onelake", "/loader"])
def test_every_name_of_a_database(wire: Wire, account: str, workspace: str, database: str) -> None:
    answer = wire("GET", f"{account}/{workspace}/{database}/Files?resource=filesystem&recursive=false")
    assert [entry["name"] for entry in answer.json["paths"]] == [f"{database}/Files/LandingZone"]
    assert wire("HEAD", f"{account}/{workspace}/{database}").headers["x-ms-resource-type"] == "directory"
    assert BASE


def test_folders(wire: Wire) -> None:
    assert wire("PUT", f"{ZONE}?resource=directory").status == 201
    assert wire("PUT", f"{ZONE}/a/b?resource=directory").status == 201
    assert wire("PUT", f"{ZONE}/a/b?resource=directory", If_None_Match="*").code == "PathAlreadyExists"
    assert wire("HEAD", f"{ZONE}/a").headers["x-ms-meta-hdi_isfolder"] == "true"


@pytest.mark.parametrize(
    ("position", "status", "code"),
    [("", 400, "InvalidQueryParameterValue"), ("-1", 400, "InvalidQueryParameterValue"), ("x", 400, None)],
)
def test_positions(wire: Wire, position: str, status: int, code: str | None) -> None:
    wire("PUT", f"{ZONE}/f?resource=file")
    for action in ("append", "flush"):
        answer = wire("PATCH", f"{ZONE}/f?action={action}&position={position}", b"x")
        assert answer.status == status and code in (None, answer.code)


def test_appends_in_any_order_and_flushes(wire: Wire, endpoint: EndpointServer) -> None:
    wire("PUT", f"{ZONE}/f?resource=file")
    assert wire("PATCH", f"{ZONE}/f?action=append&position=6", b"ghi").status == 202
    assert wire("PATCH", f"{ZONE}/f?action=append&position=0", b"abc").status == 202
    assert wire("PATCH", f"{ZONE}/f?action=flush&position=9").code == "InvalidFlushPosition"
    assert wire("PATCH", f"{ZONE}/f?action=append&position=3", b"def").status == 202
    assert wire("PATCH", f"{ZONE}/f?action=flush&position=8").code == "InvalidFlushPosition"
    flush = f"{ZONE}/f?action=flush&position=9&close=true&retainUncommittedData=false"
    assert [wire("PATCH", flush).status for _ in range(2)] == [200, 200]
    assert (endpoint.landing_zone / "f").read_bytes() == b"abcdefghi"
    assert wire("PATCH", f"{ZONE}/f?action=append&position=0", b"xyz").status == 202, "dropped: it is flushed"
    assert wire("PATCH", f"{ZONE}/f?action=append&position=9&flush=true", b"jk").status == 202
    assert (endpoint.landing_zone / "f").read_bytes() == b"abcdefghijk"
    assert wire("PATCH", f"{ZONE}/no?action=append&position=0", b"x").code == "PathNotFound"
    assert wire("PATCH", f"{ZONE}/no?action=flush&position=0").code == "PathNotFound"
    assert wire("PATCH", f"{ZONE}?action=append&position=0", b"x").status in (403, 409)
    assert wire("PATCH", f"{ZONE}/f?action=setProperties", x_ms_properties="a=Yg==").status == 200


def test_a_created_file_over_an_old_one(wire: Wire, endpoint: EndpointServer) -> None:
    wire.upload("f", b"old")
    created = wire("PUT", f"{ZONE}/f?resource=file")
    assert wire("HEAD", f"{ZONE}/f").headers["Content-Length"] == "0"
    assert (endpoint.landing_zone / "f").read_bytes() == b"old"
    assert wire("PATCH", f"{ZONE}/f?action=append&position=0", b"new", If_Match=created.etag).status == 202
    assert wire("PATCH", f"{ZONE}/f?action=flush&position=3", If_Match=f'"{created.etag}"').status == 200
    assert wire("PATCH", f"{ZONE}/f?action=flush&position=3", If_Match=created.etag).code == "ConditionNotMet"
    assert wire("GET", f"{ZONE}/f").body == b"new"


def test_a_body_without_a_length(wire: Wire, endpoint: EndpointServer) -> None:
    wire("PUT", f"{ZONE}/f?resource=file")
    chunked = b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    answer = wire(
        "PATCH",
        f"{ZONE}/f?action=append&position=0&flush=true",
        chunked,
        Transfer_Encoding="chunked",
        Content_Length="",
    )
    assert answer.status == 202
    assert (endpoint.landing_zone / "f").read_bytes() == b"abcde"


def test_hadoop_says_patch_in_a_header(wire: Wire) -> None:
    wire("PUT", f"{ZONE}/f?resource=file")
    target = f"{ZONE}/f?action=append&position=0"
    assert wire("PUT", target, b"x", X_HTTP_Method_Override="PATCH").status == 202
    assert wire("PUT", target, b"x", X_HTTP_Method_Override="DELETE").status == 400
    assert wire("GET", f"{ZONE}/f", X_HTTP_Method_Override="PATCH").status == 400


@pytest.mark.parametrize(
    "source",
    [
        "/ws/sales/Files/LandingZone/t/_tmp",
        "/loader/ws/sales/Files/LandingZone/t/_tmp",
        "ws/sales/Files/LandingZone/t/_tmp",
        "/ws/sales.MirroredDatabase/Files/LandingZone/t/_tmp?resource=file",
        "https://somewhere:8443/ws/sales/Files/LandingZone/t/_tmp?sv=x",
        "https%3A%2F%2Fsomewhere%2Fws%2Fsales%2FFiles%2FLandingZone%2Ft%2F_tmp",
        "/ws/sales/Files%2FLandingZone%2Ft%2F%5Ftmp",
        f"/{WORKSPACE_ID}/{DATABASE_ID}/Files/LandingZone/t/_tmp",
    ],
)
def test_forms_of_a_rename_source(wire: Wire, endpoint: EndpointServer, source: str) -> None:
    wire.upload("t/_tmp", b"abc")
    assert wire("PUT", f"{ZONE}/t/1?mode=legacy", x_ms_rename_source=source).status == 201
    assert [path.name for path in (endpoint.landing_zone / "t").iterdir()] == ["1"]


def test_what_a_rename_refuses(wire: Wire, endpoint: EndpointServer) -> None:
    wire.upload("t/a", b"a")
    wire.upload("u/b", b"b")
    wire("PUT", f"{ZONE}/empty?resource=directory")

    def rename(source: str, target: str, **headers: str) -> tuple[int, str]:
        answer = wire("PUT", target, x_ms_rename_source=source, **headers)
        return answer.status, answer.code

    assert rename(f"{ZONE}/t/no", f"{ZONE}/t/x") == (404, "SourcePathNotFound")
    assert rename(f"{ZONE}/t/a", f"{ZONE}/no/x") == (404, "RenameDestinationParentPathNotFound")
    assert rename(f"{ZONE}/t/a", f"{ZONE}/u") == (409, "InvalidSourceOrDestinationResourceType")
    assert rename(f"{ZONE}/t", f"{ZONE}/u/b") == (409, "InvalidSourceOrDestinationResourceType")
    assert rename(f"{ZONE}/t", f"{ZONE}/u") == (409, "DirectoryNotEmpty")
    assert rename(f"{ZONE}/t", f"{ZONE}/t/in") == (409, "InvalidRenameSourcePath")
    assert rename("/other/sales/Files/x", f"{ZONE}/x") == (400, "InvalidSourceUri")
    assert rename("/ws/empty/Files/x", f"{ZONE}/x") == (400, "InvalidSourceUri")
    assert rename("/ws/sales/Tables/x", f"{ZONE}/x") == (403, "AuthorizationPermissionMismatch")
    assert rename(f"{ZONE}/t/a", "/ws/sales/Tables/x") == (403, "AuthorizationPermissionMismatch")
    assert rename(f"{ZONE}/../../x", f"{ZONE}/x") == (400, "InvalidUri")
    assert rename(f"{ZONE}/t/a", f"{ZONE}/u/b", If_None_Match="*") == (409, "PathAlreadyExists")
    assert rename(f"{ZONE}/t/a", f"{ZONE}/u/b", If_Match="x") == (412, "ConditionNotMet")
    assert rename(f"{ZONE}/t/a", f"{ZONE}/u/b", x_ms_source_if_match="x") == (412, "ConditionNotMet")
    assert rename(f"{ZONE}/t", f"{ZONE}/empty") == (201, "")
    assert rename(f"{ZONE}/empty/a", f"{ZONE}/u/b") == (201, "")
    assert (endpoint.landing_zone / "u" / "b").read_bytes() == b"a"


def test_a_rename_drops_what_is_not_flushed(wire: Wire, endpoint: EndpointServer) -> None:
    wire.upload("t/a", b"abc")
    wire("PATCH", f"{ZONE}/t/a?action=append&position=3", b"def")
    before = (endpoint.landing_zone / "t" / "a").stat().st_mtime_ns - (not isinstance(endpoint.database, Path))
    wire("PUT", f"{ZONE}/t/new?resource=file")
    wire("PATCH", f"{ZONE}/t/new?action=append&position=0", b"gone")
    assert wire("PUT", f"{ZONE}/t/b", x_ms_rename_source=f"{ZONE}/t/a").status == 201
    assert (endpoint.landing_zone / "t" / "b").stat().st_mtime_ns > before
    assert wire("GET", f"{ZONE}/t/b").body == b"abc"
    assert wire("PATCH", f"{ZONE}/t/b?action=flush&position=6").code == "InvalidFlushPosition"
    assert wire("PUT", f"{ZONE}/t/c", x_ms_rename_source=f"{ZONE}/t/new").status == 201
    assert (endpoint.landing_zone / "t" / "c").read_bytes() == b""
    wire("PUT", f"{ZONE}/t/created?resource=file")
    assert wire("PUT", f"{ZONE}/u", x_ms_rename_source=f"{ZONE}/t").status == 201
    assert wire("HEAD", f"{ZONE}/u/created").status == 200
    assert wire("HEAD", f"{ZONE}/t/created").status == 404


def test_lists_in_every_form(wire: Wire, endpoint: EndpointServer) -> None:
    for name in ("t/a", "t-b", "t0", "t/ü", "t/b/c"):
        wire.upload(name, b"x")
    wire("PUT", f"{ZONE}/t/created?resource=file")
    (endpoint.landing_zone / "link").symlink_to("/etc")
    (endpoint.database / ".lakemirror-item.json").write_text("{}")

    def names(target: str) -> list[str]:
        return [entry["name"] for entry in wire("GET", target).json["paths"]]

    zone = "sales/Files/LandingZone"
    everything = ["t", "t-b", "t/a", "t/b", "t/b/c", "t/created", "t/ü", "t0"]
    for target in (
        f"/ws?resource=filesystem&recursive=true&directory={zone}",
        f"/ws?resource=filesystem&recursive=true&directory={zone.replace('/', '%2F')}%2F",
        "/ws/sales?resource=filesystem&recursive=true&directory=Files/LandingZone",
        f"/ws/{zone}?resource=filesystem&recursive=true",
    ):
        assert names(target) == [f"{zone}/{name}" for name in everything]
    assert names(f"/ws/{zone}?resource=filesystem&recursive=false") == [f"{zone}/{n}" for n in ("t", "t-b", "t0")]
    assert names(f"/ws/{zone}/t/a?resource=filesystem&recursive=true") == [f"{zone}/t/a"], "a file lists itself"
    assert names("/ws?resource=filesystem&recursive=false") == ["empty.MirroredDatabase", "sales.MirroredDatabase"]
    assert names("/ws/sales?resource=filesystem&recursive=false") == ["sales/Files", "sales/Tables"]
    assert wire("GET", f"/ws/{zone}/no?resource=filesystem&recursive=true").code == "PathNotFound"
    found, token = [], ""
    while True:
        answer = wire("GET", f"/ws/{zone}?resource=filesystem&recursive=true&maxResults=2&continuation={token}")
        found += [entry["name"] for entry in answer.json["paths"]]
        token = answer.headers.get("x-ms-continuation", "")
        if not token:
            break
    assert found == [f"{zone}/{name}" for name in everything]
    for wrong in ("continuation=%21", "continuation=Li4v", "maxResults=0", "maxResults=x"):
        answer = wire("GET", f"/ws/{zone}?resource=filesystem&recursive=true&{wrong}")
        assert (answer.status, answer.code) == (400, "InvalidQueryParameterValue")


@pytest.mark.parametrize(
    "path",
    ["Files", "Files/LandingZone", "Files/Monitoring/x", "Files/_DroppedTables/x", "Tables/x", "Tables", "x", "files/x",
     "_x", ""],
)  # fmt: skip
def test_where_nobody_writes(wire: Wire, endpoint: EndpointServer, path: str) -> None:
    (endpoint.database / "Files" / "Monitoring").mkdir(exist_ok=True)
    target = f"{BASE}/{path}"
    for method, query, headers in (
        ("PUT", "?resource=file", {}),
        ("PUT", "?resource=directory", {}),
        ("PATCH", "?action=append&position=0", {}),
        ("PATCH", "?action=flush&position=0", {}),
        ("PUT", "", {"x_ms_rename_source": f"{ZONE}/t"}),
        ("DELETE", "?recursive=true", {}),
        ("PUT", "", {"x_ms_blob_type": "BlockBlob"}),
        ("PUT", "?comp=block&blockid=MQ==", {}),
        ("PUT", "?comp=blocklist", {}),
        ("PUT", "", {"x_ms_copy_source": f"{ZONE}/t"}),
    ):
        if path == "Files/LandingZone" and query == "?resource=directory":
            continue
        answer = wire(method, target, b"", **headers) if query == "" else wire(method, target + query, b"", **headers)
        assert (answer.status, answer.code) == (403, "AuthorizationPermissionMismatch"), (method, query, headers)


@pytest.mark.parametrize(
    ("name", "target", "status", "code"),
    [
        ("", BASE, 401, "NoAuthenticationInformation"),
        ("stranger", BASE, 401, "InvalidAuthenticationInfo"),
        ("reader", "/other/sales", 403, "AuthorizationPermissionMismatch"),
        ("reader", "/nowhere/sales", 403, "AuthorizationPermissionMismatch"),
        ("admin", "/nowhere/sales", 404, "FilesystemNotFound"),
        ("admin", "/other/sales", 200, ""),
        ("reader", "/ws/nothing/Files", 404, "PathNotFound"),
    ],
)
def test_who_may_read(wire: Wire, name: str, target: str, status: int, code: str) -> None:
    answer = wire("GET", target, name=name) if name else wire("GET", target, Authorization="")
    assert (answer.status, answer.code) == (status, code)
    assert ("WWW-Authenticate" in answer.headers) == (name == "")


def test_a_reader_writes_nothing(wire: Wire, endpoint: EndpointServer) -> None:
    wire.upload("t/a", b"x")
    for method, target, headers in (
        ("PUT", f"{ZONE}/t/b?resource=file", {}),
        ("PATCH", f"{ZONE}/t/a?action=append&position=1", {}),
        ("PATCH", f"{ZONE}/t/a?action=flush&position=1", {}),
        ("PUT", f"{ZONE}/t/b", {"x_ms_rename_source": f"{ZONE}/t/a"}),
        ("DELETE", f"{ZONE}/t/a", {}),
        ("PUT", f"{ZONE}/t/b", {"x_ms_blob_type": "BlockBlob"}),
        ("PUT", f"{ZONE}/t/b?comp=block&blockid=MQ==", {}),
        ("POST", "/ws?restype=container&comp=batch", {}),
    ):
        assert wire(method, target, b"", name="reader", **headers).status == 403
        assert wire(f"{method}", f"{target}{'&' if '?' in target else '?'}sig=x&sp=rl", b"", **headers).status == 403
    assert wire("GET", f"{ZONE}/t/a?sig=x&sp=r", Authorization="").body == b"x"
    assert wire("GET", f"{ZONE}/t/a?sig=x&sp=l", Authorization="").status == 403
    assert sorted(path.name for path in endpoint.landing_zone.rglob("*")) == ["a", "t"]


def test_answers_carry_ids_and_versions(wire: Wire) -> None:
    answer = wire("HEAD", f"{BASE}/no", x_ms_client_request_id="mine", x_ms_version="2020-06-12")
    assert answer.headers["x-ms-client-request-id"] == "mine" and answer.headers["x-ms-version"] == "2020-06-12"
    assert answer.headers["x-ms-request-id"] and answer.headers["Date"]
    assert answer.headers["x-ms-error-code"] == "PathNotFound" and answer.body == b""
    assert wire("GET", f"{BASE}/no").headers["x-ms-version"]


def test_workspaces_are_file_systems(wire: Wire) -> None:
    assert wire("HEAD", "/ws?resource=filesystem").status == 200
    assert wire("HEAD", "/ws/?action=getAccessControl&upn=false").headers["x-ms-permissions"]
    assert wire("HEAD", f"{BASE}/Files?action=getAccessControl").headers["x-ms-acl"]
    assert wire("HEAD", f"{BASE}/Files?action=getStatus").status == 200
    answer = wire("PUT", "/ws?resource=filesystem")
    assert (answer.status, answer.code) == (409, "FilesystemAlreadyExists")
    assert wire("PUT", "/new?resource=filesystem", name="admin").status == 403
    assert wire("DELETE", "/ws?resource=filesystem").status == 403
    assert [each["name"] for each in wire("GET", "/?resource=account").json["filesystems"]] == ["ws"]
    assert len(wire("GET", "/?resource=account", name="admin").json["filesystems"]) == 2
    assert wire("PATCH", f"{ZONE}?action=setAccessControl").code == "NotImplemented"
