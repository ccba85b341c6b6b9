"""The relay of the benchmarks: bytes pass unchanged, each request is counted once, and a delay is added to each."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest
from benchmarks.relay import Relay, relay
from benchmarks.store_page import goals, page, rows_of


class _Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"x" * 300_000
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_PUT = do_HEAD = _answer

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def front() -> Iterator[Relay]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Echo)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    with relay("127.0.0.1", server.server_address[1]) as found:
        yield found
    server.shutdown()
    server.server_close()


def test_requests_and_their_bytes_are_counted(front: Relay) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(front.url).port or 0, timeout=30)
    sent = bytes(range(256)) * 5_000
    connection.request("PUT", "/one", sent)
    assert connection.getresponse().read() == sent
    connection.request("GET", "/two?a=b")
    assert len(connection.getresponse().read()) == 300_000
    connection.request("HEAD", "/three")
    connection.getresponse().read()
    found = front.requests()
    assert [(each.method, each.path, each.sent) for each in found] == [
        ("PUT", "/one", len(sent)), ("GET", "/two?a=b", 0), ("HEAD", "/three", 0),
    ]  # fmt: skip
    assert [each.received // 1000 for each in found] == [1280, 300, 0]
    assert all(each.answered >= each.began for each in found) and front.requests() == []


def test_a_delay_is_added_to_each_request(front: Relay) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(front.url).port or 0, timeout=30)
    front.delay(50)
    begun = time.monotonic()
    for _ in range(3):
        connection.request("GET", "/")
        connection.getresponse().read()
    assert time.monotonic() - begun >= 0.15


def test_rows_are_medians_with_ratios_to_ours_and_to_the_disk() -> None:
    measured = [("lakemirror", "store", 2.0), ("lakemirror", "store", 4.0), ("lakemirror", "store", 3.0),
                ("delta-rs", "store", 60.0), ("lakemirror", "disk", 1.5)]  # fmt: skip
    rows = [{"peer": peer, "where": where, "seconds": seconds, "right": True} for peer, where, seconds in measured]
    ours, theirs, disk = rows_of({"rows": [*rows[:3], rows[3], rows[4]]})
    assert (ours["seconds"], ours["ratio"], ours["to disk"]) == (3.0, 1.0, 2.0)
    assert (theirs["ratio"], theirs["to disk"], theirs["verdict"]) == (20.0, None, "same")
    assert disk["to disk"] is None
    wrong = rows_of({"rows": [{**rows[0], "right": False}, rows[1]]})
    assert wrong[0]["verdict"] == "WRONG"


def _asked(**figures: float) -> dict[str, dict[str, object]]:
    """A report of one round, in which every goal is reached but those whose figure is given."""
    told = {"backlog": 100.0, "latency": 0.2, "requests": 8.0, "load": 1.2, **figures}
    ours = {"peer": "lakemirror", "where": "store", "round": 1, "right": True}
    rows = {
        "backlog": [{**ours, "seconds": 1.0}, {**ours, "peer": "delta-rs", "seconds": told["backlog"]}],
        "latency": [
            {**ours, "seconds": told["latency"], "median over touched": told["requests"], "most over touched": 14}
        ],
        "load": [
            {**ours, "seconds": 9.0, "until commit": told["load"]},
            {**ours, "peer": "copied through this machine", "seconds": 1.0},
        ],
    }  # fmt: skip
    return {name: {"title": name, "size": "", "rows": each} for name, each in rows.items()}


@pytest.mark.parametrize(
    ("place", "name", "missed"), [(0, "backlog", 19.9), (1, "latency", 0.51), (2, "requests", 9.0), (3, "load", 1.51)]
)
def test_a_goal_is_said_to_hold_only_where_its_figure_reaches_it(place: int, name: str, missed: float) -> None:
    assert [each.holds for each in goals({"questions": _asked()})] == [True] * 4
    found = goals({"questions": _asked(**{name: missed})})
    assert [each.holds for each in found] == [at != place for at in range(4)]
    shown = page({"questions": _asked(**{name: missed}), "machine": "small", "load": 0.1})
    assert shown.count("| yes |") == 3 and shown.count("| no |") == 1


def test_a_goal_of_a_peer_that_failed_is_not_measured() -> None:
    questions = _asked()
    questions["load"]["rows"][1] = {"peer": "copied through this machine", "where": "store", "failed": "it broke"}  # type: ignore[index]
    assert [each.holds for each in goals({"questions": questions})] == [True, True, True, None]
