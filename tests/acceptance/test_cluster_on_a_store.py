"""A Spark cluster mirrors a database in a bucket, by classic Spark and by Connect, and a worker is killed meanwhile.

Driver, Connect server and workers share no folder, and only the driver is given the options of the store.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.databases import Database
from tests.landing import MARKER
from tests.model import ModelTable
from tests.object_stores import SECRET, StoreServer, minio, minio_binary, moto
from tests.spark_cluster import PATIENCE, QUICK, Cluster, quick_cluster, start_connect

from lakemirror.storage import connections

FILES = 24


@pytest.fixture
def store() -> Iterator[StoreServer]:
    """MinIO, or moto where there is none."""
    if not minio_binary():
        pytest.importorskip("moto")
    with minio(minio_binary()) if minio_binary() else moto() as server:
        yield server
    connections.forget_all()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with quick_cluster(tmp_path / "cluster") as started:
        yield started


@pytest.mark.full
@pytest.mark.parametrize("way", ["classic", "connect"])
def test_a_cluster_mirrors_a_bucket_while_a_worker_is_killed(
    store: StoreServer, cluster: Cluster, tmp_path: Path, way: str
) -> None:
    if way == "connect":
        pytest.importorskip("grpc_status")
    events = tmp_path / "events"
    events.mkdir()
    logged = {
        "spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri(), "spark.eventLog.compress": "false",
        "spark.executor.extraJavaOptions": QUICK,
    }  # fmt: skip
    database = Database(f"{store.bucket()}/shop", store.options)
    model = published(database)
    if way == "connect":
        words = ["--spark-remote", start_connect(cluster, logged)]
    else:
        options = {**logged, "spark.pyspark.python": sys.executable}
        words = ["--master", cluster.master, *(f"--spark={key}={value}" for key, value in options.items())]
    words += [f"--storage={key}" for key in database.options]  # their values are in the environment of the driver
    driver = subprocess.Popen(
        [sys.executable, "-m", "lakemirror.cli", "sync", database.address, "--engine", "spark", "-v", *words],
        env={
            **cluster.environment, "PYTHONPATH": os.environ.get("PYTHONPATH", ""), "LAKEMIRROR_BATCH_FILES": "2",
            "LAKEMIRROR_SPARK_FROM_BYTES": "1",  # tasks do everything
            **database.options,
        },
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + PATIENCE
    while commits(database) < 3 and driver.poll() is None and time.monotonic() < deadline:
        time.sleep(0.2)
    assert driver.poll() is None, driver.communicate()
    assert commits(database) < FILES // 2, "it was through before a worker could be killed"
    cluster.kill_a_worker()
    out, err = driver.communicate(timeout=400)
    assert driver.returncode == 0, (out, err)
    assert database.bag("orders") == model.bag()
    assert commits(database) == FILES // 2
    cluster.stop()
    told = {"the driver": out + err}
    told |= {str(path): path.read_text(errors="replace") for path in tmp_path.rglob("*") if is_log(path)}
    assert any("InArrow" in text for name, text in told.items() if name.startswith(str(events))), "plans are in the log"
    assert any(name.endswith("stderr") for name in told)
    assert [name for name, text in told.items() if SECRET in text] == []


def published(database: Database) -> ModelTable:
    """A table's change files in the landing zone, and what the table must hold."""
    chance, model = random.Random(3), ModelTable(["id"])
    database.declare("orders", ["id"])
    for number in range(1, FILES + 1):
        rows = {"id": [chance.randrange(300) for _ in range(60)], "v": [f"{number}-{place}" for place in range(60)]}
        markers = [chance.choice([2, 4, 4]) for _ in range(60)]
        database.put("orders", number, {**rows, MARKER: markers})
        model.apply(rows, [(m, {"id": rows["id"][n], "v": rows["v"][n]}) for n, m in enumerate(markers)])
    return model


def commits(database: Database) -> int:
    return sum(path.endswith(".json") for path in database.files("Tables/orders/_delta_log"))


def is_log(path: Path) -> bool:
    """True for what Spark's processes print, and for the events with plans and settings."""
    return path.is_file() and (path.suffix == ".log" or path.name in ("stdout", "stderr") or "events" in path.parts)
