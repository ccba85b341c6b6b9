"""A session of another program whose workers run a Python without pyarrow: found at once, and mended in local mode."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import lakemirror
from lakemirror.spark_session import java

SCRIPT = """
import json, sys
from pyspark.sql import SparkSession
from lakemirror import MirroredDatabase
from lakemirror.publisher import Landing
from lakemirror.spark_session import python_workers

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
session = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
session.sparkContext.setLogLevel("OFF")
table = Landing("shop").table("orders", ["id"])
table.upsert([{"id": 1}])
was, python_workers.is_local = python_workers.is_local, lambda _: False  # as on a cluster

def sync():
    found = MirroredDatabase("shop", spark=session, engine="spark", spark_from_bytes=1).sync().failed
    return [[error.code, error.message, error.hint] for error in found.values()]

def jobs():
    return len(session.sparkContext.statusTracker().getJobIdsForGroup())

first, after = sync(), jobs()
again, last = sync(), jobs()
python_workers.is_local = was
python_workers._answers.clear()
mended = sync()
print(json.dumps([first, again, after, last, mended, session.sparkContext.pythonExec]))
"""


def test_workers_without_pyarrow(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    bare = str(tmp_path / "bare/bin/python")
    environment = {
        **os.environ, "PYSPARK_PYTHON": bare, "PYTHONPATH": str(Path(lakemirror.__file__).parents[1]),
        "JAVA_HOME": str(java.find().home), "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=1800, check=False,
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    first, again, after, last, mended, python = json.loads(done.stdout.splitlines()[-1])
    ((code, message, hint),) = first
    assert (code, after) == ("spark-workers", 1), "one small job"
    assert f"run {bare} (Python {sys.version.split()[0]}), which lacks pyarrow and numpy" in message
    assert f"PYSPARK_PYTHON={sys.executable}" in hint and f"{bare} -m pip install pyarrow numpy" in hint
    assert (again, last) == (first, after), "remembered: no further job"
    assert (mended, python) == ([], bare), "in local mode tasks run on this interpreter; the session is as it was"
    assert list((tmp_path / "shop/Tables/orders").glob("*.parquet"))
