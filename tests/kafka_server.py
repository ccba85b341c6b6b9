"""A Kafka broker for tests: one process in KRaft mode, on loopback, from the jars in the folder `KAFKA_JARS`.

mvn dependency:copy-dependencies of org.apache.kafka:kafka_2.13 and an slf4j binding ─▶ KAFKA_JARS=that folder
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.free_ports import free_port

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"


@contextlib.contextmanager
def kafka_broker() -> Iterator[str]:
    """The address of a broker; it ends with the process of the tests. Skips where there are no jars."""
    jars = os.environ.get("KAFKA_JARS", "")
    if not jars:
        pytest.skip("KAFKA_JARS names no folder with the jars of a broker")
    with tempfile.TemporaryDirectory(prefix="lakemirror-kafka-") as folder:
        port, controller = free_port(), free_port()
        config = Path(folder) / "server.properties"
        config.write_text(
            f"process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n"
            f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n"
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}\ncontroller.listener.names=CONTROLLER\n"
            f"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\nlog.dirs={folder}/logs\n"
            "offsets.topic.replication.factor=1\ntransaction.state.log.replication.factor=1\n"
            "transaction.state.log.min.isr=1\nnum.partitions=3\nauto.create.topics.enable=true\n"
        )
        java = ["java", "-Xmx384m", "-XX:+UseSerialGC", "-cp", f"{jars}/*"]
        subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(config)],
            check=True, capture_output=True, timeout=60,
        )  # fmt: skip
        server = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *java, "kafka.Kafka", str(config)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            _wait_for(port, server)
            yield f"127.0.0.1:{port}"
        finally:
            server.kill()
            server.wait()


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 90
    while True:
        assert server.poll() is None, "the broker ended"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        assert time.monotonic() < end, "the broker does not answer"
        time.sleep(0.1)


__all__ = ["kafka_broker"]
