"""Streams into a folder, a bucket and a service: killed within a batch, started again, with a new checkpoint."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.databases import Database
from tests.object_stores import StoreServer, moto

import lakemirror.spark
from lakemirror.errors import LakemirrorError
from lakemirror.publisher.spark_batches import publish_each_batch
from lakemirror.storage import connections

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

source = pytest.importorskip("lakemirror.publisher.spark", reason="PySpark 4.0 or newer is not installed")


@dataclass
class Place:
    """A database as Spark's writers name it, and as a mirror reads it."""

    address: str
    database: Database
    options: dict[str, str] = field(default_factory=dict)

    def ids(self) -> list[int]:
        """What a mirror makes of the change files: rows that are only inserted, so a repeated one is there twice."""
        self.database.sync()
        return sorted(row[0] for row in self.database.bag("orders", ["id"]).elements())


@pytest.fixture(scope="module")
def s3() -> Iterator[StoreServer]:
    pytest.importorskip("moto")
    with moto() as server:
        yield server


@pytest.fixture(params=["bucket", *(pytest.param(kind, marks=pytest.mark.full) for kind in ("folder", "service"))])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "folder":
        yield Place(str(tmp_path / "shop"), Database(str(tmp_path / "shop"), {}))
    elif request.param == "bucket":
        server: StoreServer = request.getfixturevalue("s3")
        address = f"{server.bucket()}/shop"
        (tmp_path / "store.json").write_text(json.dumps(server.options))
        yield Place(address, Database(address, server.options), {"credential": str(tmp_path / "store.json")})
        connections.forget_all()
    else:
        yield from service(tmp_path)


def service(tmp_path: Path) -> Iterator[Place]:
    sys.path.insert(0, str(Path(__file__).parents[1] / "service"))
    from running_service import Running

    from lakemirror.service.auth.principals import Principals

    root = tmp_path / "root"
    root.mkdir()
    issued = Principals(root).add("shop", ["sales=contribute"])
    running = Running(root)
    try:
        running.create(running.token(issued), "shop")
        (zone,) = root.glob("**/Files/LandingZone")
        (tmp_path / "shop.json").write_text(json.dumps(issued.shown()))
        options = {"credential": str(tmp_path / "shop.json"), "ca": str(running.ca)}
        yield Place(f"{running.url}/sales/shop", Database(str(zone.parents[1]), {}), options)
    finally:
        running.stop()


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    source.register(spark)
    spark.dataSource.register(killed_source())
    return spark


def killed_source() -> type[Any]:
    """The format `killed`: as `lakemirror`, but the process that commits is killed at the failpoint that `at` names.

    Made here, so that it travels to Spark's Python workers by value.
    """

    class Killed(source.LakemirrorSource):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return "killed"

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            writer = source.LakemirrorSource.streamWriter(self, schema, overwrite)
            commit, point = writer.commit, self.options["at"]

            def killed(messages: Any, batch: int) -> None:
                os.environ["LAKEMIRROR_FAILPOINT"] = point
                commit(messages, batch)

            writer.commit = killed
            return writer

    return Killed


def rows(session: SparkSession, folder: Path, numbers: range) -> DataFrame:
    """A stream of four rows for each number, in two partitions, each of which has rows."""
    for number in numbers:
        frame = session.range(10 * number, 10 * number + 4, numPartitions=2)
        frame.write.mode("append").parquet(str(folder / "in"))
    stream = session.readStream.schema("id long").parquet(str(folder / "in"))
    return stream.repartition(2)


def run(frame: DataFrame, folder: Path, place: Place, form: str = "lakemirror", **options: str) -> None:
    writer = frame.writeStream.format(form).option("checkpointLocation", str(folder / "checkpoint"))
    writer = writer.option("mode", "insert").option("queryId", "clicks").options(**place.options, **options)
    writer.trigger(availableNow=True).start(f"{place.address}/orders").awaitTermination()


def test_a_stream_is_killed_and_goes_on(session: SparkSession, tmp_path: Path, place: Place) -> None:
    """With its checkpoint: nothing twice, nothing lost. With a new one: an error, and rows once a run is announced."""
    before = [10 * number + row for number in range(3) for row in range(4)]
    run(rows(session, tmp_path, range(1)), tmp_path, place)
    stream = rows(session, tmp_path, range(1, 2))
    for point in ("batch.planned", "publish.after-link", "batch.file-published"):
        with pytest.raises(Exception, match="exited unexpectedly"):
            run(stream, tmp_path, place, "killed", at=point)
    run(rows(session, tmp_path, range(2, 3)), tmp_path, place)
    assert place.ids() == before
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.rmtree(tmp_path / "in")
    with pytest.raises(Exception, match="stream-restarted"):
        run(rows(session, tmp_path, range(3, 4)), tmp_path, place)
    assert place.ids() == before
    run(rows(session, tmp_path, range(0)), tmp_path, place, run="2")
    assert place.ids() == [*before, 30, 31, 32, 33]


def test_frames_and_batches_are_published_and_read(session: SparkSession, tmp_path: Path, place: Place) -> None:
    """Executors write the files, the driver numbers them; what is refused leaves nothing."""
    path = f"{place.address}/orders"
    publish = publish_each_batch(path, "clicks", mode="insert", **place.options)
    for number in (0, 1, 1):
        publish(session.range(10 * number, 10 * number + 4).repartition(2), number)
    frame = session.range(20, 22, numPartitions=2)
    frame.write.format("lakemirror").options(mode="insert", **place.options).mode("append").save(path)
    wanted = [0, 1, 2, 3, 10, 11, 12, 13, 20, 21]
    read = session.read.format("lakemirror").options(**place.options).load(path)
    assert sorted(row.id for row in read.collect()) == wanted
    folder = f"{place.address}/Files/LandingZone/orders"
    assert session.read.format("lakemirror").options(**place.options).load(folder).count() == len(wanted)
    assert place.ids() == wanted
    marked = session.range(1, 3, numPartitions=2).selectExpr("id", "int(id * 4) as __rowMarker__")
    with pytest.raises(LakemirrorError, match="the marker 8"):
        publish_each_batch(f"{place.address}/sales.refused", "q", **place.options)(marked, 0)
    assert not [name for name in place.database.files("Files") if "refused" in name or "_publishing-" in name]
    assert not [*Path(place.database.address).glob("Files/LandingZone/sales*")], "nor a folder, of a disk or a service"


def test_a_stream_reads_from_anywhere(session: SparkSession, tmp_path: Path, place: Place) -> None:
    path = f"{place.address}/orders"
    publish = publish_each_batch(path, "clicks", mode="insert", **place.options)
    for number in (0, 1):
        publish(session.range(number, number + 1), number)
        frame = session.readStream.format("lakemirror").options(**place.options).load(path).select("id")
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()
        assert sorted(row.id for row in session.read.parquet(str(tmp_path / "out")).collect()) == [*range(number + 1)]


def test_a_database_anywhere_is_mirrored_by_a_query(session: SparkSession, tmp_path: Path, place: Place) -> None:
    """A folder and a bucket; a service mirrors by itself."""
    if place.address.startswith("https://"):
        pytest.skip("a service mirrors its databases by itself")
    checkpoint = str(tmp_path / "checkpoint")
    publish = publish_each_batch(f"{place.address}/orders", "clicks", mode="insert", **place.options)
    for number in (0, 1):
        publish(session.range(number, number + 1), number)
        stream = lakemirror.spark.mirror(session, place.address, **place.options).trigger(availableNow=True)
        query = stream.option("checkpointLocation", checkpoint).start()
        query.awaitTermination()
        found = place.database.bag("orders", ["id"]).elements()
        assert sorted(row[0] for row in found) == [*range(number + 1)]
        assert query.lastProgress["numInputRows"] == number + 1
