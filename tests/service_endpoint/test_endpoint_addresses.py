"""Addresses and dialects, without a server (service.md sections 2 and 5)."""

from __future__ import annotations

import pytest

from lakemirror.service.raw_query import query_of, split_target
from lakemirror.service.refused import Refused
from lakemirror.service.request_address import (
    Address,
    address_of,
    dialect_of,
    is_writable,
    segments_of,
    source_segments,
)


@pytest.mark.parametrize(
    ("target", "address"),
    [
        ("/", Address()),
        ("/ws", Address("ws")),
        ("//ws//", Address("ws")),
        ("/loader", Address()),
        ("/loader/ws", Address("ws")),
        ("/OneLake/ws/db", Address("ws", "db")),
        ("/ws/db/Files/a", Address("ws", "db", "Files/a")),
        ("/ws/db/Files%2Fa", Address("ws", "db", "Files/a")),
        ("https://host:1/ws/db/a+b", Address("ws", "db", "a+b")),
        ("/ws/loader/x", Address("ws", "loader", "x")),
    ],
)
def test_what_a_path_names(target: str, address: Address) -> None:
    assert address_of(segments_of(split_target(target)[0]), "loader".__eq__) == address


def test_a_directory_below() -> None:
    assert Address("ws").below_directory("db/Files/") == Address("ws", "db", "Files")
    assert Address("ws", "db").below_directory("/Files//a") == Address("ws", "db", "Files/a")
    assert Address("ws", "db", "Files").below_directory("") == Address("ws", "db", "Files")


def test_queries() -> None:
    assert query_of("/?maxResults=5&Directory=a%2Fb%2520&x=a+b&flag&=v#x=1") == {
        "maxresults": "5", "directory": "a/b%20", "x": "a+b", "flag": "", "": "v",
    }  # fmt: skip
    for twice in ("x=1&x=1", "x=1&X=2", "restype=&restype=container", "%78&x", "=&="):
        with pytest.raises(Refused) as caught:
            query_of(f"/a?{twice}")
        assert caught.value.code == "InvalidQueryParameterValue"
    assert source_segments("https://h/ws/db/a%20b?x=/../") == ["ws", "db", "a b"]


@pytest.mark.parametrize(
    ("host", "method", "query", "headers", "dialect"),
    [
        ("x.dfs.localhost", "PUT", "comp=block", {"x-ms-blob-type": "BlockBlob"}, "dfs"),
        ("x.blob.localhost", "PATCH", "action=append", {}, "blob"),
        ("h", "PATCH", "", {}, "dfs"),
        ("h", "PUT", "resource=file", {"x-ms-blob-type": "BlockBlob"}, "dfs"),
        ("h", "DELETE", "recursive=true", {"accept": "application/xml"}, "dfs"),
        ("h", "PUT", "", {"x-ms-rename-source": "/x"}, "dfs"),
        ("h", "GET", "comp=list&restype=container", {}, "blob"),
        ("h", "PUT", "", {"x-ms-blob-type": "BlockBlob", "accept": "application/json"}, "blob"),
        ("h", "PUT", "", {"x-ms-copy-source": "/x"}, "blob"),
        ("h", "HEAD", "", {"accept": "application/xml"}, "blob"),
        ("h", "HEAD", "", {"x-ms-version": "2020-02-10"}, "blob"),
        ("h", "HEAD", "", {"x-ms-version": "2020-02-10", "accept": "*/*"}, "dfs"),
        ("h", "GET", "", {}, "dfs"),
    ],
)
def test_dialects(host: str, method: str, query: str, headers: dict[str, str], dialect: str) -> None:
    assert dialect_of(host, method, query_of(f"/?{query}"), headers) == dialect


@pytest.mark.parametrize(
    ("paths", "writable"),
    [
        (["Files/a", "Files/LandingZone/a", "Files/LandingZoneX", "Files/MonitoringX"], True),
        (["", "Files", "Files/LandingZone", "Files/Monitoring", "Files/Monitoring/a", "Files/_DroppedTables/a"], False),
        (["Tables/a", "Filesx/a", "files/a"], False),
    ],
)
def test_where_clients_may_write(paths: list[str], writable: bool) -> None:
    assert {is_writable(path) for path in paths} == {writable}
