"""Numbers that no file has, in every parameter and header of the storage endpoint that takes one: never a 500."""

from __future__ import annotations

import pytest
from endpoint_double import EndpointServer
from wire import ZONE, Wire

FILE = f"{ZONE}/f"
ABSURD = ("9" * 5000, "1" + "0" * 30, "9223372036854775808", "9223372036854775807", "100000000000000")
NO_NUMBERS = ("", "-1", "-9223372036854775809", "+1", "1.5", "1e3", "0x10", "²", "٣", "nan", "1%00", "%201", "1,0")
NO_DATES = (
    "Thu, 01 Jan 9999999999999999999999 00:00:00 GMT", "Thu, 99 Jan 2024 00:00:00 +999999", "1", "-1", "²", "9" * 5000,
)  # fmt: skip
NO_BLOCKS = ("", "-1", "+1", "1.5", "²", "9" * 5000, "%201", "A" * 89, "A", "====", "QQ=", "QQ%00==", "_-_-")


@pytest.mark.parametrize("length", [None, "chunked"])
@pytest.mark.parametrize("position", [*ABSURD, *NO_NUMBERS])
def test_an_append_at_no_position(wire: Wire, position: str, length: str | None) -> None:
    assert wire("PUT", f"{FILE}?resource=file").status == 201
    target, coding = f"{FILE}?action=append&position={position}", {"Transfer_Encoding": length, "Content_Length": ""}
    for flush in ("", "&flush=true"):
        body, headers = (b"abc", {}) if length is None else (b"3\r\nabc\r\n0\r\n\r\n", coding)
        answer = wire("PATCH", target + flush, body, **{k: v for k, v in headers.items() if v is not None})
        assert (answer.status, answer.code) == (400, "InvalidQueryParameterValue")
    assert wire("PATCH", f"{FILE}?action=append&position=0", b"abc").status == 202
    assert wire("PATCH", f"{FILE}?action=flush&position=3").status == 200


def test_the_last_position_that_is_taken(wire: Wire, endpoint: EndpointServer) -> None:
    """Bytes may come in any order, so a far one is kept; it makes no file without those before it."""
    assert wire("PUT", f"{FILE}?resource=file").status == 201
    assert wire("PATCH", f"{FILE}?action=append&position=1000000000", b"x").status == 202
    assert wire("PATCH", f"{FILE}?action=flush&position=1000000001").code == "InvalidFlushPosition"
    assert not (endpoint.landing_zone / "f").exists()


@pytest.mark.parametrize("position", ABSURD)
def test_a_flush_at_no_position(wire: Wire, position: str) -> None:
    assert wire("PUT", f"{FILE}?resource=file").status == 201
    for _ in range(2):
        answer = wire("PATCH", f"{FILE}?action=flush&position={position}")
        assert (answer.status, answer.code) == (400, "InvalidFlushPosition")
        wire("PATCH", f"{FILE}?action=flush&position=0")


@pytest.mark.parametrize("position", NO_NUMBERS)
def test_a_flush_at_no_number(wire: Wire, position: str) -> None:
    answer = wire("PATCH", f"{FILE}?action=flush&position={position}")
    assert (answer.status, answer.code) == (400, "InvalidQueryParameterValue")


@pytest.mark.parametrize("number", [*ABSURD, "5001", "1"])
def test_a_page_of_any_size(wire: Wire, number: str) -> None:
    for target in ("/ws?resource=filesystem&recursive=true&maxResults=", "/ws?restype=container&comp=list&maxresults="):
        assert wire("GET", target + number).status == 200


@pytest.mark.parametrize("number", [*NO_NUMBERS[1:], "0", "000"])
def test_a_page_of_no_size(wire: Wire, number: str) -> None:
    for target in ("/ws?resource=filesystem&recursive=true&maxResults=", "/ws?restype=container&comp=list&maxresults="):
        answer = wire("GET", target + number)
        assert (answer.status, answer.code) == (400, "InvalidQueryParameterValue")


@pytest.mark.parametrize("marker", ["9" * 2000, "%00", "²", "=", "////", "Li4v", "_-_-"])
def test_a_list_from_no_name(wire: Wire, marker: str) -> None:
    for target in ("/ws?resource=filesystem&recursive=true&continuation=", "/ws?restype=container&comp=list&marker="):
        answer = wire("GET", target + marker)
        assert (answer.status, answer.code) == (400, "InvalidQueryParameterValue")


@pytest.mark.parametrize(
    ("asked", "status", "got"),
    [
        ("bytes=1-3", 206, b"123"), (f"bytes=1-{ABSURD[0]}", 206, b"123456789"),
        (f"bytes=-{ABSURD[0]}", 206, b"0123456789"),
        (f"bytes={'0' * 40}8-{'0' * 40}9", 206, b"89"), (f"bytes=-{'0' * 40}2", 206, b"89"), ("bytes=-0", 416, None),
        (f"bytes={ABSURD[0]}-", 416, None), (f"bytes={ABSURD[1]}-", 416, None), ("bytes=3-1", 200, None),
        (f"bytes=1{'0' * 30}-5{'0' * 29}", 200, None), ("bytes=-", 200, None), ("bytes=-1-", 200, None),
        ("bytes=²-", 200, None), ("bytes=0-1,3-4", 200, None), ("bytes=0x1-", 200, None), ("lines=1-2", 200, None),
    ],
)  # fmt: skip
def test_ranges(wire: Wire, asked: str, status: int, got: bytes | None) -> None:
    wire.upload("f", b"0123456789")
    for header in ("Range", "x_ms_range"):
        answer = wire("GET", FILE, **{header: asked})
        assert answer.status == status
        assert got is None or answer.body == got


@pytest.mark.parametrize("date", NO_DATES)
def test_conditions_with_no_date(wire: Wire, date: str) -> None:
    wire.upload("f", b"x")
    for header in ("If_Modified_Since", "If_Unmodified_Since"):
        assert wire("GET", FILE, **{header: date}).status == 200
        assert wire("PUT", f"{ZONE}/g", x_ms_rename_source=FILE, **{f"x_ms_source_{header}": date}).status == 201
        assert wire("PUT", FILE, x_ms_rename_source=f"{ZONE}/g").status == 201


@pytest.mark.parametrize("number", [*ABSURD, *NO_NUMBERS])
def test_numbers_that_do_not_count(wire: Wire, number: str) -> None:
    wire.upload("f", b"x")
    assert wire("GET", f"{FILE}?timeout={number}").status == 200
    assert wire("GET", FILE, x_ms_version=number.encode().decode("latin-1")).status == 200


@pytest.mark.parametrize(
    "blockid", ["", "-1", "+1", "1.5", "²", "9" * 5000, "%201", "A" * 89, "A", "====", "QQ=", "QQ%00==", "_-_-"]
)
def test_a_block_with_no_id(wire: Wire, blockid: str) -> None:
    answer = wire("PUT", f"{FILE}?comp=block&blockid={blockid}", b"x")
    assert (answer.status, answer.code) == (400, "InvalidQueryParameterValue")


@pytest.mark.parametrize("length", [*ABSURD, "18446744073709551616", "99999999999999999999999", "1_0", "٣", "1.0"])
def test_bodies_of_no_length(wire: Wire, length: str) -> None:
    for target, more in (
        (f"{FILE}?action=append&position=0", {"X_HTTP_Method_Override": "PATCH"}),
        (f"{FILE}?comp=block&blockid=QUFB", {}),
        (FILE, {"x_ms_blob_type": "BlockBlob"}),
    ):
        wire.close()
        answer = wire("PUT", target, Content_Length=length.encode().decode("latin-1"), **more)
        assert answer.status in (400, 413)


def test_a_file_that_the_disk_cannot_hold(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_far(*_: object) -> int:
        raise OSError(27, "File too large")

    monkeypatch.setattr("lakemirror.service.storage.bodies.os.pwrite", too_far)
    answer = wire("PUT", FILE, b"x", x_ms_blob_type="BlockBlob")
    assert (answer.status, answer.code) == (413, "RequestBodyTooLarge")
