"""The shortest way through the service: a token, a database by REST, a file by hand, a Delta table."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
from running_service import Running, until

from lakemirror.delta.log import read_snapshot
from lakemirror.service.authority.principals import Issued


def test_a_file_put_by_hand_is_applied(running: Running, writer: Issued) -> None:
    token = running.token(writer)
    database = running.create(token, "shop", start=True)
    base = f"/v1/workspaces/sales/mirroredDatabases/{database}"
    until(lambda: running.send("POST", f"{base}/getMirroringStatus", token=token).json["status"] == "Running")
    folder = running.root / "sales/shop/Files/LandingZone/orders"
    folder.mkdir()
    (folder / "_metadata.json").write_text('{"keyColumns": ["id"]}')
    pq.write_table(pa.table({"id": [1, 2]}), folder / "new.tmp")
    (folder / "new.tmp").rename(folder / f"{1:020}.parquet")

    def replicated() -> bool:
        rows = running.send("POST", f"{base}/getTablesMirroringStatus", token=token).json["data"]
        return bool(rows) and rows[0]["metrics"]["processedRows"] == 2 and rows[0]["status"] == "Replicating"

    until(replicated)
    assert read_snapshot(str(running.root / "sales/shop/Tables/orders")).version >= 0
