"""A Spark cluster for tests: quick to start, with a Connect server on loopback if one is wanted."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.standalone import ONE_HOST, PATIENCE, Cluster, cluster

from lakemirror.spark_session import jvm
from tests.free_ports import free_port

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"


@contextmanager
def quick_cluster(folder: Path, hosts: Sequence[str] = ONE_HOST) -> Iterator[Cluster]:
    """A master, and a worker on each of `hosts`, that run while the block does."""
    with cluster(folder, java_options=QUICK, hosts=hosts) as started:
        yield started


def start_connect(cluster: Cluster, options: dict[str, str]) -> str:
    """The address of a Connect server whose executors are on the cluster."""
    port = free_port()
    options = {
        "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
        "spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port),
        "spark.pyspark.python": sys.executable, "spark.driver.extraJavaOptions": QUICK, **options,
    }  # fmt: skip
    words = [word for key, value in options.items() for word in ("--conf", f"{key}={value}")]
    submit = [str(jvm.spark_home() / "bin" / "spark-submit"), "--master", cluster.master, *words]
    cluster.launch("Connect", [*submit, "--class", _CONNECT, "spark-internal"], says="(Spark Connect server started)")
    return f"sc://127.0.0.1:{port}"


__all__ = ["PATIENCE", "QUICK", "Cluster", "quick_cluster", "start_connect"]
