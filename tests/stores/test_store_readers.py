"""Other programs read a mirrored table from the bucket where it is: delta-rs and DuckDB."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.databases import Database
from tests.landing import MARKER
from tests.object_stores import StoreServer, for_delta_rs

from lakemirror.storage import connections


@pytest.fixture
def table(server: StoreServer) -> Database:
    database = Database(f"{server.bucket()}/shop", server.options)
    database.declare("orders", ["id"])
    database.put("orders", 1, {"id": [1, 2, 3], "v": ["a", "b", "c"]})
    database.put("orders", 2, {"id": [2, 3], "v": ["B", None], MARKER: [1, 2]})
    database.sync(batch_files=1)
    connections.forget_all()
    return database


def test_delta_rs_reads_and_writes_beside_us(table: Database) -> None:
    deltalake = pytest.importorskip("deltalake")
    found = deltalake.DeltaTable(table.table("orders"), storage_options=for_delta_rs(table.options))
    rows = deltalake.QueryBuilder().register("t", found).execute("select * from t order by id")
    import pyarrow as pa

    assert pa.table(rows).to_pylist() == [{"id": 1, "v": "a"}, {"id": 2, "v": "B"}]
    before = table.version("orders")
    deltalake.write_deltalake(found, pa.table({"id": [9], "v": ["z"]}), mode="append")
    table.put("orders", 3, {"id": [9], "v": ["Z"], MARKER: [1]})
    table.sync()
    assert table.version("orders") == before + 2
    assert sorted(table.bag("orders")) == [(1, "a"), (2, "B"), (9, "Z")]


def test_duckdb_reads(table: Database) -> None:
    if not table.address.startswith("s3://"):
        pytest.skip("DuckDB's extension reads Azure and Google Cloud Storage at their own addresses alone")
    duckdb = pytest.importorskip("duckdb")
    extensions = [pytest.importorskip(f"duckdb_extension_{name}") for name in ("httpfs", "delta")]
    session = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for each in extensions:
        session.execute(f"load '{next(Path(each.__file__).parent.rglob('*.duckdb_extension'))}'")
    options = table.options
    session.execute(
        "create secret (type s3, key_id $id, secret $secret, region 'us-east-1', endpoint $endpoint, use_ssl false, "
        "url_style 'path')"
        .replace("$id", repr(options["AWS_ACCESS_KEY_ID"]))
        .replace("$secret", repr(options["AWS_SECRET_ACCESS_KEY"]))
        .replace("$endpoint", repr(options["AWS_ENDPOINT_URL"].removeprefix("http://")))
    )  # fmt: skip
    rows = session.execute(f"select id, v from delta_scan('{table.table('orders')}') order by id").fetchall()
    assert rows == [(1, "a"), (2, "B")]
