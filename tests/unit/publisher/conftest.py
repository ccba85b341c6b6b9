"""A PostgreSQL of the tests' own, and the two doors to a landing zone: a local folder, a service's endpoint."""

from __future__ import annotations

import getpass
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakemirror.publisher.folders.endpoint_folder import EndpointFolder

sys.path.insert(0, str(Path(__file__).parent))

from doors import Doors, folder_of

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


@pytest.fixture(scope="session")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    found = Doors(tmp_path_factory.mktemp("endpoint"))
    yield found
    found.server.close()


@pytest.fixture(scope="module", params=["local", "endpoint"])
def door(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs a module's tests twice: `Landing(folder)` is the folder, then the same folder behind an endpoint."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "endpoint":
            found: Doors = request.getfixturevalue("doors")
            patch.setattr(request.module, "Landing", found.landing)

            def local(self: EndpointFolder) -> Path:
                return folder_of(self._endpoint.database) / self._folder

            patch.setattr(EndpointFolder, "path", property(local))
        yield request.param


LONG = ("test_a_number_of_another_run_is_never_taken", "test_stopped_anywhere")  # of test_publisher_batches


def pytest_itemcollected(item: pytest.Item) -> None:
    """Of what takes long, `make test` runs the local door alone."""
    if "endpoint" in item.name and item.path.parent == Path(__file__).parent:
        long = ("snapshot", "crash", "sql", "sql_types", "types", "files", "text")
        generated = getattr(getattr(item, "function", None), "is_hypothesis_test", False)
        is_long = item.path.stem.removeprefix("test_publisher_") in long or item.name.startswith(LONG)
        if is_long or generated or "race" in item.name:
            item.add_marker(pytest.mark.full)
