"""A service with `--state store` is killed at each put of its own files; another one goes on.

A proxy before the store kills it: as the put arrives, or when the store has taken it.
"""

from __future__ import annotations

import http.client
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.fault_proxy import LOST, REFUSED, FaultProxy, fault_proxy
from tests.object_stores import StoreServer
from tests.service_process import ServiceProcess

from lakemirror.service.auth.principals import Issued, Principals
from lakemirror.storage import connections, place

pytestmark = pytest.mark.full

MOST = 40
"""Puts of one step, of which there are some ten."""


@dataclass
class Machines:
    """Two machines with empty caches, for one prefix; the first reaches the store by the proxy."""

    address: str
    here: ServiceProcess
    there: ServiceProcess
    proxy: FaultProxy
    count: int = 0

    def kill_at(self, number: int, what: str) -> None:
        """Kills the first at this put from now on, before (REFUSED) or after (LOST) the store has it."""
        self.count = 0

        def fault(method: str, path: str) -> str:
            if method != "PUT" or "/.lakemirror/serve.json" in path:
                return ""
            self.count += 1
            if self.count != number:
                return ""
            assert self.here._process is not None
            self.here._process.kill()
            self.here._process.wait(60)
            return what

        self.proxy.fault = fault

    def principals(self) -> Principals:
        """As another process on another machine has them."""
        return Principals(place(self.address), "store")

    def lapse(self) -> None:
        """Ends the first one's lease, as 15 seconds do."""
        lease = place(self.address) / ".lakemirror/serve.json"
        lease.unlink(missing_ok=True)


@contextmanager
def machines(folder: Path, server: StoreServer) -> Iterator[Machines]:
    address = f"{server.bucket()}/lake"
    connections.give_options("", server.options)
    with fault_proxy(server.endpoint) as proxy:
        made = []
        for name, options in (("here", server.through(proxy.url)), ("there", server.options)):
            environment = {
                **os.environ, **options, "LAKEMIRROR_ENGINE": "local", "LAKEMIRROR_FAILPOINT": "",
                "LAKEMIRROR_CACHE_DIR": str(folder / name / "cache"),
            }  # fmt: skip
            made.append(ServiceProcess(
                folder / name, folder / f"{name}.log", environment=environment, address=address, in_store=True
            ))  # fmt: skip
        made[1]._tokens = made[0]._tokens
        try:
            yield Machines(address, *made, proxy)
        finally:
            for each in made:
                each.close()
            connections.forget_all()


def kept(address: str) -> dict[str, bytes]:
    """The files that are made once."""
    own = place(address) / ".lakemirror"
    found = {}
    for name in ("principals/principals.json", "keys/signing.pem"):
        with suppress(FileNotFoundError):
            found[name] = (own / name).read_bytes()
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("what", [REFUSED, LOST])
def test_a_first_start_that_is_killed_is_ended_by_another_machine(
    server: StoreServer, tmp_path: Path, what: str
) -> None:
    for number in range(1, MOST):
        with machines(tmp_path / str(number), server) as lake:
            lake.kill_at(number, what)
            try:
                lake.here.start()
            except AssertionError:
                assert lake.count >= number, lake.here.said()
            else:
                if lake.here._process is not None and lake.here._process.poll() is None:
                    break  # every put of a start had its turn
            found = kept(lake.address)
            lake.lapse()
            lake.there.start()
            assert kept(lake.address).items() >= found.items(), "a key is made once"
            boss = lake.principals().add("boss", ["*=contribute"])
            lake.there.end()
            lake.there.start()  # what was made is whole: it follows the principal, and clients trust its certificate
            assert lake.there.ask(boss, "GET", "/v1/workspaces").status == 200
    assert number > 4


def stopped(lake: Machines, boss: Issued, method: str, path: str, body: Any = None) -> bool:
    """True if the service was killed before it answered."""
    try:
        answer = lake.here.ask(boss, method, path, body)
    except (OSError, http.client.HTTPException, ssl.SSLError):
        return True
    assert answer.status in (200, 201), answer.body
    return False


CALLS: dict[str, tuple[str, str, Any]] = {
    "rename": ("PATCH", "/v1/workspaces/stock", {"displayName": "goods"}),
    "delete": ("DELETE", "/v1/workspaces/stock", None),
    "create": ("POST", "/v1/workspaces", {"displayName": "depot"}),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("what", [REFUSED, LOST])
@pytest.mark.parametrize("name", CALLS)
def test_a_change_of_workspaces_that_is_killed_is_ended_by_the_same_call_elsewhere(
    server: StoreServer, tmp_path: Path, what: str, name: str
) -> None:
    """Another process changes a principal between the kill and the call: both changes count."""
    method, path, body = CALLS[name]
    for number in range(1, MOST):
        with machines(tmp_path / str(number), server) as lake:
            boss = lake.here.principal("boss", "*=contribute")
            lake.here.principal("writer", "stock=contribute")
            lake.here.start()
            lake.here.token(boss)
            lake.kill_at(number, what)
            if not stopped(lake, boss, method, path, body):
                break
            others = lake.principals()
            writer = others.rotate("writer")
            others.add("reader", ["*=read"])
            lake.lapse()
            lake.there.start()
            again = lake.there.ask(boss, method, path, body)
            assert again.status in (200, 201, 404, 409), again.body
            names = {each["displayName"] for each in lake.there.ask(boss, "GET", "/v1/workspaces").json["value"]}
            after = {"rename": {"goods"}, "delete": set(), "create": {"stock", "depot"}}[name]
            assert names == after
            known = {each.name: dict(each.roles) for each in lake.principals().all()}
            roles = {"rename": {"goods": "contribute"}, "delete": {}, "create": {"stock": "contribute"}}[name]
            assert known == {"boss": {"*": "contribute"}, "reader": {"*": "read"}, "writer": roles}
            assert lake.principals().by_name("writer") == replace(writer.principal, roles=roles)
            lake.there.token(writer)  # the secret that the other process got fits
            if name == "delete":
                made = lake.there.ask(boss, "POST", "/v1/workspaces", {"displayName": "stock"})
                assert made.status == 201
                assert lake.there.ask(writer, "GET", "/v1/workspaces/stock").status == 403
    assert number > 1
