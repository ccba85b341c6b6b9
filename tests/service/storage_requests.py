"""Requests of the storage plane with an account SAS, over a kept connection, and what they change on disk."""

from __future__ import annotations

import datetime
import functools
import http.client
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas
from running_service import Answer, Running

from lakemirror.service.auth.principals import Issued, Principals

_KINDS = {"s": "service", "c": "container", "o": "object"}


class Served:
    """A service in clear with two workspaces, a mirrored database in each, and three principals."""

    def __init__(self, root: Path) -> None:
        principals = Principals(root)
        self.principals: Mapping[str, Issued] = {
            "writer": principals.add("writer", ["sales=contribute"]),
            "reader": principals.add("reader", ["sales=read"]),
            "other": principals.add("other", ["depot=contribute"]),
        }
        self.running = Running(root, clear=True)
        self.id = self.running.create(self.running.token(self.principals["writer"]), "shop")
        self.running.create(self.running.token(self.principals["other"]), "stock", "depot")
        listed = self.running.send("GET", "/v1/workspaces", token=self.running.token(self.principals["writer"]))
        self.workspace = str(listed.json["value"][0]["id"])
        self.zone = root / "sales/shop/Files/LandingZone"
        self.staged = root / ".lakemirror/staged"
        self.reconnect()

    def sas(self, name: str, kinds: str, letters: str) -> str:
        """An account SAS of a principal, made by the vendor's library."""
        issued = self.principals[name]
        return _signed(name, issued.principal.account_key, kinds, letters)

    def send(self, method: str, target: str, body: bytes | None = None, **headers: str) -> Answer:
        """The answer. Headers are given as `x_ms_version="…"`."""
        connection = self._connection
        connection.putrequest(method, target, skip_accept_encoding=True, skip_host="Host" in headers)
        connection.putheader("Content-Length", str(len(body or b"")))
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders(body)
        answer = connection.getresponse()
        found = Answer(answer.status, answer.headers, answer.read())
        if answer.will_close:
            connection.close()
        return found

    def reconnect(self) -> None:
        """Begins a new connection."""
        self._connection = http.client.HTTPConnection("127.0.0.1", self.running.port, timeout=30)

    def close(self) -> None:
        self._connection.close()
        self.running.stop()


@contextmanager
def served(root: Path) -> Iterator[Served]:
    """A service that ends with the block."""
    made = Served(root)
    try:
        yield made
    finally:
        made.close()


def content_below(folder: Path) -> dict[str, bytes | None]:
    """Every path below a folder: the bytes of a file, None for a folder. What disappears meanwhile is left out."""
    found: dict[str, bytes | None] = {}
    for place, folders, files in os.walk(folder):
        for name in folders:
            found[(Path(place) / name).relative_to(folder).as_posix()] = None
        for name in files:
            with suppress(FileNotFoundError):
                found[(Path(place) / name).relative_to(folder).as_posix()] = (Path(place) / name).read_bytes()
    return found


@functools.cache
def _signed(name: str, key: str, kinds: str, letters: str) -> str:
    return str(
        generate_account_sas(
            name, key, resource_types=ResourceTypes(**{_KINDS[kind]: True for kind in kinds}),
            permission=AccountSasPermissions.from_string(letters),
            expiry=datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=6),
        )
    )  # fmt: skip
