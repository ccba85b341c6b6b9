"""Other programs read a mirrored table from the bucket where it is: delta-rs and DuckDB."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.databases import Database
from tests.landing import MARKER
from tests.object_stores import StoreServer, for_delta_rs

from lakemirror.errors import LakemirrorError
from lakemirror.readers.table_query import Query, tables_to_query
from lakemirror.storage import connections
from lakemirror.storage.connections import give_options


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
    if table.address.startswith("az://"):
        pytest.skip("delta-rs finds no log on Azurite, with its endpoint")
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
    if table.address.startswith("az://"):
        pytest.skip("DuckDB's extension for Azure is not at hand")
    duckdb = pytest.importorskip("duckdb")
    extensions = [pytest.importorskip(f"duckdb_extension_{name}") for name in ("httpfs", "delta")]
    session = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for each in extensions:
        session.execute(f"load '{next(Path(each.__file__).parent.rglob('*.duckdb_extension'))}'")
    if table.address.startswith("gs://"):  # by keys of the kind that S3 has, which the server does not check
        key = json.loads(table.options["GOOGLE_SERVICE_ACCOUNT_KEY"])
        kind, endpoint, words = "gcs", key["gcs_base_url"], ("any", "any")
    else:
        kind, endpoint = "s3", table.options["AWS_ENDPOINT_URL"]
        words = table.options["AWS_ACCESS_KEY_ID"], table.options["AWS_SECRET_ACCESS_KEY"]
    session.execute(
        f"create secret (type {kind}, key_id '{words[0]}', secret '{words[1]}', region 'us-east-1', "
        f"endpoint '{endpoint.removeprefix('http://')}', use_ssl false, url_style 'path')"
    )
    rows = session.execute(f"select id, v from delta_scan('{table.table('orders')}') order by id").fetchall()
    assert rows == [(1, "a"), (2, "B")]


def test_a_query_reads_the_tables_on_s3(table: Database) -> None:
    pytest.importorskip("duckdb_extension_delta")
    give_options(table.address, table.options)
    tables = tables_to_query(table.address)
    if not table.address.startswith("s3://"):
        with pytest.raises(LakemirrorError, match="not in this store"):
            Query(tables)
        return
    with Query(tables, table.options) as query:
        assert "2 │ B" in query.text("select id, v from orders order by id")
