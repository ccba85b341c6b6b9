"""A MariaDB of the tests' own on loopback, whose binary log can be followed.

It runs as another user where the tests run as root, and ends with the process of the tests, however that ends. Where
no server is installed its tests are skipped, and the summary says so.
"""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_PLACES = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/bin"))
PROGRAM = shutil.which("mariadbd", path=_PLACES)
INSTALL = shutil.which("mariadb-install-db", path=_PLACES)
NOT_INSTALLED = "MariaDB is not installed; as root: scripts/install.sh mariadb"
USER = "root"
LOGGED = ("--log-bin=binlog", "--binlog-format=ROW", "--binlog-row-metadata=FULL", "--server-id=1")


class MariaDb:
    """One server. `port` stays the same from start to start; `options` are those of its start."""

    def __init__(self, *options: str) -> None:
        assert PROGRAM is not None and INSTALL is not None
        self._options = options or LOGGED
        self._as_user: list[str] = []
        # not below pytest's own folder, which each run of pytest closes to other users
        self.folder = Path(tempfile.mkdtemp(prefix="lakemirror-mariadb-"))
        if os.geteuid() == 0:
            found = pwd.getpwnam("nobody")
            self._as_user = ["setpriv", f"--reuid={found.pw_uid}", f"--regid={found.pw_gid}", "--clear-groups"]
            shutil.chown(self.folder, found.pw_uid, found.pw_gid)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        made = [*self._as_user, INSTALL, "--no-defaults", f"--datadir={self.folder / 'data'}", "--skip-test-db"]
        made += ["--auth-root-authentication-method=normal"]
        done = subprocess.run(made, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr + done.stdout
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)
        self.start()

    def url(self, database: str = "", user: str = USER, scheme: str = "mariadb") -> str:
        return f"{scheme}://{user}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Starts the server and waits until it answers."""
        assert self._process is None and PROGRAM is not None
        command = ["setpriv", "--pdeathsig", "KILL", *self._as_user[1:], PROGRAM, "--no-defaults"]
        command += [f"--datadir={self.folder / 'data'}", f"--port={self.port}", "--bind-address=127.0.0.1"]
        command += [f"--socket={self.folder / 'socket'}", "--innodb-buffer-pool-size=32M", "--skip-name-resolve"]
        command += ["--innodb-flush-log-at-trx-commit=2", *self._options]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while True:
            try:
                execute(self.url(), "select 1")
                return
            except Exception:
                assert self._process.poll() is None and time.monotonic() < end, self.log()
                time.sleep(0.05)

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)
            self._process = None

    def close(self) -> None:
        self.stop(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def database(self, name: str = "") -> str:
        """The URL of a new, empty database."""
        name = name or f"db{next(self._numbers)}"
        execute(self.url(), f"create database {name} character set utf8mb4")
        return self.url(name)


def connect(url: str) -> Any:
    """A connection of the driver to the database of a URL."""
    from urllib.parse import urlsplit

    import pymysql

    parts = urlsplit(url)
    return pymysql.connect(
        host=str(parts.hostname),
        port=int(parts.port or 0),
        user=str(parts.username),
        database=parts.path.strip("/") or None,
        autocommit=True,
        charset="utf8mb4",
    )


def execute(url: str, *statements: str) -> list[tuple[Any, ...]]:
    """Runs statements in the database of a URL, each by itself; returns the rows of the last one."""
    rows: list[tuple[Any, ...]] = []
    connection = connect(url)
    try:
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
                rows = list(cursor.fetchall())
    finally:
        connection.close()
    return rows


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaDb]:
    """One server for all tests of a process. A test that ends it has a server of its own."""
    require_server()
    server = MariaDb()
    yield server
    server.close()


def require_server() -> None:
    """Skips a test where there is no server or no driver."""
    if PROGRAM is None or INSTALL is None or shutil.which("setpriv") is None:
        pytest.skip(NOT_INSTALLED)
    pytest.importorskip("pymysql")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    skipped = [each for each in terminalreporter.stats.get("skipped", ()) if NOT_INSTALLED in str(each.longrepr)]
    if skipped:
        terminalreporter.write_line(f"{len(skipped)} tests were skipped: {NOT_INSTALLED}", yellow=True)


__all__ = ["LOGGED", "MariaDb", "connect", "execute", "mariadb_server", "require_server"]
