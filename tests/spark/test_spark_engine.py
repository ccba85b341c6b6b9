"""The Spark engine does what the local one does, on every supported PySpark, classic and Connect.

The other versions get virtual environments of their own below the cache folder, which are made once.
"""

from __future__ import annotations

import importlib.util
import json
import operator
import os
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest
from tests.change_tables import expected, held, marked
from tests.landing import MARKER, declare, put
from tests.spark.engine_scenario import differences
from tests.table_rows import table_rows

from lakemirror.api import MirroredDatabase
from lakemirror.errors import LakemirrorError
from lakemirror.settings.settings import Settings
from lakemirror.spark_session import jars, java, jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
SCENARIO = Path(__file__).with_name("engine_scenario.py")
VERSIONS = {"3.5": "3.5.7", "4.0": "4.0.5", "4.1": "4.1.4", "4.3": "4.3.0"}
# of 3.5.8 and 3.5.9 no Connect jar is published
BESIDE = ("pyarrow", "numpy>=2", "pandas<3", "pyroaring", "setuptools", "typer<0.26", "click<9", "rich")
CONNECT = ("grpcio", "grpcio-status", "googleapis-common-protos", "zstandard")
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
PATIENCE = 1800.0  # of a machine with much else to do; none of these tests is about time


@pytest.mark.parametrize("which", ["fewer", pytest.param("all", marks=pytest.mark.full)])
def test_classic(spark: SparkSession, tmp_path: Path, which: str) -> None:
    assert differences(spark, tmp_path, which) == []


def test_a_table_of_changes_by_tasks(spark: SparkSession, tmp_path: Path) -> None:
    """Every change once, by tasks and by few rows in the driver; a bad row ends the batch in both tables."""
    declare(tmp_path, "t", ["id"], lakemirror={"history": "changes"})
    rows = list(range(3000))
    put(tmp_path, "t", 1, marked([4] * 3000, id=rows, v=[str(row % 7) for row in rows]))
    partial = pa.array([["v"] if row % 2 else None for row in rows])
    put(tmp_path, "t", 2, marked([1] * 3000, id=rows, v=["x"] * 3000).append_column("__unchangedColumns__", partial))
    for few in (1, 0):
        result = MirroredDatabase(tmp_path, engine="spark", spark_from_bytes=few, spark=spark, batch_files=1).sync()
        assert not result.failed, result.failed
        assert held(tmp_path, "t__changes") == expected(tmp_path, "t")
        if few:
            put(tmp_path, "t", 3, marked([2, 4], id=[1, 2], v=[None, "y"]))
    assert table_rows(tmp_path, "t")[(2, "y")] == 1 and sum(table_rows(tmp_path, "t").values()) == 2999
    before = held(tmp_path, "t__changes")
    put(tmp_path, "t", 4, marked([7], id=[1], v=["z"]))
    assert MirroredDatabase(tmp_path, engine="spark", spark_from_bytes=1, spark=spark).sync().failed
    assert held(tmp_path, "t__changes") == before


def test_a_job_that_fails_has_a_code(spark: SparkSession, tmp_path: Path) -> None:
    from lakemirror.engines.spark.jobs import Jobs, Stage

    with pytest.raises(LakemirrorError, match=r"orders: fail: .*ZeroDivisionError: ") as caught:
        Jobs(spark).run("orders: fail", Stage(operator.truediv, 1, [0]))
    assert caught.value.code == "spark-job-failed" and caught.value.retry


def test_a_constraint_that_a_user_put_on_the_table(spark: SparkSession, tmp_path: Path) -> None:
    """Spark evaluates it, as it does for its own writes: false and NULL break it. `local` says why it cannot."""
    database = MirroredDatabase(tmp_path, spark=spark)
    declare(tmp_path, "orders", ["id"])
    put(tmp_path, "orders", 1, {"id": [1, 2], "n": [5, 6]})
    assert database.sync().failed == {}
    table = f"delta.`{tmp_path / 'Tables' / 'orders'}`"
    spark.sql(f"ALTER TABLE {table} ADD CONSTRAINT small CHECK (n < 10)")
    put(tmp_path, "orders", 2, {"id": [1, 2, 3], "n": [7, None, 8], MARKER: pa.array([4, 2, 4], pa.int32())})
    told = MirroredDatabase(tmp_path, engine="local").sync().failed
    assert [error.code for error in told.values()] == ["spark-needed"]
    assert database.sync().failed == {}
    assert sorted(tuple(row) for row in spark.sql(f"SELECT id, n FROM {table}").collect()) == [(1, 7), (3, 8)]
    put(tmp_path, "orders", 3, {"id": [4, 5], "n": [9, None], MARKER: pa.array([4, 4], pa.int32())})
    (error,) = database.sync().failed.values()
    assert (error.code, error.row) == ("constraint-violated", 2)
    with pytest.raises(Exception, match=r"(?i)check constraint"):
        spark.sql(f"INSERT INTO {table} VALUES (5, NULL)")


def test_jobs_name_table_and_step(spark: SparkSession, tmp_path: Path) -> None:
    from lakemirror.engines.spark.jobs import Jobs

    with Jobs(spark).described("lakemirror: sales/orders: read keys"):
        assert spark.sparkContext.getLocalProperty("spark.job.description") == "lakemirror: sales/orders: read keys"
    assert spark.sparkContext.getLocalProperty("spark.job.description") is None


@pytest.mark.skipif(importlib.util.find_spec("grpc_status") is None, reason="pyspark[connect] is not installed")
@pytest.mark.parametrize("which", ["some", pytest.param("all", marks=pytest.mark.full)])
def test_connect(tmp_path: Path, which: str) -> None:
    """Jobs, errors of tasks, and code for a server without lakemirror; `test_classic` has all cases."""
    with connect_server(Path(sys.executable), jvm.spark_home(), tmp_path) as address:
        assert outcome(Path(sys.executable), tmp_path / "t", address, which) == []
        synced(Path(sys.executable), tmp_path, "--spark-remote", address)


def test_sync_by_spark_fetches_no_jar(tmp_path: Path) -> None:
    synced(Path(sys.executable), tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("way", ["classic", "connect"])
@pytest.mark.parametrize("version", list(VERSIONS))
def test_other_versions(version: str, way: str, tmp_path: Path) -> None:
    python = environment(version)
    if way == "classic":
        assert outcome(python, tmp_path / "t") == []
        synced(python, tmp_path)
        return
    home = python.parents[1] / "lib" / f"python3.{sys.version_info.minor}" / "site-packages" / "pyspark"
    packages = f"org.apache.spark:spark-connect_2.12:{VERSIONS[version]}" if version == "3.5" else ""
    with connect_server(python, home, tmp_path, packages) as address:
        assert outcome(python, tmp_path / "t", address) == []
        synced(python, tmp_path, "--spark-remote", address)


def synced(python: Path, folder: Path, *words: str) -> None:
    """Runs `lakemirror sync --engine spark` with an empty cache, and reads what it made."""
    database, cache = folder / "shop", folder / "cache"
    declare(database, "orders", ["id"])
    put(database, "orders", 1, {"id": [1, 2, 3], "name": ["a", "b", "c"], MARKER: pa.array([0, 0, 0], pa.int32())})
    put(database, "orders", 2, {"id": [1, 2], "name": ["x", None], MARKER: pa.array([4, 2], pa.int32())})
    command = [str(python), "-m", "lakemirror.cli", "sync", str(database), "--engine", "spark", *words]
    environment = {**clean(), "PYTHONPATH": str(ROOT / "src"), "LAKEMIRROR_CACHE_DIR": str(cache),
                   "LAKEMIRROR_SPARK_FROM_BYTES": "1"}  # fmt: skip
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=folder
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    rows = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(database / "Tables" / "orders")))
    found = pa.table(rows.execute("select id, name from t order by id").read_all())
    assert found.to_pylist() == [{"id": 1, "name": "x"}, {"id": 3, "name": "c"}]
    assert not list(cache.rglob("*.jar"))


def outcome(python: Path, folder: Path, *words: str) -> Any:
    """What the scenario prints in a process of its own."""
    folder.mkdir()
    done = subprocess.run(
        [str(python), str(SCENARIO), str(folder), *words], env={**clean(), "PYTHONPATH": str(ROOT / "src")},
        capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def connect_server(
    python: Path, home: Path, folder: Path, packages: str = "", more: Mapping[str, str] | None = None
) -> Iterator[str]:
    """The address of a Connect server of this Spark. Its Python does not have lakemirror on its path.

    `more`: options.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {
        "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
        "spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port),
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": "2", **(more or {}),
    }  # fmt: skip
    words = [word for key, value in options.items() for word in ("--conf", f"{key}={value}")]
    words += ["--packages", packages] if packages else []
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]", *words, "--class", SERVER, "spark-internal"]
    places = {"SPARK_HOME": str(home), "PYSPARK_PYTHON": str(python), "JAVA_HOME": str(java.find().home)}
    log = folder / "server.log"
    with log.open("wb") as file:
        server = subprocess.Popen(command, env={**clean(), **places}, stdout=file, stderr=subprocess.STDOUT, cwd=folder)
    try:
        deadline = time.monotonic() + PATIENCE
        while "Spark Connect server started" not in log.read_text(errors="replace"):
            told = log.read_text(errors="replace")
            if packages and "unresolved dependency" in told:
                pytest.skip(f"{packages} cannot be fetched here")
            assert server.poll() is None and time.monotonic() < deadline, told[-3000:]
            time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(60)


def environment(version: str) -> Path:
    """The Python of a virtual environment with this PySpark, made where there is none yet."""
    place = jars.cache_folder(Settings().with_environment()) / "environments" / f"pyspark-{VERSIONS[version]}"
    python = place / "bin" / "python"
    if (place / ".complete").exists():
        return python
    venv.create(place, with_pip=True, clear=True)
    wanted = [f"pyspark=={VERSIONS[version]}", *BESIDE, *CONNECT]
    done = subprocess.run(
        [str(python), "-m", "pip", "install", "--quiet", *wanted], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"PySpark {VERSIONS[version]} cannot be installed here: {done.stderr.strip()[-300:]}")
    (place / ".complete").touch()
    return python


def clean() -> dict[str, str]:
    """The environment without what would change Spark or the path of modules."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("PYTHONPATH", "SPARK_", "PYSPARK_"))}
