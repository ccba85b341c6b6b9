"""The shortest way through the service: a token, a database by REST, a file by hand, a Delta table."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from azure.identity import ClientSecretCredential
from azure.storage.filedatalake import DataLakeServiceClient
from running_service import Running, until
from tests.databases import parquet

from lakemirror.delta.log import read_snapshot
from lakemirror.service.auth.principals import Issued


def test_a_file_put_by_hand_is_applied(running: Running, writer: Issued) -> None:
    token = running.token(writer)
    database = running.create(token, "shop", start=True)
    base = f"/v1/workspaces/sales/mirroredDatabases/{database}"
    until(lambda: running.send("POST", f"{base}/getMirroringStatus", token=token).json["status"] == "Running")
    folder = running.root / "sales/shop/Files/LandingZone/orders"
    folder.mkdir()
    (folder / "_metadata.json").write_text('{"keyColumns": ["id"]}')
    (folder / "new.tmp").write_bytes(parquet({"id": [1, 2]}))
    (folder / "new.tmp").rename(folder / f"{1:020}.parquet")

    def replicated() -> bool:
        rows = running.send("POST", f"{base}/getTablesMirroringStatus", token=token).json["data"]
        return bool(rows) and rows[0]["metrics"]["processedRows"] == 2 and rows[0]["status"] == "Replicating"

    until(replicated)
    assert read_snapshot(str(running.root / "sales/shop/Tables/orders")).version >= 0


def test_a_publisher_with_the_vendors_libraries(
    running: Running, writer: Issued, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(running.ca))
    token = running.token(writer)
    database = running.create(token, "cloud", start=True)
    credential = ClientSecretCredential(
        "adfs", writer.principal.client_id, writer.client_secret, authority=running.url,
        disable_instance_discovery=True,
    )  # fmt: skip
    service = DataLakeServiceClient(running.url, credential=credential)
    zone = service.get_file_system_client("sales").get_directory_client(f"{database}/Files/LandingZone/orders")
    zone.create_directory()
    zone.get_file_client("_metadata.json").upload_data(b'{"keyColumns": ["id"]}', overwrite=True)
    data = io.BytesIO()
    pq.write_table(pa.table({"id": [1, 2, 3]}), data)
    zone.get_file_client("_new.parquet").upload_data(data.getvalue(), overwrite=True)
    zone.get_file_client("_new.parquet").rename_file(f"sales/{database}/Files/LandingZone/orders/{1:020}.parquet")
    path = f"/v1/workspaces/sales/mirroredDatabases/{database}/getTablesMirroringStatus"

    def replicated() -> bool:
        rows = running.send("POST", path, token=token).json["data"]
        return bool(rows) and rows[0]["metrics"]["processedRows"] == 3

    until(replicated)
    table = service.get_file_system_client("sales").get_directory_client(f"{database}/Tables/orders/_delta_log")
    assert table.exists()
    uploaded = running.service._metrics._uploaded.labels("sales", "cloud")._value.get()
    assert uploaded == len(data.getvalue()) + len(b'{"keyColumns": ["id"]}')
