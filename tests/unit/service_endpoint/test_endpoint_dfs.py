"""The DFS dialect over the wire, row by row (service.md section 5)."""

from __future__ import annotations

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


def test_list_rename_delete(wire: Wire, endpoint: EndpointServer) -> None:
    wire.upload("t/_tmp", b"abc")
    renamed = wire("PUT", f"{ZONE}/t/2.parquet", x_ms_rename_source=f"{ZONE}/t/_tmp")
    assert renamed.status == 201
    listed = wire("GET", "/ws?resource=filesystem&recursive=true&directory=sales/Files").json["paths"]
    assert [entry["name"] for entry in listed] == [
        "sales/Files/LandingZone", "sales/Files/LandingZone/t", "sales/Files/LandingZone/t/2.parquet",
    ]  # fmt: skip
    assert listed[0]["isDirectory"] == "true" and "isDirectory" not in listed[2]
    assert listed[2]["contentLength"] == "3" and listed[2]["etag"] == renamed.etag
    assert wire("DELETE", f"{ZONE}/t").code == "DirectoryNotEmpty"
    assert wire("DELETE", f"{ZONE}/t?recursive=true&paginated=true").status == 200
    assert not (endpoint.landing_zone / "t").exists()
    assert wire("HEAD", f"{ZONE}/t").code == "PathNotFound"


@pytest.mark.parametrize("workspace", ["ws", "WS", WORKSPACE_ID, WORKSPACE_ID.upper()])
@pytest.mark.parametrize("database", ["sales", "SALES", "sales.MirroredDatabase", DATABASE_ID, DATABASE_ID.upper()])
@pytest.mark.parametrize("account", ["", "/onelake", "/loader"])
def test_every_name_of_a_database(wire: Wire, account: str, workspace: str, database: str) -> None:
    answer = wire("GET", f"{account}/{workspace}/{database}/Files?resource=filesystem&recursive=false")
    assert [entry["name"] for entry in answer.json["paths"]] == [f"{database}/Files/LandingZone"]
    assert wire("HEAD", f"{account}/{workspace}/{database}").headers["x-ms-resource-type"] == "directory"
    assert BASE
