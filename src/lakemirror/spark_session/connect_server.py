"""Whether a session is one of Spark Connect, and whether somebody listens at the address of a server.

PySpark retries the first request to a server for more than ten minutes, in silence.
"""

from __future__ import annotations

import os
import socket
from typing import Any
from urllib.parse import urlsplit
from urllib.request import proxy_bypass

from lakemirror.errors import SetupError

_PORT = 15002  # where the address names none
_SECONDS = 5.0
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")  # through which gRPC connects


def is_remote(session: Any) -> bool:
    """True for a session of Spark Connect."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def check_listens(address: str) -> None:
    """SetupError `spark-failed` if nobody accepts a connection at `sc://host:port` within a few seconds.

    Nothing is checked where gRPC goes through a proxy, or the address has another form: PySpark then says what is
    wrong.
    """
    try:
        found = urlsplit(address)
        host, port = found.hostname, found.port or _PORT
    except ValueError:
        return
    if found.scheme != "sc" or host is None:
        return
    if any(os.environ.get(name) for name in _PROXIES) and not proxy_bypass(host):
        return
    try:
        socket.create_connection((host, port), _SECONDS).close()
    except OSError as error:
        raise SetupError(
            "spark-failed",
            f"no Spark Connect server answers at {host}:{port}: {error.strerror or error}",
            hint="Start the server, or fix its address: --master, spark_remote or SPARK_REMOTE.",
        ) from error
