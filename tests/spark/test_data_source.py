"""The data source `lakemirror`: Spark frames and streams into a landing zone, change rows out of it."""

from __future__ import annotations

import datetime as dt
import shutil
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


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """Nobody registers the format: Spark finds it."""
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
    assert sorted(row["id"] for row in published(tmp_path / "shop")) == [0, 1, 2]
    with pytest.raises(Exception, match="checkpointLocation"):
        stream(session, folder).writeStream.format("lakemirror").queryName("q").start(
            str(tmp_path / "shop/other")
        ).awaitTermination()


def restarted(session: SparkSession, tmp_path: Path, sink: str, rows: range, **options: str) -> None:
    """One run of a stream over `rows`, each a batch, by either sink; the checkpoint stays."""
    folder = tmp_path / "in"
    folder.mkdir(exist_ok=True)
    for number in rows:
        (folder / f"{number}.json").write_text(f'{{"id": {number}, "name": "a"}}\n')
    frame = session.readStream.schema("id long, name string").option("maxFilesPerTrigger", 1).json(str(folder))
    writer = frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    path = str(tmp_path / "shop/orders")
    if sink == "foreachBatch":
        writer.foreachBatch(
            publish_each_batch(path, "clicks", keys="id", mode="insert", **options)
        ).start().awaitTermination()
        return
    writer = writer.format("lakemirror").option("keys", "id").option("mode", "insert").options(**options)
    if sink == "query id":
        writer = writer.option("queryId", "clicks")
    writer.start(path).awaitTermination()


@pytest.mark.parametrize(
    "sink", ["data source", *(pytest.param(sink, marks=pytest.mark.full) for sink in ("foreachBatch", "query id"))]
)
def test_a_new_checkpoint_under_an_old_name(session: SparkSession, tmp_path: Path, sink: str) -> None:
    """With its checkpoint: nothing twice, nothing lost. Without: an error, and rows once a run is announced."""
    restarted(session, tmp_path, sink, range(2))
    last = max((tmp_path / "checkpoint/commits").glob("[0-9]*"))
    last.unlink()  # as if the process had died before Spark noted the end of the batch
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
    restarted(session, tmp_path, sink, range(2, 3))
    assert sorted(row["id"] for row in published(tmp_path / "shop")) == [0, 1, 2]
    shutil.rmtree(tmp_path / "checkpoint")
    with pytest.raises(Exception, match="of another run than batch 2"):
        restarted(session, tmp_path, sink, range(3, 4))
    assert sorted(row["id"] for row in published(tmp_path / "shop")) == [0, 1, 2]
    restarted(session, tmp_path, sink, range(3, 4), run="2")
    restarted(session, tmp_path, sink, range(4, 5), run="2")
    assert sorted(row["id"] for row in published(tmp_path / "shop")) == [0, 0, 1, 1, 2, 2, 3, 4]
    assert not list((tmp_path / "shop").rglob("_publishing-*"))


def test_a_new_checkpoint_after_one_batch(session: SparkSession, tmp_path: Path) -> None:
    """Batch 0 after batch 0: only the stream's id tells it from a repetition."""
    restarted(session, tmp_path, "foreachBatch", range(1))
    shutil.rmtree(tmp_path / "checkpoint")
    with pytest.raises(Exception, match="stream-restarted"):
        restarted(session, tmp_path, "foreachBatch", range(1))


@pytest.mark.parametrize(
    "zone", [*(pytest.param(zone, marks=pytest.mark.full) for zone in ("UTC", "Etc/UTC")), "Europe/Berlin"]
)
def test_times_are_read_in_any_zone_of_the_session(session: SparkSession, tmp_path: Path, zone: str) -> None:
    """Written by Spark itself in that zone, and by others in theirs."""
    path = str(tmp_path / "shop/orders")
    at = dt.datetime(2026, 7, 1, 9, tzinfo=dt.timezone.utc)
    local = at.replace(tzinfo=None)
    before = session.conf.get("spark.sql.session.timeZone")
    session.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = session.sql(
            "select 1L as id, timestamp_seconds(1782896400) as at, timestamp_ntz'2026-07-01 09:00' as n"
        )
        frame.write.format("lakemirror").option("keys", "id").mode("append").save(path)
        table = Landing(tmp_path / "shop").table("orders", zoneless="ntz")
        for number, kind in enumerate((pa.timestamp("ms", "Asia/Tokyo"), pa.timestamp("ns", "UTC")), start=2):
            table.upsert(pa.table({
                "id": [number], "at": pa.array([at], kind), "n": pa.array([local], pa.timestamp("s")),
                "count": pa.array([2**64 - 1], pa.uint64()), "small": pa.array([200], pa.uint8()),
            }))  # fmt: skip
        found = session.read.format("lakemirror").load(path)
        assert (found.schema["at"].dataType.typeName(), found.schema["n"].dataType.typeName()) == (
            "timestamp", "timestamp_ntz",
        )  # fmt: skip
        rows = found.selectExpr("id", "unix_seconds(at)", "cast(n as string)", "string(count)", "small").collect()
        assert sorted(tuple(row) for row in rows) == [
            (1, 1782896400, "2026-07-01 09:00:00", None, None),
            (2, 1782896400, "2026-07-01 09:00:00", str(2**64 - 1), 200),
            (3, 1782896400, "2026-07-01 09:00:00", str(2**64 - 1), 200),
        ]  # fmt: skip
        query = session.readStream.format("lakemirror").load(path).selectExpr("unix_seconds(at) as s").writeStream
        query.format("parquet").option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start(
            str(tmp_path / "out")
        ).awaitTermination()
        assert [row[0] for row in session.read.parquet(str(tmp_path / "out")).collect()] == [1782896400] * 3
    finally:
        session.conf.set("spark.sql.session.timeZone", before)


INNER = """
    select 1L as id, parse_json('{"a":[1.10,"é",null]}') as doc, interval '-1 02:03:04.5' day to second as pause,
    named_struct('d', parse_json('[1]'), 'p', interval '2' hour, 'n', 'x') as both,
    array(interval '3' day, null) as list, map('k', interval '1' minute) as held
"""
TEXTS = {
    "doc": '{"a":[1.10,"é",null]}', "pause": "P-1DT-2H-3M-4.5S", "both": '{"d":[1],"p":"PT2H","n":"x"}',
    "list": '["P3D",null]', "held": '{"k":"PT1M"}',
}  # fmt: skip


@pytest.mark.parametrize("way", ["data source", "foreachBatch", "frame"])
def test_values_in_an_inner_form_become_text(session: SparkSession, tmp_path: Path, way: str) -> None:
    """Once, a VARIANT was published as its bytes in base64, and an interval as microseconds."""
    path, frame = str(tmp_path / "shop/orders"), session.sql(INNER)
    if way == "data source":
        frame.write.format("lakemirror").mode("append").save(path)
    elif way == "foreachBatch":
        publish_each_batch(path, "q")(frame, 0)
    else:
        Landing(tmp_path / "shop").table("orders").insert(frame)
    (row,) = published(tmp_path / "shop")
    assert {name: row[name] for name in TEXTS} == TEXTS


def test_intervals_of_years_and_months(session: SparkSession, tmp_path: Path) -> None:
    """PySpark hands them to no writer; where the frame is at hand, they are made text before."""
    path = str(tmp_path / "shop/orders")
    frame = session.sql(
        "select interval '-1-2' year to month as y, interval '3' month as `m x`, cast(null as interval year) as n"
    )
    publish_each_batch(path, "q")(frame, 0)
    Landing(tmp_path / "shop").table("orders").insert(frame)
    assert [(row["y"], row["m x"], row["n"]) for row in published(tmp_path / "shop")] == [("P-1Y-2M", "P3M", None)] * 2
    with pytest.raises(Exception, match="column y is or holds an interval"):
        frame.write.format("lakemirror").mode("append").save(path)
    for inner in ("struct(y) as s", "make_interval(1) as s", "array(make_interval(1)) as s"):
        with pytest.raises(LakemirrorError, match="column s is or holds an interval"):
            publish_each_batch(path, "q")(frame.selectExpr(inner), 1)
    publish_each_batch(path, "q")(frame.selectExpr("struct(1 as interval, interval '1' day as a) as s"), 1)


def test_times_without_a_zone_are_said_and_set(session: SparkSession, tmp_path: Path) -> None:
    path, frame = str(tmp_path / "shop/orders"), session.sql("select 1L as id, timestamp_ntz'2026-07-01 09:00' as at")
    publish = publish_each_batch(path, "q")
    with pytest.warns(UserWarning, match="column at has times without a zone") as told:
        publish(frame, 0)
        publish(frame, 1)
    assert len([each for each in told if "without a zone" in str(each.message)]) == 1
    frame.write.format("lakemirror").option("zoneless", "Europe/Berlin").mode("append").save(path)
    publish_each_batch(path, "b", zoneless="Europe/Berlin")(frame, 0)
    at = dt.datetime(2026, 7, 1, 9)
    instant = at.replace(hour=7, tzinfo=dt.timezone.utc)
    assert [row["at"] for row in published(tmp_path / "shop")] == [at, at, instant, instant]


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
