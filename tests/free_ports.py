"""Ports for servers that cannot say which one they got."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOCKS = (Path(tempfile.gettempdir()) / f"lakemirror-ports-{os.getuid()}").open("ab")
"""Byte N is locked by the process that took port N, until it ends."""
_own: set[int] = set()


def free_port() -> int:
    """A port on loopback that no other process of the tests has or gets.

    The system hands out the ports of its own range to whoever asks for any, also between this call and the start of
    the server; so this one is below that range.
    """
    first = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768
    for port in random.SystemRandom().sample(range(max(1_025, first - 20_000), first), 1_000):
        with socket.socket() as found:
            try:
                found.bind(("127.0.0.1", port))
                fcntl.lockf(_LOCKS, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            except OSError:
                continue
        if port not in _own:
            _own.add(port)
            return port
    raise AssertionError("no port is free")


__all__ = ["free_port"]
