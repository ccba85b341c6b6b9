"""`register` in a Unity Catalog server: entries with columns that follow the mirror, and no entry of anybody else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pyarrow as pa
import pytest
from tests import unity_server
from tests.commands import CommandRunner
from tests.free_ports import free_port
from tests.landing import declare, put

from lakemirror import MirroredDatabase
from lakemirror.cli import app
from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing
from lakemirror.readers.catalog_of_unity import CONNECTOR


@pytest.fixture(scope="module", params=["in memory", "old", pytest.param("real", marks=pytest.mark.full)])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param != "real":
        with unity_server.in_memory(old=request.param == "old") as address:
            yield address
    else:
        with unity_server.real(tmp_path_factory.mktemp("unity"), free_port()) as address:
            asked(address, "POST", "catalogs", {"name": "unity"})
            yield address


def asked(url: str, method: str, path: str, body: Any = None, token: str = unity_server.TOKEN) -> Any:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    data = None if body is None else json.dumps(body).encode()
    address = path if path.startswith("http") else f"{url}{unity_server.API}/{path}"
    with urlopen(Request(address, data, headers, method=method)) as answer:
        return json.load(answer)


def entries(url: str, schema: str) -> dict[str, tuple[str, list[str]]]:
    """The location of each entry, and its columns."""
    tables = asked(url, "GET", f"tables?catalog_name=unity&schema_name={schema}")["tables"]
    return {
        each["name"]: (each["storage_location"], [f"{c['name']} {c['type_text']}" for c in each["columns"]])
        for each in tables
    }


def settings_of(url: str, token: str = unity_server.TOKEN) -> list[str]:
    key = "spark.sql.catalog.unity"
    return [f"{key}={CONNECTOR}", f"{key}.uri={url}/", f"{key}.token={token}"]


def opened(folder: Path, url: str, token: str = unity_server.TOKEN, **settings: Any) -> MirroredDatabase:
    return MirroredDatabase(folder, engine="local", spark=settings_of(url, token), **settings)


def test_entries_follow_the_tables(url: str, tmp_path: Path) -> None:
    Landing(tmp_path).table("orders", ["id"]).insert([{"id": 1}])
    for name in ("customers", "items", "parts"):
        Landing(tmp_path).table(name, ["id"], "f_sales").insert([{"id": 1}])
    database = opened(tmp_path, url)
    database.sync()
    first = database.register(None, "f_shop", "unity")
    assert sorted(first.created) == ["unity.f_sales.customers", "unity.f_sales.items", "unity.f_sales.parts",
                                     "unity.f_shop.orders"]  # fmt: skip
    assert (first.failed, first.names["f_sales.items"]) == ({}, "unity.f_sales.items")
    assert entries(url, "f_shop") == {"orders": (f"file://{tmp_path}/Tables/orders", ["id bigint"])}
    again = database.register(None, "f_shop", "unity")
    assert (again.created, again.changed, again.dropped, again.names) == ([], [], [], first.names)
    Landing(tmp_path).table("orders", ["id"]).upsert([{"id": 2, "item": "tea"}])
    Landing(tmp_path).table("new", ["id"]).insert([{"id": 1}])
    database.sync()
    shutil.rmtree(tmp_path / "Tables/f_sales/items")
    done = database.register(None, "f_shop", "unity")
    assert (done.created, done.changed, done.dropped, done.failed) == (
        ["unity.f_shop.new"], ["unity.f_shop.orders"], ["unity.f_sales.items"], {},
    )  # fmt: skip
    assert entries(url, "f_shop")["orders"][1] == ["id bigint", "item string"]
    assert entries(url, "f_sales").keys() <= {"customers", "parts"}
    moved = database.register(None, "f_other", "unity")
    assert len(moved.created) == 2 == len(moved.dropped)
    assert (tmp_path / "Tables/orders/_delta_log").is_dir(), "no entry took a table's files with it"


def test_new_columns_are_set_in_the_entry_which_keeps_its_grants(
    url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Grants are those of an entry's id. A server without Delta's interface gets another entry."""
    declare(tmp_path, "t", ["id"], isPartitionEnabled=True)
    put(tmp_path, "t/p=a", 1, {"id": [1]})
    database = opened(tmp_path, url)
    database.sync()
    database.register(None, "k_shop", "unity")
    before = asked(url, "GET", "tables/unity.k_shop.t")
    at = datetime(2026, 1, 2, tzinfo=timezone.utc)
    more = {"at": [at], "day": [date(2026, 1, 2)], "n": [Decimal("1.20")], "bytes": [b"x"], "yes": [True], "f": [1.5]}
    put(tmp_path, "t/p=a", 2, {"id": [2], "list": [[1]], **more})
    database.sync()
    done = database.register(None, "k_shop", "unity")
    assert (done.created, done.changed, done.failed) == ([], ["unity.k_shop.t"], {})
    after = asked(url, "GET", "tables/unity.k_shop.t")
    assert (after["table_id"] == before["table_id"]) == ("old" not in request.node.name)
    assert [each["type_text"] for each in after["columns"]] == [
        "bigint", "string", "string", "timestamp", "date", "decimal(3,2)", "binary", "boolean", "double",
    ]  # fmt: skip
    assert [each["name"] for each in after["columns"] if each.get("partition_index") is not None] == ["p"]
    again = database.register(None, "k_shop", "unity")
    assert (again.created, again.changed, again.dropped) == ([], [], [])


@pytest.mark.full
def test_a_grant_on_a_table_stays_when_its_columns_are_added_changed_and_dropped(tmp_path: Path) -> None:
    """On a real server that authorizes: who was granted a table reads its new columns; others never see it."""
    folder, server = tmp_path / "db", tmp_path / "server"
    for name in ("t", "other"):
        declare(folder, name, ["id"])
        put(folder, name, 1, pa.table({"id": [1], "n": pa.array([1], pa.int32()), "old": ["a"]}))
    with unity_server.real(server, free_port(), authorized=True) as url:
        admin, analyst = (unity_server.token_of(server, user) for user in ("admin", "analyst@example.com"))
        asked(url, "POST", "catalogs", {"name": "unity"}, admin)
        user = {"displayName": "analyst", "emails": [{"value": "analyst@example.com", "primary": True}]}
        asked(url, "POST", f"{url}{unity_server.CONTROL}/scim2/Users", user, admin)
        database = opened(folder, url, admin, on_type_change="widen", drop_after=0)
        database.sync()
        assert sorted(database.register(None, "g", "unity").created) == ["unity.g.other", "unity.g.t"]
        for what, right in (
            ("catalog/unity", "USE CATALOG"),
            ("schema/unity.g", "USE SCHEMA"),
            ("table/unity.g.t", "SELECT"),
        ):
            change = {"changes": [{"principal": "analyst@example.com", "add": [right], "remove": []}]}
            asked(url, "PATCH", f"permissions/{what}", change, admin)

        def seen() -> list[str]:
            with pytest.raises(HTTPError, match="403"):
                asked(url, "GET", "tables/unity.g.other", token=analyst)
            return [
                f"{each['name']} {each['type_text']}"
                for each in asked(url, "GET", "tables/unity.g.t", token=analyst)["columns"]
            ]

        assert seen() == ["id bigint", "n int", "old string"]
        put(folder, "t", 2, pa.table({"id": [2], "n": [2**40], "old": ["b"], "new": [1.5]}))
        database.sync()
        assert database.register(None, "g", "unity").changed == ["unity.g.t"]
        assert seen() == ["id bigint", "n bigint", "old string", "new double"]
        shutil.rmtree(folder / "Files/LandingZone/t")
        declare(folder, "t", ["id"])
        put(folder, "t", 1, {"id": [1], "new": [2.5]})
        database.sync()
        done = database.register(None, "g", "unity")
        assert (done.created, done.changed, done.dropped, done.failed) == ([], ["unity.g.t"], [], {})
        assert seen() == ["id bigint", "new double"]
        granted = asked(url, "GET", "permissions/table/unity.g.t", token=analyst)["privilege_assignments"]
        assert granted == [{"principal": "analyst@example.com", "privileges": ["SELECT"]}]


def test_a_folder_of_any_name(url: str, tmp_path: Path) -> None:
    folder = tmp_path / "a lake ü 100%#x"
    Landing(folder).table("orders", ["id"]).insert([{"id": 1}])
    database = opened(folder, url)
    database.sync()
    assert database.register(None, "n_shop", "unity").created == ["unity.n_shop.orders"]
    assert entries(url, "n_shop")["orders"][0] == (folder / "Tables/orders").as_uri()
    again = database.register(None, "n_shop", "unity")
    assert (again.created, again.changed, again.dropped, again.failed) == ([], [], [], {})


def test_an_address_is_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakemirror.spark_session.session.start", lambda *_, **__: pytest.fail("Spark was started"))
    Landing(tmp_path).table("orders", ["id"]).insert([{"id": 1}])
    ran = CommandRunner().invoke(app, ["register", str(tmp_path), "--catalog", "http://unity:8080"])
    assert ran.exit_code == 2 and "setting-invalid: http://unity:8080 is an address, not the name of a c" in ran.stderr


def test_entries_of_others_stay(url: str, tmp_path: Path) -> None:
    """By name, by location alone, by comment alone."""
    folder = tmp_path / "db"
    for name in ("orders", "items"):
        Landing(folder).table(name, ["id"]).insert([{"id": 1}])
    database = opened(folder, url)
    database.sync()
    asked(url, "POST", "schemas", {"name": "o_shop", "catalog_name": "unity"})
    mark = f"Mirrored by lakemirror from {folder}"
    for name, location, comment in (
        ("orders", tmp_path / "elsewhere", mark), ("alias", folder / "Tables/orders", "mine"),
        ("said", f"{folder}2/Tables/orders", mark),
    ):  # fmt: skip
        asked(url, "POST", "tables", {
            "name": name, "catalog_name": "unity", "schema_name": "o_shop", "table_type": "EXTERNAL", "columns": [],
            "data_source_format": "DELTA", "storage_location": f"file://{location}", "comment": comment,
        })  # fmt: skip
    done = database.register(None, "o_shop", "unity")
    assert {name: error.code for name, error in done.failed.items()} == {"orders": "catalog-name-taken"}
    assert str(tmp_path / "elsewhere") in done.failed["orders"].message
    assert (done.created, done.changed, done.dropped) == (["unity.o_shop.items"], [], [])
    shutil.rmtree(folder / "Tables/orders")
    assert database.register(None, "o_shop", "unity").dropped == []


def test_the_command_needs_no_spark(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakemirror.spark_session.session.start", lambda *_, **__: pytest.fail("Spark was started"))
    for name in ("good", "a b"):
        Landing(tmp_path).table(name, ["id"]).insert([{"id": 1}])
    MirroredDatabase(tmp_path, engine="local").sync()
    options = [word for each in settings_of(url) for word in ("--spark", each)]
    ran = CommandRunner().invoke(app, ["register", str(tmp_path), "--catalog", "unity", "--schema", "c_shop", *options])
    assert ran.exit_code == 3 and "unity.c_shop.good  created" in ran.stdout
    assert "a b: " in ran.stderr and "cannot contain" in ran.stderr


def test_a_server_that_refuses_or_is_gone(tmp_path: Path) -> None:
    Landing(tmp_path).table("orders", ["id"]).insert([{"id": 1}])
    MirroredDatabase(tmp_path, engine="local").sync()
    with unity_server.in_memory() as address:
        stranger = [each.replace(unity_server.TOKEN, "another") for each in settings_of(address)]
        with pytest.raises(LakemirrorError, match="401 UNAUTHENTICATED") as refused:
            MirroredDatabase(tmp_path, spark=stranger).register(None, "shop", "unity")
        assert refused.value.code == "catalog-refused" and "another" not in str(refused.value)
    for catalog in ("unity", "other"):
        with pytest.raises(LakemirrorError, match=r"Connection refused|session alone"):
            opened(tmp_path, address).register(None, "shop", catalog)
