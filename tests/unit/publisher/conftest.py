"""A PostgreSQL of the tests' own."""

from __future__ import annotations

import getpass
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin")) if Path("/usr/lib/postgresql").is_dir() else []


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a PostgreSQL of its own on loopback; it does not run as root."""
    if not BINARIES or not shutil.which(str(BINARIES[-1] / "initdb")):
        pytest.skip("PostgreSQL is not installed")
    pytest.importorskip("adbc_driver_postgresql")
    user = getpass.getuser()
    as_user: dict[str, Any] = {}
    if os.geteuid() == 0:
        user = "postgres"
        try:
            pwd.getpwnam(user)
        except KeyError:
            pytest.skip("no user postgres to run it")
        as_user = {"user": user}
    # not below pytest's own folder, which each run of pytest closes to other users
    folder = Path(tempfile.mkdtemp(prefix="lakemirror-postgres-"))
    shutil.chown(folder, user)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    data, binaries = folder / "data", BINARIES[-1]
    subprocess.run(
        [binaries / "initdb", "-D", data, "-A", "trust", "-U", "shop", "--no-sync"],
        check=True, capture_output=True, cwd=folder, **as_user,
    )  # fmt: skip
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off"
    control = [binaries / "pg_ctl", "-D", data, "-w", "-l", folder / "log"]
    subprocess.run([*control, "-o", options, "start"], check=True, capture_output=True, cwd=folder, **as_user)
    try:
        yield f"postgresql://shop@127.0.0.1:{port}/postgres"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], check=False, capture_output=True, cwd=folder, **as_user)
        shutil.rmtree(folder, ignore_errors=True)
