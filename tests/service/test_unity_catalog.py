"""Unity Catalog's interface over the wire: what is listed, to whom, in pages; and that nothing can be written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from running_service import Answer, Running
from tests.landing import declare, put

from lakemirror.api import MirroredDatabase
from lakemirror.readers.unity_columns import columns_of
from lakemirror.service.auth.principals import Issued
from lakemirror.service.service import plane_of
from lakemirror.service.workspace_names import is_reserved

API = "/api/2.1/unity-catalog"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("unity")
    for place in ("sales/shop", "hidden/shop"):
        for table in ("orders", "items", "crm.people"):
            declare(made / place, table, ["id"])
            put(made / place, table, 1, {"id": [1], "name": ["a"], "__rowMarker__": [0]})
        MirroredDatabase(made / place, engine="local").sync()
    return made


@pytest.fixture(scope="module")
def reader_token(running: Running, reader: Issued) -> str:
    return running.token(reader)


def ask(running: Running, token: str, path: str, method: str = "GET", body: Any = None) -> Answer:
    return running.send(method, f"{API}/{path}", body, token=token)


def content(answer: Answer) -> Any:
    assert answer.status == 200, answer.body
    return json.loads(answer.body)


def test_a_reader_finds_what_it_may_read(running: Running, reader_token: str) -> None:
    token = reader_token
    assert [each["name"] for each in content(ask(running, token, "catalogs"))["catalogs"]] == ["sales"]
    assert content(ask(running, token, "catalogs/sales"))["name"] == "sales"
    schemas = content(ask(running, token, "schemas?catalog_name=sales"))["schemas"]
    assert [each["full_name"] for each in schemas] == ["sales.shop", "sales.shop:crm"]
    assert content(ask(running, token, "schemas/sales.shop%3Acrm"))["name"] == "shop:crm"
    inner = content(ask(running, token, "tables?catalog_name=sales&schema_name=shop%3Acrm"))["tables"]
    assert [each["full_name"] for each in inner] == ["sales.shop:crm.people"]
    table = content(ask(running, token, "tables/sales.shop.orders"))
    assert (table["table_type"], table["data_source_format"]) == ("EXTERNAL", "DELTA")
    assert table["storage_location"].startswith("abfss://") and table["storage_location"].endswith("/Tables/orders")
    assert [(each["name"], each["type_name"], each["type_text"]) for each in table["columns"]] == [
        ("id", "LONG", "bigint"), ("name", "STRING", "string"),
    ]  # fmt: skip
    assert content(ask(running, token, "tables/SALES.shop.Orders"))["table_id"] == table["table_id"]


def test_pages_hold_every_table_once(running: Running, reader_token: str) -> None:
    names, more = [], ""
    for _ in range(2):
        page = content(
            ask(running, reader_token, f"tables?catalog_name=sales&schema_name=shop&max_results=1&page_token={more}")
        )
        names += [each["name"] for each in page["tables"]]
        more = page.get("next_page_token", "")
    assert (names, more) == (["items", "orders"], "")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "catalogs/hidden", 403, "PERMISSION_DENIED"),
        ("GET", "schemas?catalog_name=hidden", 403, "PERMISSION_DENIED"),
        ("GET", "tables/hidden.shop.orders", 404, "NOT_FOUND"),
        ("GET", "schemas/hidden.shop", 404, "NOT_FOUND"),
        ("GET", "tables/sales.shop.absent", 404, "NOT_FOUND"),
        ("GET", "tables?catalog_name=sales", 400, "INVALID_ARGUMENT"),
        ("GET", "tables?catalog_name=sales&schema_name=shop&page_token=forged", 400, "INVALID_ARGUMENT"),
        ("GET", "catalogs?max_results=-1", 400, "INVALID_ARGUMENT"),
        ("GET", "functions", 404, "NOT_FOUND"),
        ("GET", "", 404, "NOT_FOUND"),
        ("POST", "catalogs", 405, "UNIMPLEMENTED"),
        ("PATCH", "schemas/sales.shop", 405, "UNIMPLEMENTED"),
        ("DELETE", "tables/sales.shop.orders", 405, "UNIMPLEMENTED"),
        ("POST", "temporary-table-credentials", 400, "INVALID_ARGUMENT"),
        ("POST", "temporary-path-credentials", 404, "NOT_FOUND"),
    ],
)
def test_what_is_refused(running: Running, reader_token: str, method: str, path: str, status: int, code: str) -> None:
    answer = ask(running, reader_token, path, method, None if method == "GET" else {"name": "x"})
    assert (answer.status, json.loads(answer.body)["error_code"]) == (status, code), answer.body


def test_a_log_that_cannot_be_read_hides_no_other_table(running: Running, reader_token: str) -> None:
    log = running.root / "sales/shop/Tables/torn/_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json").write_text("{")
    try:
        rows = content(ask(running, reader_token, "tables?catalog_name=sales&schema_name=shop"))["tables"]
        assert [(each["name"], "columns" in each) for each in rows] == [
            ("items", True), ("orders", True), ("torn", False),
        ]  # fmt: skip
        assert len({each["table_id"] for each in rows}) == 3  # DuckDB lists no schema that has a table without an id
        assert ask(running, reader_token, "tables/sales.shop.torn").status >= 500
    finally:
        (log / "00000000000000000000.json").unlink()
        log.rmdir()
        log.parent.rmdir()


def test_nobody_is_told_anything_without_a_token(running: Running) -> None:
    for method, path in (("GET", "catalogs"), ("DELETE", "tables/sales.shop.orders"), ("GET", "absent")):
        answer = running.send(method, f"{API}/{path}")
        assert (answer.status, json.loads(answer.body)["error_code"]) == (401, "UNAUTHENTICATED")


def test_the_address_belongs_to_the_service() -> None:
    assert is_reserved("api") and plane_of(f"{API}/tables?x=1") == "unity" and plane_of("/api/other") == "storage"


def test_columns_of_every_type() -> None:
    inner = {"name": "a b", "type": "decimal(5,2)", "nullable": True, "metadata": {}}
    kinds: list[Any] = [
        "byte", "decimal(10,2)", {"type": "struct", "fields": [inner]},
        {"type": "array", "elementType": "integer", "containsNull": True},
        {"type": "map", "keyType": "string", "valueType": "timestamp_ntz", "valueContainsNull": True}, "new_type",
    ]  # fmt: skip
    fields = [{"name": f"c{n}", "type": kind, "nullable": n > 0, "metadata": {}} for n, kind in enumerate(kinds)]
    found = columns_of({"type": "struct", "fields": fields}, ["c1", "c0"])
    assert [(each["type_name"], each["type_text"]) for each in found] == [
        ("BYTE", "tinyint"), ("DECIMAL", "decimal(10,2)"), ("STRUCT", "struct<`a b`:decimal(5,2)>"),
        ("ARRAY", "array<int>"), ("MAP", "map<string,timestamp_ntz>"), ("USER_DEFINED_TYPE", "new_type"),
    ]  # fmt: skip
    assert [each.get("partition_index") for each in found] == [1, 0, None, None, None, None]
    assert (found[1]["type_precision"], found[1]["type_scale"]) == (10, 2)
    assert [each["position"] for each in found] == list(range(6)) and not found[0]["nullable"]
    assert json.loads(found[3]["type_json"]) == fields[3]
