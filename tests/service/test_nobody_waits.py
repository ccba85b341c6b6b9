"""What one caller sends keeps no other waiting: the loop that answers is never at work for long (service.md 7)."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from running_service import Running

from lakemirror import bounded_json
from lakemirror.errors import LakemirrorError
from lakemirror.service.auth import authenticator
from lakemirror.service.refused import Refused
from lakemirror.service.rest import rest
from lakemirror.service.storage import blob, xml
from lakemirror.settings.settings import definition_values, parse_definition


@pytest.mark.parametrize(
    "text", ["[" + "[]," * 200_000 + "[]]", "[" + "1," * 200_000 + "1]", "[{}" + ",{}" * 60_000 + "]"]
)
def test_json_with_too_many_values_is_not_parsed(text: str) -> None:
    with pytest.raises(ValueError, match="100,000 values"):
        bounded_json.parsed(text)
    with pytest.raises(LakemirrorError, match="100,000 values") as caught:
        parse_definition(text.encode())
    assert caught.value.code == "definition-invalid"


def test_a_rest_body_with_too_many_values(running: Running, token: str) -> None:
    body = b'{"displayName": [' + b"[]," * 200_000 + b"[]]}"
    answer = running.send("POST", "/v1/workspaces/sales/mirroredDatabases", body, token=token)
    assert (answer.status, answer.code) == (400, "InvalidRequest")
    assert "100,000 values" in answer.json["message"]


def test_a_rest_body_with_a_byte_order_mark(running: Running, token: str) -> None:
    answer = running.send(
        "POST", "/v1/workspaces/sales/mirroredDatabases", b'\xef\xbb\xbf{"displayName": 1}', token=token
    )
    assert "displayName" in answer.json["message"]


def test_too_many_readers() -> None:
    definition = {"lakemirror": {"readers": ["duckdb"] * 1001}}
    with pytest.raises(LakemirrorError, match="1,000 clients") as caught:
        definition_values(definition)
    assert caught.value.code == "setting-invalid"
    assert len(definition_values({"lakemirror": {"readers": ["duckdb"] * 1000}})["readers"]) == 1000


def test_a_list_of_too_many_blocks() -> None:
    def listed(count: int) -> bytes:
        return b"<BlockList>" + b"<Latest>AA==</Latest>" * count + b"</BlockList>"

    assert len(xml.block_ids(listed(50_000))) == 50_000
    with pytest.raises(Refused) as caught:
        xml.block_ids(listed(50_001))
    assert (caught.value.status, caught.value.code) == (400, "BlockListTooLong")


def test_what_takes_long_is_done_beside_the_loop(running: Running, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: dict[str, str] = {}

    def noted(module: Any, name: str) -> None:
        act = getattr(module, name)

        def of_thread(*arguments: Any) -> Any:
            threads[name] = threading.current_thread().name
            return act(*arguments)

        monkeypatch.setattr(module, name, of_thread)

    noted(rest, "stored_definition")
    noted(blob, "block_ids")
    running.create(token, "beside")
    answer = running.send(
        "PUT",
        "/sales/beside/Files/x?comp=blocklist",
        b"<BlockList/>",
        token=token,
        headers={"x-ms-version": "2021-08-06"},
    )
    assert answer.status == 201
    assert len(threads) == 2
    assert running._thread.name not in threads.values()


def test_secrets_are_hashed_in_threads_of_their_own(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    monkeypatch.setattr(authenticator, "fits", lambda *_: threads.append(threading.current_thread().name))
    headers = {"Authorization": "Basic d3JvbmdlcjpzZWNyZXQ="}
    assert running.send("GET", "/", headers=headers).status == 401
    assert [name.partition("_")[0] for name in threads] == ["secrets"]
