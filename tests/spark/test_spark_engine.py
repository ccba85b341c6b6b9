"""The Spark engine in processes of its own, on every supported PySpark, classic and Connect; `test_classic_engine` has
what is tried in the session of the run.

The other versions get virtual environments of their own below the cache folder, which are made once.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from tests import own_cache
from tests.free_ports import free_port
from tests.landing import MARKER, declare, put

from lakemirror.settings.settings import Settings
from lakemirror.spark_session import jars, java, jvm

ROOT = Path(__file__).parents[2]
SCENARIO = Path(__file__).with_name("engine_scenario.py")
VERSIONS = {"3.5": "3.5.7", "4.0": "4.0.5", "4.1": "4.1.4", "4.3": "4.3.0"}
# of 3.5.8 and 3.5.9 no Connect jar is published
BESIDE = ("pyarrow", "numpy>=2", "pandas<3", "pyroaring", "setuptools", "typer<0.26", "click<9", "rich")
CONNECT = ("grpcio", "grpcio-status", "googleapis-common-protos", "zstandard")
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
PATIENCE = 1800.0  # of a machine with much else to do; none of these tests is about time


@pytest.mark.skipif(importlib.util.find_spec("grpc_status") is None, reason="pyspark[connect] is not installed")
@pytest.mark.parametrize("which", ["some", pytest.param("all", marks=pytest.mark.full)])
def test_connect(tmp_path: Path, which: str) -> None:
    """Jobs, some errors of tasks, and code for a server without lakemirror; `test_classic` has all cases."""
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
    """Runs `lakemirror sync --engine spark` with a cache that has no jar, and reads what it made."""
    database, cache = folder / "shop", folder / "cache"
    declare(database, "orders", ["id"])
    put(database, "orders", 1, {"id": [1, 2, 3], "name": ["a", "b", "c"], MARKER: pa.array([0, 0, 0], pa.int32())})
    put(database, "orders", 2, {"id": [1, 2], "name": ["x", None], MARKER: pa.array([4, 2], pa.int32())})
    own_cache.share_archives(cache)
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
    port = free_port()
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
