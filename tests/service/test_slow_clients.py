"""Clients that send or read slowly: they end, and nobody else waits for them (service.md section 7)."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_service import Running, until

from lakemirror.service.auth.principals import Issued, Principals
from lakemirror.service.interface import Limits
from lakemirror.service.pace import Pace
from lakemirror.service.refused import Refused
from lakemirror.service.under_way import UnderWay

KIB = 1024
SHORT = Limits(grace=0.4, small_body_time=0.4, most_unknown=3)


def waits(size: int | None, *steps: tuple[float, int]) -> float:
    """What is left after waits of so many seconds, in which so many bytes moved."""
    pace = Pace(Limits(), size)
    for seconds, moved in steps:
        pace.waited(seconds, moved)
    return pace.left


@pytest.mark.parametrize(
    ("size", "steps", "left"),
    [
        (100, [], 15), (64 * KIB, [(14, 60 * KIB)], 1), (64 * KIB, [(5, 1)] * 3, 0), (1, [(15, 0)], 0),
        (64 * KIB + 1, [], 10), (None, [], 10), (None, [(10, 0)], 0), (None, [(9.0, KIB)], 2),
        (None, [(1.0, KIB)] * 1000, 10), (None, [(10.0, 9 * KIB)] * 10, 0), (None, [(10.0, 1)], 1 / KIB),
        (1 << 40, [(1.0, 1 << 30)], 30), (1 << 40, [(1.0, 1 << 30), (29.0, 0)], 1),
        (1 << 40, [(1.0, 1 << 30), (30, 0)], 0),
    ],
)  # fmt: skip
def test_the_time_that_a_client_has(size: int | None, steps: list[tuple[float, int]], left: float) -> None:
    assert waits(size, *steps) == pytest.approx(left)


def test_a_stall_ends_what_a_rate_would_allow() -> None:
    pace = Pace(Limits(body_timeout=2.0), None)
    assert pace.left == 2.0
    pace.waited(1.9, 0)
    assert pace.left == pytest.approx(0.1)
    pace.waited(0.05, 1)
    assert pace.left == 2.0


def test_each_room_has_its_own_limit() -> None:
    under_way = UnderWay(Limits(max_requests=1, most_unknown=2))
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(under_way.request())
            under_way.enter_unknown("a")
        stack.enter_context(under_way.request())
        with pytest.raises(Refused) as caught:
            under_way.enter_unknown("a")
        assert (caught.value.status, caught.value.code) == (503, "ServerBusy")
        under_way.enter_unknown("b")
        under_way.enter_principals("shop")
        stack.enter_context(under_way.request())
        under_way.enter_unknown("b")
        under_way.enter_metrics()
        with pytest.raises(Refused):
            under_way.enter_principals("shop")
        assert under_way.total == 4
    assert under_way.total == 0


def test_no_principal_takes_every_place() -> None:
    under_way = UnderWay(Limits(max_requests=32))

    def entered(name: str, count: int) -> int:
        """How many more requests of a principal are taken."""
        for taken in range(count):
            stack.enter_context(under_way.request())
            try:
                under_way.enter_principals(name)
            except Refused:
                return taken
        return count

    with contextlib.ExitStack() as stack:
        assert entered("slow", 100) == 32
        assert entered("other", 100) == 2
        assert entered("third", 1) == 1


@pytest.fixture
def short(tmp_path: Path) -> Iterator[tuple[Running, str]]:
    """A service with little patience, and a token of a contributor."""
    issued = Principals(tmp_path).add("shop", ["sales=contribute"])
    service = Running(tmp_path, limits=SHORT, clear=True)
    yield service, service.token(issued)
    service.stop()


def begun(service: Running, line: str, *headers: str, body: bytes = b"x") -> socket.socket:
    """A connection on which a request with a part of its body was sent."""
    connection = socket.create_connection(("127.0.0.1", service.port), timeout=20)
    lines = [f"{line} HTTP/1.1", "Host: localhost", *headers, "", ""]
    connection.sendall("\r\n".join(lines).encode() + body)
    return connection


def rest_of(connection: socket.socket) -> bytes:
    """What comes until the connection ends."""
    received = b""
    with connection, contextlib.suppress(ConnectionError):
        while chunk := connection.recv(65536):
            received += chunk
    return received


def test_slow_bodies_end(short: tuple[Running, str]) -> None:
    service, token = short
    database = service.create(token, "shop")
    bearer, file = f"Authorization: Bearer {token}", f"/sales/{database}/Files/LandingZone/f"
    assert service.send("PUT", f"{file}?resource=file", token=token).status == 201
    sent = [
        begun(service, line, bearer, f"Content-Length: {length}")
        for length in (100, 1_000_000)
        for line in (
            "POST /v1/workspaces/sales/mirroredDatabases",
            f"PATCH {file}?action=append&position=0",
            f"PUT {file}?comp=block&blockid=AAAA",
            "POST /sales?restype=container&comp=batch",
        )
    ]
    sent.append(begun(service, f"PATCH {file}?action=append&position=0", bearer, "Transfer-Encoding: chunked"))
    sent.append(begun(service, "POST /adfs/oauth2/v2.0/token", "Content-Length: 100"))
    sent.append(begun(service, "POST /adfs/oauth2/v2.0/token", "Transfer-Encoding: chunked", body=b"1\r\nx\r\n"))
    statuses = [rest_of(each).split(b" ")[1] for each in sent]
    assert statuses == [b"408"] * 8 + [b"400"] + [b"408"] * 2, "the ninth has no chunk where one has to be"
    assert until(lambda: service.service.under_way.total == 0)


@pytest.mark.parametrize("body", [b"x\r\n", b"-3\r\nabc\r\n0\r\n\r\n", b"3\r\nabcd\r\n0\r\n\r\n"])
def test_broken_chunks_of_a_call(short: tuple[Running, str], body: bytes) -> None:
    service, token = short
    line, chunked = "POST /v1/workspaces/sales/mirroredDatabases", "Transfer-Encoding: chunked"
    with begun(service, line, f"Authorization: Bearer {token}", chunked, body=body) as connection:
        assert connection.recv(1000).split(b" ")[1] == b"400"
    with begun(service, "POST /adfs/oauth2/v2.0/token", chunked, body=body) as connection:
        assert connection.recv(1000).split(b" ")[1] == b"400"


def test_slow_token_requests_are_bounded_and_hold_up_nobody(tmp_path: Path) -> None:
    issued = Principals(tmp_path).add("shop", ["sales=contribute"])
    service = Running(tmp_path, limits=Limits(max_requests=2, most_unknown=2), clear=True)
    try:
        token = service.token(issued)
        slow = [begun(service, "POST /adfs/oauth2/v2.0/token", "Content-Length: 100") for _ in range(2)]
        assert until(lambda: service.service.under_way.total == 2)
        refused = service.ask_token(issued)
        assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
        assert refused.json["error"] == "temporarily_unavailable"
        assert_others_are_served(service, token)
        for each in slow:
            each.close()
        assert until(lambda: service.ask_token(issued).status == 200)
    finally:
        service.stop()


def assert_others_are_served(service: Running, token: str) -> None:
    assert service.send("GET", "/livez").status == 200
    assert until(lambda: service.send("GET", "/readyz").status == 200)
    assert service.send("GET", "/v1/workspaces", token=token).status == 200
    assert service.send("GET", "/sales?resource=filesystem&recursive=false", token=token).status == 200


def test_a_client_that_does_not_read_its_answer_ends(short: tuple[Running, str]) -> None:
    service, token = short
    database = service.create(token, "shop")
    folder = service.root / "sales/shop/Files/LandingZone"
    with (folder / "large").open("wb") as file:
        os.truncate(file.fileno(), 1 << 28)
    target = f"GET /sales/{database}/Files/LandingZone/large"
    with begun(service, target, f"Authorization: Bearer {token}", body=b"") as connection:
        assert connection.recv(100)
        assert service.service.under_way.total == 1
        assert until(lambda: service.service.under_way.total == 0)
        assert len(rest_of(connection)) < 1 << 28


def test_a_client_that_does_not_read_many_answers_ends(short: tuple[Running, str]) -> None:
    service, _ = short
    asked = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with begun(service, "GET /livez", body=b"") as connection:
        connection.settimeout(0.2)
        with contextlib.suppress(TimeoutError):
            while True:
                connection.sendall(asked * 100)
        assert until(lambda: service.service.under_way.total == 0)


def test_idle_connections_leave_room_for_others(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
    service = Running(tmp_path, clear=True)
    try:
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(before[1], 65_536)
    finally:
        service.stop()
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.full
def test_520_slow_connections(tmp_path: Path) -> None:
    issued: Issued = Principals(tmp_path).add("shop", ["sales=contribute"])
    service = Running(tmp_path)
    slow: list[socket.socket] = []
    try:
        token = service.token(issued)
        bearer = f"Authorization: Bearer {token}"
        for n in range(520):
            connection = service.connection()
            connection.connect()
            slow.append(connection.sock)
            line = ("POST /adfs/oauth2/v2.0/token", "POST /v1/workspaces/sales/mirroredDatabases")[n % 8 == 7]
            connection.sock.sendall(
                f"{line} HTTP/1.1\r\nHost: localhost\r\n{bearer}\r\nContent-Length: 900\r\n\r\n".encode()
            )
        ends = time.monotonic() + 25
        while time.monotonic() < ends:
            assert_others_are_served(service, token)
            for each in slow:
                with contextlib.suppress(OSError):
                    each.send(b"x")
            time.sleep(2)
        assert until(lambda: service.service.under_way.total == 0)
        assert service.ask_token(issued).status == 200
    finally:
        for each in slow:
            each.close()
        service.stop()
