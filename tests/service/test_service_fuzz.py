"""Random requests to every plane but storage: never a 500, never a hang, nothing outside the root."""

from __future__ import annotations

import http.client
import random
from pathlib import Path

import pytest
from running_service import Answer, Running, new
from tests.rounds import rounds

PIECES = (
    "v1", "workspaces", "sales", "mirroredDatabases", "items", "ui", "databases", "tables", "metrics", "adfs", "oauth2",
    "v2.0", "token", "..", "%2e%2e", "%2F", "%00", "%ff", "%", ".well-known", "openid-configuration",
    "startMirroring", "getMirroringStatus", "lakehouses", "x.json", "overview.json", "discovery", "instance", "keys",
    "00000000-0000-0000-0000-000000000000", "?", "?continuationToken=", "?hardDelete=true", "&", "=", "#", "//", "*",
)  # fmt: skip
METHODS = ("GET", "POST", "PATCH", "DELETE", "PUT", "HEAD", "OPTIONS", "TRACE", "LINK")
BODIES = (
    None, b"", b"{", b"[]", b"null", b'"x"', b"\xff", b"{}" * 9, b"grant_type=client_credentials&scope=x",
    b'{"displayName": {"a": 1}}', b'{"definition": {"parts": [{"path": null}]}}', b'{"displayName": "\\ud800"}',
    b'{"displayName": "x", "definition": {"parts": [{"path": "mirroring.json", "payload": "e30=", '
    b'"payloadType": "InlineBase64"}]}, "description": "\\u0000"}',
    b"1e999", b"{" * 5000, b'{"a":' * 3000,
)  # fmt: skip
CREDENTIALS = ("", "Bearer {token}", "Bearer x", "Basic eDp5", "Basic !", "SharedKey a:b", "Bearer", " ", "Negotiate x")


def attempt(running: Running, seed: int, token: str, inside: list[str]) -> tuple[str, str, Answer | None]:
    chosen = random.Random(seed)
    parts = [chosen.choice((*PIECES, *inside)) for _ in range(chosen.randint(0, 7))]
    path = "/" + "/".join(parts)
    method = chosen.choice(METHODS)
    headers = {"Authorization": chosen.choice(CREDENTIALS).format(token=token)}
    if chosen.random() < 0.2:
        headers["Host"] = chosen.choice(("x.dfs.localhost", "evil.example", "a b", "localhost:99999", "[::1]"))
    try:
        return method, path, running.send(method, path, chosen.choice(BODIES), headers=headers)
    except http.client.HTTPException:
        return method, path, None  # answered without HTTP, or closed


def fuzz(running: Running, token: str, seeds: range) -> None:
    own = (
        running.root if isinstance(running.root, Path) else running.service.registry.staging.parent
    )  # what the service may write on a disk
    database = running.create(token, f"fuzzed {seeds.start}", start=True)

    def outside() -> list[Path]:
        return sorted(path for path in own.parent.rglob("*") if own not in path.parents and path != own)

    before = outside()
    for seed in seeds:
        method, path, answer = attempt(running, seed, token, [database, f"fuzzed%20{seeds.start}"])
        assert answer is None or answer.status < 500 or answer.status == 501, (seed, method, path, answer.body)
    assert outside() == before
    assert running.send("GET", "/livez").status == 200
    answer = running.send("POST", "/v1/workspaces/sales/mirroredDatabases", new("still works"), token=token)
    assert answer.status in (201, 409)


def test_some_random_requests(running: Running, token: str) -> None:
    fuzz(running, token, range(rounds(40, 120)))


@pytest.mark.full
def test_many_random_requests(running: Running, token: str) -> None:
    fuzz(running, token, range(1000, 11_000))
