"""The mirror as a streaming query: killed, started again, with and without its checkpoint."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from tests.databases import Database
from tests.spark.test_spark_engine import ROOT, VERSIONS, clean, connect_server, environment

import lakemirror.spark
from lakemirror import LakemirrorError, MirroredDatabase
from lakemirror.publisher import Landing
from lakemirror.spark import mirror_stream
from lakemirror.spark_session import java, jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

SCENARIO = Path(__file__).with_name("mirror_stream_scenario.py")


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    return Landing(tmp_path / "shop")


@pytest.fixture(autouse=True)
def no_query_stays(spark: SparkSession) -> Iterator[None]:
    yield
    for query in spark.streams.active:
        query.stop()


def ids(tmp_path: Path, table: str = "orders") -> list[int]:
    """Rows are only inserted: one that is applied twice is there twice."""
    return sorted(row[0] for row in Database(str(tmp_path / "shop"), {}).bag(table, ["id"]).elements())


def once(spark: SparkSession, tmp_path: Path, checkpoint: str = "checkpoint", **settings: Any) -> StreamingQuery:
    stream = lakemirror.spark.mirror(spark, tmp_path / "shop", **settings)
    query = stream.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def until(holds: Callable[[], bool], query: StreamingQuery) -> None:
    deadline = time.monotonic() + 100
    while not holds():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, query.lastProgress
        time.sleep(0.2)


def listening() -> Any:
    """A listener that keeps the ends of queries, and how many change files each batch brought."""
    from pyspark.sql.streaming import StreamingQueryListener

    class Listener(StreamingQueryListener):
        ended: ClassVar[list[str]] = []
        arrived: ClassVar[list[int]] = []

        def onQueryStarted(self, event: Any) -> None: ...

        def onQueryProgress(self, event: Any) -> None:
            self.arrived.append(event.progress.numInputRows)

        def onQueryIdle(self, event: Any) -> None: ...

        def onQueryTerminated(self, event: Any) -> None:
            self.ended.append(str(event.id))

    return Listener()


def test_each_start_is_a_pass(spark: SparkSession, landing: Landing, tmp_path: Path) -> None:
    """With its checkpoint, after a batch that Spark repeats, and with another checkpoint. A bad table stops alone."""
    orders, wrong = landing.table("orders"), landing.table("wrong")
    orders.insert([{"id": 1}])
    wrong.insert([{"id": 1}])
    query = once(spark, tmp_path)
    assert ids(tmp_path) == [1]
    assert [each["numInputRows"] for each in query.recentProgress] == [2]
    (tmp_path / "checkpoint/commits/0").unlink()  # as if the process had died before Spark noted the end of the batch
    (tmp_path / "checkpoint/commits/.0.crc").unlink()
    bad = wrong.folder / "00000000000000000002.parquet"
    bad.write_bytes(b"no Parquet file")
    os.utime(bad, (0, 0))
    orders.insert([{"id": 2}])
    once(spark, tmp_path)
    assert ids(tmp_path) == [1, 2]
    (failed,) = [each for each in MirroredDatabase(tmp_path / "shop").status().tables if each.error_code]
    assert (failed.table, failed.error_code) == ("wrong", "file-unreadable")
    orders.insert([{"id": 3}])
    once(spark, tmp_path, "another")
    assert ids(tmp_path) == [1, 2, 3]
    with pytest.raises(LakemirrorError, match="there is no folder"):
        lakemirror.spark.mirror(spark, tmp_path / "shops")
    with pytest.raises(LakemirrorError, match="engine"):
        lakemirror.spark.mirror(spark, tmp_path / "shop", engine="sparks")


def test_a_query_is_stopped_in_a_batch_and_goes_on(
    spark: SparkSession, landing: Landing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop ends the batch between two commits. Later, what arrives is applied, also tables that are new."""
    monkeypatch.setattr(mirror_stream, "_ASKED_EVERY", 0.0)
    orders = landing.table("orders")
    for number in range(150):
        orders.insert([{"id": number}])
    stream = lakemirror.spark.mirror(spark, tmp_path / "shop", batch_files=1)
    stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(processingTime="50 milliseconds")
    listener = listening()
    spark.streams.addListener(listener)
    query = stream.start()
    assert query.name == "lakemirror: shop"
    until(lambda: (tmp_path / "shop/Tables/orders/_delta_log").is_dir() and len(ids(tmp_path)) > 0, query)
    query.stop()
    applied = ids(tmp_path)
    assert 0 < len(applied) < 150
    query = stream.start()
    until(lambda: len(ids(tmp_path)) == 150, query)
    until(lambda: not query.status["isTriggerActive"], query)
    orders.insert([{"id": 150}])
    landing.table("customers", schema="sales").insert([{"id": 7}])
    until(lambda: (tmp_path / "shop/Tables/sales/customers/_delta_log").is_dir() and len(ids(tmp_path)) == 151, query)
    until(lambda: sum(listener.arrived) >= 2, query)  # a batch that is stopped before its end tells no progress
    query.stop()
    assert ids(tmp_path) == list(range(151))
    deadline = time.monotonic() + 100
    while len(listener.ended) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    spark.streams.removeListener(listener)
    assert len(listener.ended) == 2


KILLS = ("apply.before-commit", "apply.after-commit")


@pytest.mark.full
@pytest.mark.parametrize("way", ["classic", "connect"])
def test_a_query_is_killed_and_started_again(landing: Landing, tmp_path: Path, way: str) -> None:
    """Within the apply, before and after its commit; then without its checkpoint."""
    if way == "classic":
        killed_and_started(Path(sys.executable), landing, tmp_path)
        return
    with connect_server(Path(sys.executable), jvm.spark_home(), tmp_path) as address:
        killed_and_started(Path(sys.executable), landing, tmp_path, "--remote", address)


@pytest.mark.full
@pytest.mark.parametrize("version", list(VERSIONS))
def test_other_versions_of_pyspark(landing: Landing, tmp_path: Path, version: str) -> None:
    killed_and_started(environment(version), landing, tmp_path)


def killed_and_started(python: Path, landing: Landing, tmp_path: Path, *words: str) -> None:
    orders = landing.table("orders")

    def run(point: str = "") -> dict[str, Any]:
        command = [str(python), str(SCENARIO), str(tmp_path), *([point] if point else []), *words]
        variables = {**clean(), "PYTHONPATH": str(ROOT / "src"), "JAVA_HOME": str(java.find().home)}
        done = subprocess.run(
            command, env=variables, capture_output=True, text=True, timeout=600, check=False, cwd=tmp_path
        )
        if point and not words:
            assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
            return {"failed": "killed"}
        assert done.returncode == 0, done.stderr[-3000:]
        outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return outcome

    for number, point in enumerate(KILLS):
        orders.insert([{"id": 2 * number}])
        orders.insert([{"id": 2 * number + 1}])
        assert run(point)["failed"]
    shutil.rmtree(tmp_path / "checkpoint")
    orders.insert([{"id": 4}])
    assert not run()["failed"]
    assert ids(tmp_path) == list(range(5))
