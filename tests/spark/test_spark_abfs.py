"""Spark's own ABFS driver (hadoop-azure, by its coordinates) as a publisher and as a reader of a running service."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="the extra `service` is not installed")
sys.path.insert(0, str(Path(__file__).parents[1] / "service"))

from running_service import Running

from lakemirror.service.auth.principals import Principals
from lakemirror.settings.settings import Settings
from lakemirror.spark_session import jars, java

ACCOUNT = "publisher.dfs.core.windows.net"
SESSION = """
import json, sys, time
from pyspark.sql import SparkSession

given = json.loads(sys.argv[1])
builder = SparkSession.builder.master("local[1]")
for name, value in given["options"].items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
"""
SCRIPT = """
account = given["account"]
base = f"abfss://sales@{account}/abfs.MirroredDatabase"
zone = base + "/Files/LandingZone"
Path = spark._jvm.org.apache.hadoop.fs.Path
files = Path(base).getFileSystem(spark._jsc.hadoopConfiguration())
found = {}

rows = [(1, "Seattle"), (2, "Austin")], [(2, "Houston", 1), (3, "Miami", 4)]
columns = "id int, city string", "id int, city string, __rowMarker__ int"
files.mkdirs(Path(zone + "/orders"))
metadata = files.create(Path(zone + "/orders/_metadata.json"))
metadata.write(bytearray(b'{"keyColumns": ["id"]}'))
metadata.close()
for number in (1, 2):
    frame = spark.createDataFrame(rows[number - 1], columns[number - 1])
    frame.coalesce(1).write.mode("overwrite").parquet(zone + "/_made")
    (made,) = [each.getPath() for each in files.globStatus(Path(zone + "/_made/part-*.parquet"))]
    assert files.rename(made, Path(zone + f"/orders/{number:020d}.parquet"))
    assert not files.exists(made)
assert files.delete(Path(zone + "/_made"), True) and not files.exists(Path(zone + "/_made"))

until = time.monotonic() + 60
while True:
    try:
        read = sorted(tuple(row) for row in spark.read.format("delta").load(base + "/Tables/orders").collect())
    except Exception as error:
        read = str(error)
    if read == [(1, "Seattle"), (2, "Houston"), (3, "Miami")] or time.monotonic() > until:
        break
    time.sleep(0.5)
found["read"] = read

note = Path(zone + "/orders/_note")
out = files.create(note)
out.write(bytearray(b"abc"))
out.hflush()
out.write(bytearray(b"def"))
out.close()
out = files.append(note)
out.write(bytearray(b"ghi"))
out.close()
found["note"] = [files.getFileStatus(note).getLen(), bytes(files.open(note).readAllBytes()).decode()]
found["listed"] = [each.getPath().getName() for each in files.listStatus(Path(zone + "/orders"))]
try:
    files.create(Path(base + "/Tables/orders/mine")).close()
    found["refused"] = ""
except Exception as error:
    found["refused"] = str(error)
found["missing"] = files.delete(Path(zone + "/nothing"), True)
print("FOUND " + json.dumps(found))
spark.stop()
"""


@pytest.mark.full
@pytest.mark.parametrize("library", ["APACHE_HTTP_CLIENT", "JDK_HTTP_URL_CONNECTION"])
def test_spark_publishes_and_reads_by_its_abfs_driver(library: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    issued = Principals(root).add("publisher", ["sales=contribute"])
    running = Running(root)
    try:
        running.create(running.token(issued), "abfs", start=True)
        azure = {
            f"account.auth.type.{ACCOUNT}": "OAuth",
            f"account.oauth.provider.type.{ACCOUNT}": "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider",
            f"account.oauth2.client.endpoint.{ACCOUNT}": f"{running.url}/adfs/oauth2/token",
            f"account.oauth2.client.id.{ACCOUNT}": issued.principal.client_id,
            f"account.oauth2.client.secret.{ACCOUNT}": issued.client_secret,
            "abfs.endpoint": running.url.partition("//")[2],
            "networking.library": library,
        }
        found = run(tmp_path, SCRIPT, running, azure, account=ACCOUNT)
    finally:
        running.stop()
    assert found["read"] == [[1, "Seattle"], [2, "Houston"], [3, "Miami"]]
    assert found["note"] == [9, "abcdefghi"]
    assert {"00000000000000000002.parquet", "_metadata.json", "_note"} <= set(found["listed"])
    assert "AuthorizationPermissionMismatch" in found["refused"] and found["missing"] is False


def hadoop_azure() -> str:
    """The coordinates of the driver that belongs to the Hadoop that pyspark brings."""
    spark = importlib.util.find_spec("pyspark")
    assert spark is not None and spark.origin is not None
    (client,) = Path(spark.origin).with_name("jars").glob("hadoop-client-api-*.jar")
    return f"org.apache.hadoop:hadoop-azure:{client.stem.removeprefix('hadoop-client-api-')}"


def trust_of(authority: Path, folder: Path) -> Path:
    """A store of trust for Java with this authority."""
    trust = folder / "trust.p12"
    keytool = java.find().home / "bin/keytool"
    words = ["-importcert", "-noprompt", "-alias", "lakemirror", "-file", authority, "-keystore", trust]
    subprocess.run([keytool, *words, "-storepass", "changeit"], check=True, capture_output=True, timeout=60)
    return trust


def run(
    folder: Path, text: str, running: Running, azure: Mapping[str, str], more: Mapping[str, str] = MappingProxyType({}),
    **given: str,
) -> Any:  # fmt: skip
    """What a script finds in a session that knows the driver and the service's certificate. `azure`: the driver's
    options. `more`: the session's. Skips where the driver cannot be had."""
    trust = f"-Djavax.net.ssl.trustStore={trust_of(running.ca, folder)} -Djavax.net.ssl.trustStorePassword=changeit"
    jar_files = [str(path) for path in jars.ensure(Settings().with_environment())]
    options = {
        "spark.ui.enabled": "false", "spark.driver.memory": "512m", "spark.driver.extraJavaOptions": trust,
        "spark.jars.packages": hadoop_azure(), "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.hadoop.fs.azure.io.retry.max.retries": "1", **more,
        **{f"spark.hadoop.fs.azure.{name}": value for name, value in azure.items()},
        "spark.jars": ",".join([*jar_files, *filter(None, [more.get("spark.jars")])]),
    }  # fmt: skip
    script = folder / "script.py"
    script.write_text(SESSION + text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script, json.dumps({**given, "options": options})], capture_output=True, text=True,
        timeout=600, check=False, env={**os.environ, "PYSPARK_PYTHON": sys.executable}, cwd=folder,
    )  # fmt: skip
    if "unresolved dependency" in done.stderr or "UNRESOLVED DEPENDENCIES" in done.stderr + done.stdout:
        pytest.skip("hadoop-azure cannot be had: no Maven repository answers")
    answers = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert done.returncode == 0 and answers, done.stdout[-3000:] + done.stderr[-6000:]
    return json.loads(answers[0].removeprefix("FOUND "))
