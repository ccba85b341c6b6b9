"""Requests as they go over the wire: nothing is normalised, nothing added but what a test says."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

BASE = "/ws/sales"
ZONE = "/ws/sales/Files/LandingZone"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The error code; the one in the body is the same where there is a body."""
        code = self.headers.get("x-ms-error-code", "")
        if self.body.startswith(b"{"):
            assert self.json["error"]["code"] == code
        elif self.body:
            found = re.search(rb"<Error><Code>(.*?)</Code><Message>", self.body)
            assert found and found[1].decode() == code
        return code

    @property
    def etag(self) -> str:
        return self.headers["ETag"].strip('"')


class Wire:
    """One kept connection, as principal `loader` unless a test says otherwise."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)

    def close(self) -> None:
        self._connection.close()

    def __call__(
        self, method: str, target: str, body: bytes | None = None, *, name: str = "loader", **headers: str
    ) -> Answer:
        """The answer. Headers are given as `x_ms_version="…"`, `__` for `_`; one with the value "" is not sent."""
        target = re.sub(r"[^\x00-\x7f]+", lambda found: quote(found[0]), target)
        sent = {"Accept": "application/json", "Authorization": f"Bearer {name}"}
        sent |= {key.replace("__", "\0").replace("_", "-").replace("\0", "_"): value for key, value in headers.items()}
        self._connection.putrequest(method, target, skip_accept_encoding=True, skip_host="Host" in sent)
        if body is not None or method in ("PUT", "PATCH", "POST"):
            sent.setdefault("Content-Length", str(len(body or b"")))
        for key, value in sent.items():
            if value != "":
                self._connection.putheader(key, value)
        self._connection.endheaders(body)
        answer = self._connection.getresponse()
        data = answer.read()
        if answer.will_close:
            self._connection.close()
        return Answer(answer.status, answer.headers, data)

    def upload(self, path: str, data: bytes) -> None:
        """Creates, appends and flushes one file of the landing zone."""
        assert self("PUT", f"{ZONE}/{path}?resource=file").status == 201
        assert self("PATCH", f"{ZONE}/{path}?action=append&position=0", data).status == 202
        assert self("PATCH", f"{ZONE}/{path}?action=flush&position={len(data)}").status == 200
