"""The data source `lakemirror`: Spark frames and streams into a landing zone, change rows out of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing
from lakemirror.publisher.spark_batches import publish_each_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

source = pytest.importorskip("lakemirror.publisher.spark", reason="PySpark 4.0 or newer is not installed")


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    source.register(spark)
    return spark


def published(db: Path, table: str = "orders") -> list[dict[str, Any]]:
    files = sorted((db / "Files/LandingZone" / table).glob("0*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def test_a_frame_is_published(session: SparkSession, tmp_path: Path) -> None:
    frame = session.range(100).selectExpr("id", "cast(id as decimal(10,2)) as price", "current_timestamp() as at")
    frame.write.format("lakemirror").option("keys", "id").mode("append").save(str(tmp_path / "shop/orders"))
    rows = published(tmp_path / "shop")
    assert sorted(row["id"] for row in rows) == list(range(100))
    assert {row["__rowMarker__"] for row in rows} == {4}
    assert Landing(tmp_path / "shop").table("orders").keys == ("id",)
    session.createDataFrame([(1, 2), (200, 0)], "id long, __rowMarker__ int").write.format("lakemirror").mode(
        "append"
    ).save(f"file:{tmp_path}/shop/Files/LandingZone/orders")
    assert {(row["id"], row["__rowMarker__"]) for row in published(tmp_path / "shop")[100:]} == {(1, 2), (200, 0)}
    session.createDataFrame([(5, 9)], "id long, what int").write.format("lakemirror").option("mode", "delete").mode(
        "append"
    ).save(str(tmp_path / "shop/orders"))
    assert published(tmp_path / "shop")[-1] == {"id": 5, "__rowMarker__": 2}
    session.range(1).write.format("lakemirror").mode("append").save(str(tmp_path / "shop/sales.customers"))
    assert len(published(tmp_path / "shop", "sales.schema/customers")) == 1


def test_what_cannot_be_published_says_why(session: SparkSession, tmp_path: Path) -> None:
    writer = session.range(3).write.format("lakemirror").option("keys", "id")
    with pytest.raises(Exception, match="mode overwrite"):
        writer.mode("overwrite").save(str(tmp_path / "shop/orders"))
    marked = session.createDataFrame([(1, 9)], "id long, __rowMarker__ int").coalesce(1)
    with pytest.raises(Exception, match="row-marker-invalid"):
        marked.write.format("lakemirror").option("keys", "id").mode("append").save(str(tmp_path / "shop/orders"))
    assert published(tmp_path / "shop") == []
    assert not list((tmp_path / "shop").rglob("_publishing-*"))


def stream(session: SparkSession, folder: Path) -> DataFrame:
    return session.readStream.schema("id long, name string").json(str(folder))


def test_a_stream_is_published_exactly_once(session: SparkSession, tmp_path: Path) -> None:
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.json").write_text(f'{{"id": {number}, "name": "a"}}\n')

        def run() -> None:
            query = (
                stream(session, folder).writeStream.format("lakemirror").option("keys", "id").option("mode", "insert")
                .option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
                .start(str(tmp_path / "shop/orders"))
            )  # fmt: skip
            query.awaitTermination()

        run()
        # as if Spark had stopped between the commit here and its own
        (checkpoint / "commits" / str(number)).unlink()
        (checkpoint / "commits" / f".{number}.crc").unlink(missing_ok=True)
        run()
    assert [row["id"] for row in published(tmp_path / "shop")] == [0, 1, 2]
    with pytest.raises(Exception, match="checkpointLocation"):
        stream(session, folder).writeStream.format("lakemirror").queryName("q").start(
            str(tmp_path / "shop/other")
        ).awaitTermination()


def test_each_batch_by_foreach_batch(session: SparkSession, tmp_path: Path) -> None:
    publish = publish_each_batch(str(tmp_path / "shop/orders"), "clicks", keys="id")
    frame = session.range(20).repartition(2)
    publish(frame, 0)
    publish(frame, 0)
    publish(session.range(20, 25), 1)
    assert sorted(row["id"] for row in published(tmp_path / "shop")) == list(range(25))


def test_change_rows_are_read_as_a_stream(session: SparkSession, tmp_path: Path) -> None:
    table = Landing(tmp_path / "shop").table("orders", ["id"])
    table.insert(pa.table({"id": [1, 2], "name": ["a", "b"]}))
    table.delete([{"id": 1}])
    path = str(tmp_path / "shop/orders")
    batch = session.read.format("lakemirror").load(path)
    assert sorted((row["__file__"][15:20], row["__row__"], row["id"], row["name"]) for row in batch.collect()) == [
        ("00001", 0, 1, "a"), ("00001", 1, 2, "b"), ("00002", 0, 1, None),
    ]  # fmt: skip
    assert batch.columns == ["id", "name", "__rowMarker__", "__file__", "__row__"]

    def run() -> list[tuple[Any, ...]]:
        query = (
            session.readStream.format("lakemirror").load(path).writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )  # fmt: skip
        query.awaitTermination()
        found = session.read.parquet(str(tmp_path / "out"))
        return sorted(tuple(row) for row in found.select("__file__", "__row__", "id", "__rowMarker__").collect())

    first = [("00000000000000000001.parquet", 0, 1, 0), ("00000000000000000001.parquet", 1, 2, 0),
             ("00000000000000000002.parquet", 0, 1, 2)]  # fmt: skip
    assert run() == first
    table.upsert([{"id": 3, "name": "c"}])
    (table.folder / "_ProcessedFiles").mkdir()
    moved = table.folder / "00000000000000000002.parquet"
    moved.rename(table.folder / "_ProcessedFiles" / moved.name)
    assert run() == [*first, ("00000000000000000003.parquet", 0, 3, 4)]


def test_a_spark_frame_is_rows(session: SparkSession, tmp_path: Path) -> None:
    table = Landing(tmp_path / "shop").table("orders", ["id"])
    table.upsert(session.range(3))
    assert sorted(row["id"] for row in published(tmp_path / "shop")) == [0, 1, 2]
    with pytest.raises(LakemirrorError, match="streaming frame"):
        table.upsert(session.readStream.format("rate").load())


def test_rows_of_pyspark_4_0_become_batches(tmp_path: Path) -> None:
    """PySpark 4.0 gives rows to a writer, later versions give Arrow batches."""
    from pyspark.sql import Row
    from pyspark.sql import types as T

    schema = T.StructType([T.StructField("id", T.LongType()), T.StructField("price", T.DecimalType(10, 2))])
    rows = [Row(id=1, price=None), Row(id=2, price=None)]
    target = source.Target.of({"path": str(tmp_path / "shop/orders"), "keys": "id"})
    target.open().opened()
    message = source._Files(target, schema).write(iter(rows))
    assert message.prepared.rows == 2
    assert source._Files(target, schema).write(iter([])).prepared is None
