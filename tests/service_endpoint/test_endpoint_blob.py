"""The Blob dialect over the wire, row by row, and reads and conditions of both (service.md section 5)."""

from __future__ import annotations

import base64
import hashlib
import threading
from pathlib import PurePosixPath

import pytest
from endpoint_double import EndpointServer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.rounds import rounds
from wire import BASE, ZONE, Wire

from lakemirror.service.storage.blob import list_page
from lakemirror.service.storage.database_files import DatabaseFiles
from lakemirror.service.storage.listing import Tree

XML = {"Accept": "application/xml"}
BLOCK = {"x_ms_blob_type": "BlockBlob"}


def md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data).digest()).decode()


def test_put_blob(wire: Wire, endpoint: EndpointServer) -> None:
    assert wire("PUT", f"{ZONE}/t/a", b"abc", **BLOCK).status == 201
    assert (endpoint.landing_zone / "t" / "a").read_bytes() == b"abc"
    answer = wire("PUT", f"{ZONE}/t/b", b"abc", **XML)
    assert (answer.status, answer.code) == (400, "MissingRequiredHeader")
    assert wire("PUT", f"{ZONE}/t/b", b"abc", x_ms_blob_type="PageBlob").code == "NotImplemented"
    assert wire("PUT", f"{ZONE}/folder", b"", x_ms_meta_hdi__isfolder="true", **BLOCK).status == 201
    assert (endpoint.landing_zone / "folder").is_dir()
    answer = wire("PUT", f"{ZONE}/t/a", b"x", If_None_Match="*", **BLOCK)
    assert (answer.status, answer.code) == (409, "BlobAlreadyExists")
    assert wire("PUT", f"{ZONE}/t/a?comp=metadata", x_ms_meta_x="y").status == 200
    assert wire("PUT", f"{ZONE}/t/a?comp=properties").status == 200
    assert endpoint.staged() == []


@pytest.mark.parametrize("header", ["Content_MD5", "x_ms_blob_content_md5"])
def test_checksums_of_a_put(wire: Wire, endpoint: EndpointServer, header: str) -> None:
    answer = wire("PUT", f"{ZONE}/a", b"abc", **BLOCK, **{header: md5(b"other")})
    assert (answer.status, answer.code) == (400, "Md5Mismatch")
    assert not (endpoint.landing_zone / "a").exists() and endpoint.staged() == []
    assert wire("PUT", f"{ZONE}/a", b"abc", **BLOCK, **{header: md5(b"abc")}).status == 201
    assert wire("PUT", f"{ZONE}/a", b"abc", **BLOCK, **{header: "x"}).code == "InvalidMd5"


def test_checksums_of_appends_blocks_and_flushes(wire: Wire, endpoint: EndpointServer) -> None:
    wire("PUT", f"{ZONE}/f?resource=file")
    append, flush = f"{ZONE}/f?action=append&position=0", f"{ZONE}/f?action=flush&position=3"
    assert wire("PATCH", append, b"abc", Content_MD5=md5(b"x")).code == "Md5Mismatch"
    assert wire("PATCH", flush).code == "InvalidFlushPosition"
    assert wire("PATCH", append, b"abc", Content_MD5=md5(b"abc")).status == 202
    assert wire("PATCH", flush, x_ms_content_md5=md5(b"x")).code == "Md5Mismatch"
    assert not (endpoint.landing_zone / "f").exists()
    assert wire("PATCH", flush, x_ms_content_md5=md5(b"abc")).status == 200
    assert wire("PUT", f"{ZONE}/g?comp=block&blockid=MQ==", b"abc", Content_MD5=md5(b"x")).code == "Md5Mismatch"


def test_blocks(wire: Wire, endpoint: EndpointServer) -> None:
    for name, data in (("MQ==", b"one"), ("Mg==", b"two"), ("MQ==", b"ONE")):
        assert wire("PUT", f"{ZONE}/b?comp=block&blockid={name}", data).status == 201
    assert wire("HEAD", f"{ZONE}/b").status == 404
    listed = wire("GET", f"{ZONE}/b?comp=blocklist&blocklisttype=all").body
    assert b"<Name>MQ==</Name><Size>3</Size>" in listed and b"<CommittedBlocks/>" in listed
    for wrong in ("", "%21", "MQ", base64.b64encode(b"x" * 65).decode()):
        answer = wire("PUT", f"{ZONE}/b?comp=block&blockid={wrong}", b"x")
        assert (answer.status, answer.code) == (400, "InvalidQueryParameterValue")

    def commit(xml: bytes) -> str:
        answer = wire("PUT", f"{ZONE}/b?comp=blocklist", xml)
        return answer.code or str(answer.status)

    assert commit(b"<BlockList><Latest>Mw==</Latest></BlockList>") == "InvalidBlockList"
    assert commit(b"<BlockList><Committed>MQ==</Committed></BlockList>") == "InvalidBlockList"
    assert commit(b"<BlockList><Latest>MQ==</BlockList>") == "InvalidXmlDocument"
    assert commit(b"") == "InvalidXmlDocument"
    assert commit(b"<Other/>") == "InvalidXmlDocument"
    assert (
        commit(b'<!DOCTYPE x [<!ENTITY e "MQ==">]><BlockList><Latest>&e;</Latest></BlockList>') == "InvalidXmlDocument"
    )
    assert endpoint.registry.wakes == []
    bom = b'\xef\xbb\xbf<?xml version="1.0" encoding="utf-8"?>'
    body = b"<BlockList><Latest>Mg==</Latest><Uncommitted>MQ==</Uncommitted><Latest>Mg==</Latest></BlockList>"
    assert commit(bom + body) == "201"
    assert (endpoint.landing_zone / "b").read_bytes() == b"twoONEtwo"
    assert commit(body) == "201", "the answer may have been lost"
    assert wire("PUT", f"{ZONE}/b?comp=block&blockid=MQ==", b"new").status == 201
    assert commit(body) == "InvalidBlockList", "one block is new, the other is missing"
    wire.upload("c", b"other")
    assert wire("PUT", f"{ZONE}/b", x_ms_rename_source=f"{ZONE}/c").status == 201
    assert commit(body) == "InvalidBlockList", "blocks are used once"
    assert wire("GET", f"{ZONE}/no?comp=blocklist").code == "BlobNotFound"


def test_ranges(wire: Wire) -> None:
    wire.upload("f", b"0123456789")
    for header, body, content_range in (
        ("bytes=2-4", b"234", "bytes 2-4/10"),
        ("bytes=7-", b"789", "bytes 7-9/10"),
        ("bytes=-3", b"789", "bytes 7-9/10"),
        ("bytes=8-100", b"89", "bytes 8-9/10"),
        ("bytes=-30", b"0123456789", "bytes 0-9/10"),
    ):
        answer = wire("GET", f"{ZONE}/f", x_ms_range=header, Range="bytes=0-0")
        assert (answer.status, answer.body, answer.headers["Content-Range"]) == (206, body, content_range)
        assert wire("GET", f"{ZONE}/f", Range=header).body == body
    for beyond in ("bytes=10-", "bytes=10-12", "bytes=-0"):
        answer = wire("GET", f"{ZONE}/f", Range=beyond, **XML)
        assert (answer.status, answer.code) == (416, "InvalidRange")
    assert wire("GET", f"{ZONE}/f").status == 200
    answer = wire("GET", f"{ZONE}/f", x_ms_range="bytes=0-2", x_ms_range_get_content_md5="true")
    assert answer.headers["Content-MD5"] == md5(b"012")
    wire("PUT", f"{ZONE}/empty", b"", **BLOCK)
    assert wire("GET", f"{ZONE}/empty", Range="bytes=0-5").status == 416
    head = wire("HEAD", f"{ZONE}/f", **XML)
    assert (head.headers["Content-Length"], head.headers["x-ms-blob-type"]) == ("10", "BlockBlob")
    assert head.headers["Accept-Ranges"] == "bytes" and head.headers["Last-Modified"].endswith("GMT")


def test_conditions(wire: Wire) -> None:
    wire.upload("f", b"x")
    head = wire("HEAD", f"{ZONE}/f")
    etag, modified = head.headers["ETag"], head.headers["Last-Modified"]
    early = "Mon, 01 Jan 2001 00:00:00 GMT"
    assert etag.startswith('"') and etag.endswith('"')
    for match in (etag, etag.strip('"'), "*", f'"other", {etag}'):
        assert wire("GET", f"{ZONE}/f", If_Match=match).status == 200
        assert wire("GET", f"{ZONE}/f", If_None_Match=match).status == 304
    assert wire("GET", f"{ZONE}/f", If_Match='"other"').code == "ConditionNotMet"
    assert wire("GET", f"{ZONE}/f", If_Modified_Since=modified).status == 304
    assert wire("GET", f"{ZONE}/f", If_Modified_Since=early).status == 200
    assert wire("GET", f"{ZONE}/f", If_Unmodified_Since=early).status == 412
    put = f"{ZONE}/f?resource=file"
    for headers, status in (
        ({"If_Match": "other"}, 412), ({"If_None_Match": etag}, 412), ({"If_None_Match": "*"}, 409),
        ({"If_Unmodified_Since": early}, 412), ({"If_Modified_Since": modified}, 412), ({"If_Match": etag}, 201),
    ):  # fmt: skip
        assert wire("PUT", put, **headers).status == status
    assert wire("PUT", f"{ZONE}/no?resource=file", If_Match="*").code == "ConditionNotMet"
    assert wire("DELETE", f"{ZONE}/f", If_Match=etag).code == "ConditionNotMet", "the create has an ETag of its own"


def test_of_racing_creators_one_succeeds(endpoint: EndpointServer) -> None:
    results: list[int] = []

    def create(number: int) -> None:
        wire = Wire(endpoint.port)
        headers = BLOCK if number % 2 else {}
        target = f"{ZONE}/race" if number % 2 else f"{ZONE}/race?resource=file"
        results.append(wire("PUT", target, b"x" if number % 2 else b"", If_None_Match="*", **headers).status)
        wire.close()

    threads = [threading.Thread(target=create, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [201] + [409] * 11


def test_of_racing_writers_one_wins_whole(endpoint: EndpointServer) -> None:
    contents = {bytes([65 + number]) * (10_000 + number) for number in range(8)}

    def write(data: bytes) -> None:
        wire = Wire(endpoint.port)
        wire("PUT", f"{ZONE}/race?resource=file")
        wire("PATCH", f"{ZONE}/race?action=append&position=0", data)
        wire("PATCH", f"{ZONE}/race?action=flush&position={len(data)}")
        wire("PUT", f"{ZONE}/race2", data, **BLOCK)
        wire.close()

    threads = [threading.Thread(target=write, args=(data,)) for data in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (endpoint.landing_zone / "race").read_bytes() in contents
    assert (endpoint.landing_zone / "race2").read_bytes() in contents


def test_sources_of_copies_elsewhere(wire: Wire) -> None:
    wire.upload("t/a", b"abc")
    copied = wire("PUT", f"{ZONE}/t/b", x_ms_copy_source=f"https://h{ZONE}/t/a")
    assert (copied.status, copied.headers["x-ms-copy-status"]) == (202, "success")
    for source in ("https://h/other/sales/Files/x", "https://h/ws/empty/Files/x"):
        answer = wire("PUT", f"{ZONE}/t/c", x_ms_copy_source=source)
        assert (answer.status, answer.code) == (404, "CannotVerifyCopySource")


def test_lists(wire: Wire, endpoint: EndpointServer) -> None:
    for name in ("t/a&b", "t/b", "t-x", "u"):
        wire.upload(name, b"x")

    def names(query: str) -> list[bytes]:
        body = wire("GET", f"/ws?restype=container&comp=list&{query}").body
        return [part.partition(b"</Name>")[0] for part in body.split(b"<Name>")[1:]]

    zone = b"sales/Files/LandingZone/"
    prefix = "prefix=sales%2FFiles%2FLandingZone%2F"
    assert names(prefix) == [zone + each for each in (b"t", b"t-x", b"t/a&amp;b", b"t/b", b"u")]
    assert names(prefix + "&delimiter=/") == [zone + each for each in (b"t-x", b"t/", b"u")]
    assert names(prefix + "t&delimiter=/") == [zone + each for each in (b"t-x", b"t/")]
    assert names(prefix + "t/b") == [zone + b"t/b"]
    assert names(prefix + "&delimiter=-") == [zone + each for each in (b"t", b"t-", b"t/a&amp;b", b"t/b", b"u")]
    assert names(prefix + "&startFrom=sales/Files/LandingZone/t/b") == [zone + each for each in (b"t/b", b"u")]
    assert names("prefix=no/such") == [] and names("prefix=sales/Files/no/such") == []
    assert names("delimiter=/") == [b"empty.MirroredDatabase/", b"sales.MirroredDatabase/"]
    assert b"sales.MirroredDatabase/Files/LandingZone/u" in names("prefix=sal")
    body = wire("GET", f"/ws?restype=container&comp=list&{prefix}&maxresults=2&delimiter=/").body
    marker = body.partition(b"<NextMarker>")[2].partition(b"<")[0].decode()
    assert names(f"{prefix}&delimiter=/&marker={marker}") == [zone + b"u"]
    for wrong in ("marker=%21", "maxresults=0"):
        answer = wire("GET", f"/ws?restype=container&comp=list&{wrong}")
        assert (answer.status, answer.code) == (400, "InvalidQueryParameterValue")
    assert wire("GET", "/ws?restype=container&comp=list&prefix=sales/../x").code == "InvalidUri"
    assert b"<ResourceType>directory</ResourceType>" in wire("GET", f"/ws?restype=container&comp=list&{prefix}").body


def test_batches(wire: Wire, endpoint: EndpointServer) -> None:
    wire.upload("t/a", b"x")
    wire.upload("t/b", b"x")

    def batch(*requests: str, boundary: str = "b") -> list[str]:
        parts = "".join(
            f"--{boundary}\r\nContent-Type: application/http\r\nContent-ID: {number}\r\n\r\n{request}\r\n\r\n\r\n"
            for number, request in enumerate(requests)
        )
        answer = wire(
            "POST", "/ws?restype=container&comp=batch", f"{parts}--{boundary}--\r\n".encode(),
            Content_Type=f"multipart/mixed; boundary={boundary}",
        )  # fmt: skip
        if answer.status != 202:
            return [answer.code]
        return [
            part.split("\r\n")[0][9:12] for part in answer.body.decode().split("\r\n\r\n") if "HTTP/1.1" in part[:8]
        ]

    assert batch(
        f"DELETE {ZONE}/t/a HTTP/1.1\r\nContent-Length: 0",
        f"DELETE {ZONE}/t/no HTTP/1.1",
        f"DELETE /loader{ZONE}/t/b HTTP/1.1\r\nIf-Match: other",
        f"PUT {ZONE}/t/c HTTP/1.1",
        "DELETE /other/sales/Files/x HTTP/1.1",
        "DELETE /ws/sales/Tables/x HTTP/1.1",
        f"DELETE {ZONE}/%2e%2e/x HTTP/1.1",
    ) == ["202", "404", "412", "400", "400", "403", "400"]
    assert [path.name for path in (endpoint.landing_zone / "t").iterdir()] == ["b"]
    assert batch(*["DELETE /ws/sales/Files/x HTTP/1.1"] * 257) == ["InvalidInput"]
    assert batch("no request") == ["InvalidInput"]


def test_containers_and_accounts(wire: Wire) -> None:
    assert wire("HEAD", "/ws?restype=container").status == 200
    answer = wire("PUT", "/ws?restype=container")
    assert (answer.status, answer.code) == (409, "ContainerAlreadyExists")
    assert wire("PUT", "/new?restype=container", name="admin").status == 403
    assert wire("DELETE", "/ws?restype=container").status == 403
    assert wire("HEAD", "/no?restype=container", name="admin").code == "ContainerNotFound"
    assert b"<Name>ws</Name>" in wire("GET", "/?comp=list").body
    assert b"<Name>other</Name>" not in wire("GET", "/?comp=list").body
    answer = wire("GET", "/?restype=account&comp=properties")
    assert (answer.headers["x-ms-account-kind"], answer.headers["x-ms-is-hns-enabled"]) == ("StorageV2", "true")


@pytest.mark.parametrize(
    "comp", ["lease", "snapshot", "tags", "tier", "query", "page", "appendblock", "immutabilityPolicies"]
)
def test_what_is_not_offered(wire: Wire, comp: str) -> None:
    answer = wire("PUT", f"{ZONE}/f?comp={comp}")
    assert (answer.status, answer.code) == (501, "NotImplemented")


def test_no_keys_of_users_are_given(wire: Wire) -> None:
    answer = wire("POST", "/?restype=service&comp=userdelegationkey", b"<KeyInfo/>")
    assert (answer.status, answer.code) == (501, "NotImplemented")


@pytest.mark.parametrize("header", ["x_ms_encryption_key", "x_ms_structured_body"])
def test_headers_that_are_not_offered(wire: Wire, header: str) -> None:
    assert wire("PUT", f"{ZONE}/f", b"x", **BLOCK, **{header: "x"}).status == 501
    assert BASE


names_in_lists = st.lists(
    st.sampled_from(["a", "b", "a-", "a0", "a.", "ü", "€", "\U0001f600", "\uffee"]), min_size=1, max_size=4
).map("/".join)


@settings(max_examples=rounds(15, 40), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sets(names_in_lists, max_size=12),
    st.sampled_from(["", "a", "a/", "a-", "b/a", "ü"]),
    st.sampled_from(["", "/", "-", "a"]),
    st.integers(1, 4),
)
def test_lists_are_those_of_a_sorted_set(
    tmp_path_factory: pytest.TempPathFactory, names: set[str], prefix: str, delimiter: str, most: int
) -> None:
    files = {name for name in names if not any(other.startswith(f"{name}/") for other in names)}
    root = tmp_path_factory.mktemp("tree")
    database = DatabaseFiles(root, root / ".staged")
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")
    folders = {parent.as_posix() for name in files for parent in PurePosixPath(name).parents} - {"."}

    wanted = set()
    for name in files | folders:
        rest = name[len(prefix) :] + ("/" if name in folders and delimiter == "/" else "")
        if name.startswith(prefix):
            at = rest.find(delimiter) if delimiter else -1
            wanted.add(f"db/{name}" if at < 0 else f"db/{prefix}{rest[: at + len(delimiter)]}")
    found, following = [], ""
    tree = Tree({"db": lambda: database})
    while True:
        page = list_page(tree, f"db/{prefix}", max(f"db/{prefix}", following, key=str.encode), delimiter, most)
        found += [entry.name for entry in page.entries]
        assert len(page.entries) <= most
        following = page.following
        if not following:
            break
    assert found == sorted(wanted, key=str.encode)
