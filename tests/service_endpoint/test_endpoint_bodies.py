"""Bodies that lie, stall, end early or are too large; addresses in every encoding (service.md sections 2, 5, 7)."""

from __future__ import annotations

import base64
import gzip
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from awscrt.checksums import crc64nvme
from endpoint_double import EndpointServer
from wire import ZONE, Wire

from lakemirror.service.interface import Limits
from lakemirror.service.storage.checksums import BodyChecksum

BLOCK = {"x_ms_blob_type": "BlockBlob"}


@pytest.fixture
def narrow(tmp_path: Path) -> Iterator[EndpointServer]:
    server = EndpointServer(tmp_path, Limits(max_body=1000, body_timeout=0.3))
    yield server
    server.close()


def raw(port: int, request: bytes, *, ends: bool = False) -> bytes:
    """All that the server answers to these bytes, until it closes or says nothing more."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(request)
        if ends:
            connection.shutdown(socket.SHUT_WR)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
            if not ends and b"\r\n\r\n" in received:
                break
        return received


def put(*headers: str, body: bytes = b"", target: str = f"{ZONE}/f") -> bytes:
    lines = [f"PUT {target} HTTP/1.1", "Host: h", "Authorization: Bearer loader", "x-ms-blob-type: BlockBlob", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@pytest.mark.parametrize(
    "headers",
    [
        ("Content-Length: 3", "Transfer-Encoding: chunked"),
        ("Content-Length: 3", "Content-Length: 4"),
        ("Content-Length: +3",),
        ("Content-Length: -3",),
        ("Content-Length: 3x",),
        ("Transfer-Encoding: gzip",),
        ("Transfer-Encoding: gzip, chunked", "Content-Encoding: x"),
        ("Transfer-Encoding: chunked, identity",),
    ],
)
def test_lengths_that_lie(endpoint: EndpointServer, headers: tuple[str, ...]) -> None:
    answer = raw(endpoint.port, put(*headers, body=b"abc"))
    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400"))
    assert not (endpoint.landing_zone / "f").exists() and endpoint.staged() == []


@pytest.mark.parametrize("body", [b"3\r\nabcd\r\n0\r\n\r\n", b"-3\r\nabc\r\n0\r\n\r\n", b"x\r\n", b"3\r\nabc\r\n"])
def test_broken_chunks(endpoint: EndpointServer, body: bytes) -> None:
    answer = raw(endpoint.port, put("Transfer-Encoding: chunked", body=body), ends=True)
    assert answer == b"" or b" 400 " in answer.split(b"\r\n")[0]
    time.sleep(0.05)
    assert not (endpoint.landing_zone / "f").exists() and endpoint.staged() == []


def test_a_body_that_ends_early(endpoint: EndpointServer, wire: Wire) -> None:
    wire("PUT", f"{ZONE}/g?resource=file")
    raw(endpoint.port, put("Content-Length: 10", body=b"abc"), ends=True)
    append = put(
        "Content-Length: 10", "X-HTTP-Method-Override: PATCH", body=b"abc", target=f"{ZONE}/g?action=append&position=0"
    )
    raw(endpoint.port, append, ends=True)
    time.sleep(0.05)
    assert not (endpoint.landing_zone / "f").exists()
    assert wire("PATCH", f"{ZONE}/g?action=flush&position=3").code == "InvalidFlushPosition"
    assert wire("PATCH", f"{ZONE}/g?action=append&position=0", b"0123456789").status == 202
    assert wire("PATCH", f"{ZONE}/g?action=flush&position=10").status == 200


def test_an_encoded_body_is_kept_as_it_is(wire: Wire, endpoint: EndpointServer) -> None:
    data = gzip.compress(b"abc")
    assert wire("PUT", f"{ZONE}/f", data, Content_Encoding="gzip", **BLOCK).status == 201
    assert (endpoint.landing_zone / "f").read_bytes() == data


def test_a_body_that_stalls(narrow: EndpointServer) -> None:
    started = time.monotonic()
    answer = raw(narrow.port, put("Content-Length: 10", body=b"abc"))
    assert b" 408 " in answer.split(b"\r\n")[0] and b"connection: close" in answer.lower()
    assert time.monotonic() - started < 4 and narrow.staged() == []


def test_a_body_that_is_too_large(narrow: EndpointServer) -> None:
    answer = raw(narrow.port, put("Content-Length: 1001", "Expect: 100-continue"))
    assert b" 413 " in answer.split(b"\r\n")[0] and b"RequestBodyTooLarge" in answer
    chunked = put("Transfer-Encoding: chunked", body=b"400\r\n" + b"x" * 1024 + b"\r\n0\r\n\r\n")
    assert b" 413 " in raw(narrow.port, chunked).split(b"\r\n")[0]
    assert narrow.staged() == []


def test_expectations_are_answered_after_authorisation(endpoint: EndpointServer) -> None:
    wanted = put("Content-Length: 3", "Expect: 100-continue")
    assert raw(endpoint.port, wanted).startswith(b"HTTP/1.1 100 Continue")
    refused = wanted.replace(b"loader", b"reader")
    assert b" 403 " in raw(endpoint.port, refused).split(b"\r\n")[0]


def test_crc64(wire: Wire, endpoint: EndpointServer) -> None:
    checksum = BodyChecksum({"x-ms-content-crc64": base64.b64encode(bytes.fromhex("ae8b14860a799888")[::-1]).decode()})
    checksum.add(b"1234")
    checksum.add(b"56789")
    checksum.check()  # the check value of CRC-64/NVME
    data = os.urandom(5000)
    text = base64.b64encode(crc64nvme(data).to_bytes(8, "little")).decode()
    assert wire("PUT", f"{ZONE}/f", data[1:], x_ms_content_crc64=text, **BLOCK).code == "Crc64Mismatch"
    assert wire("PUT", f"{ZONE}/f", data, x_ms_content_crc64=text, **BLOCK).status == 201


@pytest.mark.parametrize(
    ("segment", "code"),
    [
        ("..", "InvalidUri"), (".", "InvalidUri"), ("%2e%2e", "InvalidUri"), ("%2E", "InvalidUri"),
        ("a%2F..%2Fb", "InvalidUri"), ("..%2F..%2Fetc", "InvalidUri"), ("a%5Cb", "InvalidUri"), ("a\\b", "InvalidUri"),
        ("a%00b", "InvalidUri"), ("a%1Fb", "InvalidUri"), ("a%7Fb", "InvalidUri"), ("a%FFb", "InvalidUri"),
        ("%C0%AE%C0%AE", "InvalidUri"), ("a%ED%A0%80", "InvalidUri"), ("x" * 256, "InvalidResourceName"),
        ("/".join(["x" * 200] * 11), "InvalidResourceName"),
    ],
)  # fmt: skip
def test_paths_that_are_refused(wire: Wire, endpoint: EndpointServer, segment: str, code: str) -> None:
    for answer in (
        wire("PUT", f"{ZONE}/{segment}?resource=file"),
        wire("GET", f"/ws/{segment}/sales"),
        wire("GET", f"/ws?resource=filesystem&recursive=true&directory=sales/{segment}"),
        wire("GET", f"/ws?restype=container&comp=list&prefix=sales/{segment}"),
        wire("PUT", f"{ZONE}/x", x_ms_rename_source=f"{ZONE}/{segment}"),
        wire("PUT", f"{ZONE}/x", x_ms_copy_source=f"{ZONE}/{segment}"),
    ):
        assert (answer.status, answer.code) == (400, code)
    assert list(endpoint.landing_zone.iterdir()) == []


@pytest.mark.parametrize(
    ("raw_name", "name"),
    [
        ("a%252e", "a%2e"), ("%252e%252e", "%2e%2e"), ("a+b", "a+b"), ("a%20b", "a b"), ("%zz", "%zz"),
        ("%E2%82%AC", "€"), ("...", "..."), ("a;b=c", "a;b=c"), ("a%3Fb%23c", "a?b#c"), ("a&b<c>", "a&b<c>"),
    ],
)  # fmt: skip
def test_names_that_are_decoded_once(wire: Wire, endpoint: EndpointServer, raw_name: str, name: str) -> None:
    assert wire("PUT", f"{ZONE}//{raw_name}", b"x", **BLOCK).status == 201
    assert [path.name for path in endpoint.landing_zone.iterdir()] == [name]
    listed = wire("GET", f"{ZONE}?resource=filesystem&recursive=true").json["paths"]
    assert [entry["name"] for entry in listed] == [f"sales/Files/LandingZone/{name}"]
    assert wire("PUT", f"{ZONE}/moved", x_ms_rename_source=f"{ZONE}/{raw_name}").status == 201


@pytest.mark.parametrize("endpoint", ["disk"], indirect=True)  # a store has no links
def test_links_are_never_followed(wire: Wire, endpoint: EndpointServer, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (endpoint.landing_zone / "folder").symlink_to(outside)
    (endpoint.landing_zone / "file").symlink_to(outside / "secret")
    for target in (f"{ZONE}/folder", f"{ZONE}/folder/secret", f"{ZONE}/file"):
        assert wire("GET", target).code == "PathNotFound"
        assert wire("HEAD", target, Accept="application/xml").code == "BlobNotFound"
        assert wire("DELETE", f"{target}?recursive=true").code == "PathNotFound"
        assert wire("PATCH", f"{target}?action=append&position=0", b"x").code == "PathNotFound"
        assert wire("PUT", f"{ZONE}/x", x_ms_rename_source=target).code == "SourcePathNotFound"
        assert wire("PUT", f"{ZONE}/x", x_ms_copy_source=target).code == "CannotVerifyCopySource"
    assert wire("GET", f"{ZONE}/folder?resource=filesystem&recursive=true").code == "PathNotFound"
    for target in (f"{ZONE}/folder/new", f"{ZONE}/folder/secret"):
        assert wire("PUT", f"{target}?resource=file").status in (404, 409)
        assert wire("PUT", target, b"x", **BLOCK).status in (404, 409)
    wire.upload("f", b"x")
    assert wire("PUT", f"{ZONE}/folder/f", x_ms_rename_source=f"{ZONE}/f").status == 404
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_text() == "secret"
    assert wire("PUT", f"{ZONE}/file", b"new", **BLOCK).status == 201, "a link is replaced, not followed"
    assert (outside / "secret").read_text() == "secret"


def test_a_refused_upload_is_answered_though_its_body_is_sent(wire: Wire, endpoint: EndpointServer) -> None:
    for _ in range(5):
        answer = wire("PUT", f"{ZONE}/f", b"x" * (3 << 20), name="reader", **BLOCK)
        assert (answer.status, answer.code) == (403, "AuthorizationPermissionMismatch")
        assert wire("PUT", f"{ZONE}/f", b"x" * (1 << 20), If_Match="no", **BLOCK).code == "ConditionNotMet"
    assert endpoint.staged() == []
