"""Random requests: never a 500, never a hang, never a byte outside the database.

`FUZZ_EXAMPLES`: how many sequences of requests, with another seed each time.
"""

from __future__ import annotations

import http.client
import logging
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from endpoint_double import EndpointServer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.rounds import rounds

HANGS = 60.0  # seconds: the disk may be slow
CHOSEN = os.environ.get("FUZZ_EXAMPLES", "")

PIECES = [
    "ws", "sales", "sales.MirroredDatabase", "other", "empty", "onelake", "loader", "Files", "LandingZone",
    "Tables", "Monitoring", "_DroppedTables", "t", "a", "b", "1.parquet", "_metadata.json", "..", ".", "%2e%2e",
    "%2F", "%5C", "%00", "%FF", "%", "+", " ", "ü", "€", "link", "outside", ".lakemirror", "x" * 256, "%C3%BC",
    "a%2Fb", "?", "#", "&", "",
]  # fmt: skip
NAMES = [
    "resource", "action", "recursive", "position", "directory", "continuation", "maxResults", "comp", "restype",
    "prefix", "delimiter", "marker", "maxresults", "startFrom", "blockid", "flush", "close", "timeout",
    "include", "sig", "sp", "mode",
]  # fmt: skip
VALUES = [
    "file", "directory", "filesystem", "account", "append", "flush", "setProperties", "getStatus",
    "getAccessControl", "0", "1", "3", "-1", "99999999999999999999", "true", "false", "list", "block",
    "blocklist", "batch", "container", "metadata", "properties", "lease", "MQ==", "Mg==", "!", "/", "sales/",
    "sales/Files/", "Files/LandingZone", "c2FsZXM", "rwdl",
]  # fmt: skip
HEADERS = [
    "x-ms-rename-source", "x-ms-copy-source", "x-ms-blob-type", "If-Match", "If-None-Match",
    "If-Modified-Since", "Range", "x-ms-range", "Accept", "x-ms-version", "x-ms-client-request-id",
    "Content-MD5", "x-ms-content-crc64", "Expect", "x-ms-meta-hdi_isfolder", "X-HTTP-Method-Override",
    "Content-Type", "x-ms-range-get-content-md5", "Content-Encoding",
]  # fmt: skip
HEADER_VALUES = [
    "BlockBlob", "*", '"0x1"', "bytes=0-", "bytes=5-2", "bytes=-1", "bytes=99999999999999999999999-",
    "application/xml", "true", "PATCH", "DELETE", "AAAA", "kAFQmDzST7DWlj99KOF/cg==",
    "Mon, 01 Jan 2001 00:00:00 GMT", "not a date", "\xff\xfe", "multipart/mixed; boundary=b",
    "https://h/ws/sales/Files/a", "100-continue", "gzip", "",
]  # fmt: skip
BODIES = [
    b"", b"abc", b"x" * 3000, b"<BlockList><Latest>MQ==</Latest></BlockList>", b"<BlockList>", b"\xff\xfe\x00",
    b"--b\r\nContent-Type: application/http\r\n\r\nDELETE /ws/sales/Files/../x HTTP/1.1\r\n\r\n\r\n--b--\r\n",
    b"--b\r\n\r\nDELETE /ws/sales/Files/a HTTP/1.1\r\n\r\n\r\n--b--",
]  # fmt: skip

paths = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=8).map(lambda parts: "/" + "/".join(parts)),
    st.lists(st.sampled_from(PIECES), max_size=4).map(lambda parts: "/".join(["/ws/sales/Files", *parts])),
    st.binary(max_size=40).map(lambda data: "/ws/sales/Files/" + "".join(f"%{each:02x}" for each in data)),
)
texts = st.one_of(st.sampled_from(VALUES), paths, st.text("%2eF./\\+ax0=&ü", max_size=12))
queries = st.lists(st.tuples(st.sampled_from(NAMES), texts), max_size=4)
headers = st.lists(st.tuples(st.sampled_from(HEADERS), st.one_of(st.sampled_from(HEADER_VALUES), paths)), max_size=4)
requests = st.tuples(
    st.sampled_from(["GET", "HEAD", "PUT", "PATCH", "POST", "DELETE", "OPTIONS", "BREW"]),
    paths, queries, headers, st.sampled_from(BODIES), st.sampled_from(["loader", "reader", "admin", "x", ""]),
)  # fmt: skip
usual = st.sampled_from([
    ("PUT", [("resource", "file")]), ("PUT", [("resource", "directory")]),
    ("PATCH", [("action", "append"), ("position", "0")]), ("PATCH", [("action", "flush"), ("position", "3")]),
    ("DELETE", [("recursive", "true")]), ("GET", []),
    ("GET", [("resource", "filesystem"), ("recursive", "true")]),
    ("PUT", [("comp", "block"), ("blockid", "MQ==")]), ("PUT", [("comp", "blocklist")]), ("PUT", []),
])  # fmt: skip
good_paths = st.lists(st.sampled_from(["t", "a", "b", "ü", "link"]), min_size=1, max_size=3).map(
    lambda parts: "/".join(["/ws/sales/Files/LandingZone", *parts])
)
moves = st.tuples(st.sampled_from(["x-ms-rename-source", "x-ms-copy-source"]), good_paths)
few = st.lists(st.one_of(moves, st.just(("x-ms-blob-type", "BlockBlob"))), max_size=1)
likely = st.tuples(usual, good_paths, st.one_of(few, few, few, headers), st.sampled_from(BODIES[:4])).map(
    lambda parts: (parts[0][0], parts[1], parts[0][1], parts[2], parts[3], "loader")
)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EndpointServer]:
    root = tmp_path_factory.mktemp("fuzz")
    server = EndpointServer(root)
    (root / "outside").mkdir()
    (root / "outside" / "secret").write_text("secret")
    (server.landing_zone / "link").symlink_to(root / "outside")
    (server.database / "Files" / "link").symlink_to(root / "outside")
    yield server
    server.close()


@pytest.mark.full
@settings(max_examples=int(CHOSEN or rounds(300, 1500)), derandomize=not CHOSEN, deadline=None,
          suppress_health_check=list(HealthCheck), database=None)  # fmt: skip
@given(st.lists(st.one_of(requests, likely, likely), min_size=1, max_size=12))
def test_random_requests(target: EndpointServer, sent: list[tuple[str, str, list, list, bytes, str]]) -> None:
    before = outside(target)
    for method, path, query, fields, body, name in sent:
        started = time.monotonic()
        line = path + ("?" + "&".join(f"{key}={value}" for key, value in query) if query else "")
        status = ask(target.port, method, line, fields, body, name)
        assert status != 500 and time.monotonic() - started < HANGS, (method, line, fields, name)
    assert outside(target) == before


def outside(target: EndpointServer) -> dict[str, bytes]:
    """All below the root but the database and what is staged, and what of the database nobody writes."""
    writable = target.database / "Files"
    found = {}
    for folder, folders, files in os.walk(target.root):
        folders[:] = [each for each in folders if Path(folder, each) not in (writable, target.root / ".lakemirror")]
        for file in files:
            found[str(Path(folder, file))] = Path(folder, file).read_bytes()
        found |= dict.fromkeys([str(Path(folder, each)) for each in folders], b"")
    protected = [writable / "LandingZone", target.database / "Tables"]
    return found | {str(each): str(each.is_dir()).encode() for each in protected}


def ask(port: int, method: str, line: str, fields: list[tuple[str, str]], body: bytes, name: str) -> int:
    """The status of the answer, 0 where the connection is closed without one."""
    lines = [
        f"{method} {line.replace(' ', '%20').replace('#', '%23')} HTTP/1.1",
        "Host: h",
        f"Content-Length: {len(body)}",
    ]
    lines += [f"Authorization: Bearer {name}"] if name else []
    lines += [f"{key}: {value}" for key, value in fields]
    with socket.create_connection(("127.0.0.1", port), timeout=HANGS) as connection:
        connection.sendall("\r\n".join(lines).encode("utf-8") + b"\r\n\r\n" + body)
        answer = http.client.HTTPResponse(connection, method=method)
        try:
            answer.begin()
            assert b"secret" not in answer.read()
        except http.client.HTTPException:
            return 0
        return answer.status


logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
