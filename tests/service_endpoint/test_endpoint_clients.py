"""Programs made for the vendor's storage, unmodified, against the endpoint."""

from __future__ import annotations

import json
from typing import Any

import deltalake
import obstore
import pyarrow as pa
import pytest
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceModifiedError, ResourceNotFoundError
from azure.storage.blob import BlobBlock, BlobServiceClient, ContainerClient
from azure.storage.filedatalake import DataLakeServiceClient, FileSystemClient
from endpoint_double import ACCOUNT_KEY, EndpointServer
from obstore.store import AzureStore

from lakemirror.storage.connections import given_options

ZONE = "sales.MirroredDatabase/Files/LandingZone"
KEY = {"account_name": "loader", "account_key": ACCOUNT_KEY}


@pytest.fixture(params=["", "/loader"], ids=["root", "account"])
def lake(request: pytest.FixtureRequest, endpoint: EndpointServer) -> FileSystemClient:
    return DataLakeServiceClient(endpoint.url + request.param, credential=KEY, retry_total=0).get_file_system_client(
        "ws"
    )


@pytest.fixture
def container(endpoint: EndpointServer) -> ContainerClient:
    small = {"max_single_put_size": 1 << 20, "max_block_size": 1 << 20}
    return BlobServiceClient(endpoint.url, credential=KEY, retry_total=0, **small).get_container_client("ws")


@pytest.fixture
def store(endpoint: EndpointServer) -> AzureStore:
    return AzureStore("ws", endpoint=endpoint.url, **options())


def options() -> dict[str, Any]:
    return {
        "account_name": "onelake",
        "bearer_token": "loader",
        "client_options": {"allow_http": True},
        "retry_config": {"max_retries": 0},
    }


def test_datalake_sdk(lake: FileSystemClient, endpoint: EndpointServer) -> None:
    folder = lake.get_directory_client(f"{ZONE}/t")
    assert not folder.exists()
    folder.create_directory()
    assert folder.exists() and folder.get_directory_properties().name
    file = folder.create_file("_metadata.json")
    file.append_data(b'{"keyColumns":', 0)
    file.append_data(b'["id"]}', 14)
    file.flush_data(21)
    assert json.loads((endpoint.landing_zone / "t" / "_metadata.json").read_bytes()) == {"keyColumns": ["id"]}
    temporary = folder.get_file_client("_tmp.parquet")
    temporary.upload_data(b"x" * 300_000, overwrite=True)
    with pytest.raises((ResourceExistsError, ResourceModifiedError)):
        temporary.upload_data(b"y", overwrite=False)
    assert temporary.get_file_properties().size == 300_000
    renamed = temporary.rename_file(f"ws/{ZONE}/t/00000000000000000001.parquet")
    assert renamed.download_file().readall() == b"x" * 300_000
    assert renamed.download_file(offset=5, length=10).readall() == b"x" * 10
    assert not temporary.exists()
    names = [path.name for path in lake.get_paths(f"{ZONE}/t")]
    assert names == [f"{ZONE}/t/00000000000000000001.parquet", f"{ZONE}/t/_metadata.json"]
    pages = [[path.name for path in page] for page in lake.get_paths(f"{ZONE}/t", max_results=1).by_page()]
    assert pages == [[name] for name in names]
    etag = renamed.get_file_properties().etag
    renamed.upload_data(b"z", overwrite=True, etag=etag, match_condition=MatchConditions.IfNotModified)
    with pytest.raises(ResourceModifiedError):
        renamed.delete_file(etag=etag, match_condition=MatchConditions.IfNotModified)
    renamed.delete_file()
    folder.rename_directory(f"ws/{ZONE}/u")
    assert (endpoint.landing_zone / "u" / "_metadata.json").exists()
    lake.get_directory_client(f"{ZONE}/u").delete_directory()
    assert not (endpoint.landing_zone / "u").exists()
    with pytest.raises(ResourceNotFoundError):
        renamed.get_file_properties()
    assert lake.exists()
    with pytest.raises(HttpResponseError, match=r"AuthorizationPermissionMismatch"):
        lake.delete_file_system()
    assert lake.get_directory_client(ZONE).get_access_control()["permissions"]


def test_a_deep_path_as_file_system(endpoint: EndpointServer) -> None:
    """The vendor's mirroring SDK: the landing zone is its file system; the rename source is an absolute URL."""
    service = DataLakeServiceClient(endpoint.url, credential=KEY, retry_total=0)
    zone = service.get_file_system_client(f"ws/{ZONE}")
    folder = zone.get_directory_client("dbo.schema/orders")
    folder.create_directory()
    file = folder.create_file("_00000000000000000001.parquet")
    file.append_data(b"rows", offset=0, length=4)
    file.flush_data(4)
    assert [path.name for path in zone.get_paths("dbo.schema", recursive=False)] == [f"{ZONE}/dbo.schema/orders"]
    assert [path.name for path in zone.get_paths(recursive=False)] == [f"{ZONE}/dbo.schema"]


def test_blob_sdk(container: ContainerClient, endpoint: EndpointServer) -> None:
    blob = container.get_blob_client(f"{ZONE}/t/a.parquet")
    blob.upload_blob(b"abc", overwrite=False)
    with pytest.raises(ResourceExistsError):
        blob.upload_blob(b"other", overwrite=False)
    assert blob.download_blob().readall() == b"abc"
    assert blob.download_blob(offset=1, length=1).readall() == b"b"
    blocks = container.get_blob_client(f"{ZONE}/t/b.parquet")
    for name, data in (("1", b"one"), ("2", b"two"), ("3", b"dropped")):
        blocks.stage_block(name, data, validate_content=True)
    assert not blocks.exists()
    assert [each.size for each in blocks.get_block_list("all")[1]] == [3, 3, 7]
    blocks.commit_block_list([BlobBlock("2"), BlobBlock("1")])
    assert (endpoint.landing_zone / "t" / "b.parquet").read_bytes() == b"twoone"
    large = container.get_blob_client(f"{ZONE}/t/large")
    large.upload_blob(bytes(9 << 20), max_concurrency=2, overwrite=True)
    names = [each.name for each in container.list_blobs(f"{ZONE}/t")]
    assert names == [f"{ZONE}/t", f"{ZONE}/t/a.parquet", f"{ZONE}/t/b.parquet", f"{ZONE}/t/large"]
    assert [each.name for each in container.walk_blobs(f"{ZONE}/")] == [f"{ZONE}/t/"]
    pages = list(container.list_blobs(f"{ZONE}/t/", results_per_page=2).by_page())
    assert [[each.name.rpartition("/")[2] for each in page] for page in pages] == [
        ["a.parquet", "b.parquet"],
        ["large"],
    ]
    copied = container.get_blob_client(f"{ZONE}/t/c.parquet")
    assert copied.start_copy_from_url(blob.url)["copy_status"] == "success"
    assert copied.download_blob().readall() == b"abc"
    with pytest.raises(ResourceNotFoundError):
        copied.start_copy_from_url(blob.url + "x")
    answers = list(container.delete_blobs(blob.blob_name, "no/such", copied.blob_name, raise_on_any_failure=False))
    assert [each.status_code for each in answers] == [202, 404, 202]
    blocks.delete_blob()
    assert container.exists()
    assert container.get_account_information()["account_kind"] == "StorageV2"
    assert [each.name for each in BlobServiceClient(endpoint.url, credential=KEY, retry_total=0).list_containers()] == [
        "ws"
    ]


def test_obstore(store: AzureStore) -> None:
    obstore.put(store, f"{ZONE}/t/a", b"abc")
    with pytest.raises(Exception, match="lready"):
        obstore.put(store, f"{ZONE}/t/a", b"x", mode="create")
    etag = obstore.head(store, f"{ZONE}/t/a")["e_tag"]
    obstore.put(store, f"{ZONE}/t/a", b"abcd", mode={"e_tag": etag})
    with pytest.raises(Exception, match=r"ConditionNotMet|recondition"):
        obstore.put(store, f"{ZONE}/t/a", b"abcd", mode={"e_tag": etag})
    obstore.put(store, f"{ZONE}/t/b", b"b" * (11 << 20))
    assert bytes(obstore.get_range(store, f"{ZONE}/t/b", start=10, length=3)) == b"bbb"
    obstore.copy(store, f"{ZONE}/t/a", f"{ZONE}/t/c")
    obstore.rename(store, f"{ZONE}/t/c", f"{ZONE}/t/d")
    listed = [each["path"].rpartition("/")[2] for page in obstore.list(store, f"{ZONE}/t") for each in page]
    assert listed == ["a", "b", "d"]
    listed = [each["path"] for page in obstore.list(store, f"{ZONE}/t", offset=f"{ZONE}/t/a") for each in page]
    assert listed == [f"{ZONE}/t/b", f"{ZONE}/t/d"]
    assert list(obstore.list_with_delimiter(store, ZONE)["common_prefixes"]) == [f"{ZONE}/t"]
    obstore.delete(store, [f"{ZONE}/t/a", f"{ZONE}/t/b", f"{ZONE}/t/d"])
    assert [each for page in obstore.list(store, ZONE) for each in page] == []


def test_delta_rs_reads_tables(endpoint: EndpointServer) -> None:
    table = endpoint.database / "Tables" / "orders"
    of_store = given_options().get("", {})
    deltalake.write_deltalake(str(table), pa.table({"id": [1, 2]}), storage_options=of_store)
    deltalake.write_deltalake(str(table), pa.table({"id": [3]}), mode="append", storage_options=of_store)
    address = "abfss://ws@onelake.dfs.fabric.microsoft.com/sales/Tables/orders"
    options = {
        "endpoint": endpoint.url,
        "account_name": "onelake",
        "bearer_token": "reader",
        "allow_http": "true",
        "max_retries": "0",
    }
    read = deltalake.DeltaTable(
        address.replace("abfss://ws@onelake.dfs.fabric.microsoft.com", "az://ws"), storage_options=options
    )
    assert sorted(read.to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3]
    with pytest.raises(Exception, match=r"AuthorizationPermissionMismatch|403|orbidden"):
        deltalake.write_deltalake(
            "az://ws/sales/Tables/orders", pa.table({"id": [4]}), mode="append", storage_options=options
        )
