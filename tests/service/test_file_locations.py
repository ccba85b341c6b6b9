"""Locations of tables on this machine's disk, which an operator may have told by Unity Catalog's interface."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from running_service import Running, principals_of
from tests.commands import CommandRunner
from tests.landing import declare, put

from lakemirror.api import MirroredDatabase
from lakemirror.cli import app
from lakemirror.service.unity.unity_endpoints import _is_of_this_machine
from lakemirror.storage.place import place

API = "/api/2.1/unity-catalog"
NAMES = {"orders", "crm.people", "odd name ü 100%#x"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("a root")
    for table in NAMES:
        declare(made / "sales/shop", table, ["id"])
        put(made / "sales/shop", table, 1, {"id": [1]})
    MirroredDatabase(made / "sales/shop", engine="local").sync()
    return made


@pytest.fixture(scope="module")
def served(root: Path) -> Iterator[tuple[Running, str]]:
    reader = principals_of(root).add("reader", ["sales=read"])
    service = Running(root, file_locations=True)
    yield service, service.token(reader)
    service.stop()


def located(served: tuple[Running, str], schema: str, **headers: str) -> dict[str, str]:
    service, token = served
    path = f"{API}/tables?catalog_name=sales&schema_name={schema}"
    answer = service.send("GET", path, token=token, headers=headers)
    return {each["name"]: each["storage_location"] for each in json.loads(answer.body)["tables"]}


def test_a_client_on_this_machine_gets_the_path(served: tuple[Running, str], root: Path) -> None:
    found = located(served, "shop") | located(served, "shop%3Acrm")
    folders = {name: place(address) for name, address in found.items()}
    below = root / "sales/shop/Tables"
    assert folders == {name.rpartition(".")[2]: below / name.replace(".", "/") for name in NAMES}
    assert found["odd name ü 100%#x"].endswith("/a%20root0/sales/shop/Tables/odd%20name%20%C3%BC%20100%25%23x")
    one = served[0].send("GET", f"{API}/tables/sales.shop.orders", token=served[1])
    assert (
        json.loads(one.body)["storage_location"] == found["orders"] == f"file://{below / 'orders'}".replace(" ", "%20")
    )


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded"])
def test_a_client_behind_a_proxy_gets_the_storage_endpoint(served: tuple[Running, str], header: str) -> None:
    found = located(served, "shop", **{header: "for=127.0.0.1"})
    assert found and all(each.startswith("abfss://") for each in found.values())


@pytest.mark.parametrize(
    ("here", "there", "told"),
    [
        (("127.0.0.1", 1), ("127.0.0.1", 2), True), (("192.0.2.1", 1), ("192.0.2.1", 2), True),
        (("::1", 1, 0, 0), ("::1", 2, 0, 0), True), (("192.0.2.1", 1), ("192.0.2.7", 2), False),
        (("2001:db8::1", 1, 0, 0), ("2001:db8::7", 2, 0, 0), False), (None, None, False),
    ],
)  # fmt: skip
def test_which_client_is_of_this_machine(here: Any, there: Any, told: bool) -> None:
    transport = SimpleNamespace(get_extra_info={"sockname": here, "peername": there}.get)
    assert _is_of_this_machine(SimpleNamespace(transport=transport, headers={})) is told  # type: ignore[arg-type]


def test_a_client_that_has_gone_is_told_no_path() -> None:
    assert not _is_of_this_machine(SimpleNamespace(transport=None, headers={}))  # type: ignore[arg-type]


def test_a_store_has_no_paths(tmp_path: Path) -> None:
    words = ["serve", "s3://lake/mirrors", "--state", str(tmp_path / "state"), "--file-locations"]
    answer = CommandRunner().invoke(app, words)
    assert answer.exit_code == 2 and not (tmp_path / "state").exists()
    assert "service-option-invalid: --file-locations needs a folder on a disk, not s3://lake/mirrors" in answer.stderr
