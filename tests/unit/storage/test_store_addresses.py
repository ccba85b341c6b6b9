"""Addresses of stores, their options, and places: no request is sent."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from lakemirror.cli.options import _give_storage_options
from lakemirror.errors import LakemirrorError
from lakemirror.storage import connections
from lakemirror.storage.addresses import is_store_address, parse_address
from lakemirror.storage.place import place
from lakemirror.storage.store_path import StorePath


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    connections.forget_all()


@pytest.mark.parametrize(
    ("address", "root", "key"),
    [
        ("s3://lake/shop", "s3://lake", "shop"),
        ("s3a://lake/shop/", "s3://lake", "shop"),
        ("S3://lake", "s3://lake", ""),
        ("gs://lake/a%20b/c", "gs://lake", "a%20b/c"),
        ("abfss://c@account.dfs.core.windows.net/shop", "abfss://c@account.dfs.core.windows.net", "shop"),
        ("az://container/ünï x", "az://container", "ünï x"),
    ],
)
def test_addresses_are_taken_as_written(address: str, root: str, key: str) -> None:
    assert is_store_address(address)
    assert parse_address(address) == (root, key)


@pytest.mark.parametrize("text", ["shop", "/data/s3/shop", "file:///data/shop", "https://host/shop", "s3:/lake/shop"])
def test_other_texts_are_none(text: str) -> None:
    assert not is_store_address(text)
    assert not isinstance(place(text), StorePath)


def test_places_have_the_names_of_paths() -> None:
    found = place("s3://lake/shop") / "Tables/orders" / "part-0.c000.parquet"
    local = Path("/lake/shop/Tables/orders/part-0.c000.parquet")
    assert found.name == local.name
    assert str(found.parent) == "s3://lake/shop/Tables/orders"
    top = found.parent.parent.parent
    assert [str(top), str(top.parent), str(top.parent.parent)] == ["s3://lake/shop", "s3://lake", "s3://lake"]


def test_a_missing_library_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(LakemirrorError) as raised:
        connections.store_at("s3://lake")
    assert raised.value.code == "stores-extra-missing"


def test_a_wrong_option_is_named_and_its_value_is_not() -> None:
    pytest.importorskip("obstore")
    connections.give_options("s3://lake", {"AWS_NO_SUCH_OPTION": "a-secret"})
    with pytest.raises(LakemirrorError) as raised:
        connections.store_at("s3://lake")
    assert raised.value.code == "setting-invalid"
    assert "a-secret" not in str(raised.value)
    assert "aws_no_such_option" in raised.value.message


def test_an_option_may_be_named_alone_and_has_the_value_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_options", {})
    monkeypatch.setenv("AWS_REGION", "here")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    _give_storage_options(["AWS_REGION", "AWS_ACCESS_KEY_ID=a=b"])
    assert connections.given_options() == {"": {"aws_region": "here", "aws_access_key_id": "a=b"}}
    for wrong in ("AWS_ENDPOINT_URL", "=value", ""):
        with pytest.raises(typer.BadParameter):
            _give_storage_options([wrong])
