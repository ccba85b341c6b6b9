"""A PostgreSQL of the tests' own on loopback, with a log of changes that can be followed (`wal_level = logical`).

It runs as another user where the tests run as root, and ends with the process of the tests, however that ends. Where
no server is installed its tests are skipped, and the summary says so. `POSTGRESQL_BINARIES` names the folder of another
version's programs: `scripts/server.sh` unpacks one.
"""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.free_ports import free_port


def _binaries() -> Path | None:
    """The folder of the server's programs: the one that is named, or the newest that is installed."""
    if named := os.environ.get("POSTGRESQL_BINARIES"):
        return Path(named).absolute()
    installed = Path("/usr/lib/postgresql").glob("*/bin")
    return max(installed, key=lambda path: float(path.parent.name), default=None)


BINARIES = _binaries()
USER = "shop"
NOT_INSTALLED = "PostgreSQL is not installed; as root: scripts/install.sh postgresql"
_CONFIGURATION = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
fsync = off
wal_level = logical
max_wal_senders = 20
max_replication_slots = 20
shared_buffers = 64MB
password_encryption = 'scram-sha-256'
"""


class Postgres:
    """One server. `port` stays the same from start to start; `options` are lines of its configuration."""

    def __init__(self, options: str = "") -> None:
        assert BINARIES is not None
        self._user = USER
        self._as_user: list[str] = []
        if os.geteuid() == 0:
            found = pwd.getpwnam("postgres" if _exists("postgres") else "nobody")
            self._as_user = ["setpriv", f"--reuid={found.pw_uid}", f"--regid={found.pw_gid}", "--clear-groups"]
        # not below pytest's own folder, which each run of pytest closes to other users
        self.folder = Path(tempfile.mkdtemp(prefix="lakemirror-postgres-"))
        if self._as_user:
            shutil.chown(self.folder, found.pw_uid, found.pw_gid)
        self.port = free_port()
        made = [str(BINARIES / "initdb"), "-D", str(self.data), "-A", "trust", "-U", USER, "-E", "UTF8", "--no-sync"]
        done = subprocess.run(
            [*self._as_user, *made, "--locale=C.UTF-8"], cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        with (self.data / "postgresql.conf").open("a", encoding="utf-8") as configuration:
            configuration.write(f"{_CONFIGURATION}port = {self.port}\n{options}\n")
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)
        self.start()

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def version(self) -> int:
        """The number before the point."""
        return int((self.data / "PG_VERSION").read_text())

    def url(self, database: str = "postgres", user: str = USER) -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Starts the server and waits until it answers."""
        assert self._process is None and BINARIES is not None
        command = ["setpriv", "--pdeathsig", "QUIT", *self._as_user[1:], str(BINARIES / "postgres")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "-D", str(self.data)], cwd=self.folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        end = time.monotonic() + 60
        while subprocess.run(
            [BINARIES / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port), "-d", "postgres"], check=False
        ).returncode:
            assert self._process.poll() is None and time.monotonic() < end, self.log()
            time.sleep(0.02)

    def stop(self, how: str = "QUIT") -> None:
        """Ends the server: `INT` closes its connections first; `QUIT` is the immediate mode, which is like a crash."""
        if self._process is not None:
            import signal

            self._process.send_signal(getattr(signal, f"SIG{how}"))
            self._process.wait(30)
            self._process = None

    def restart(self) -> None:
        """Ends the server as a crash would, and starts it again."""
        self.stop()
        self.start()

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def database(self, name: str = "") -> str:
        """The URL of a new, empty database."""
        name = name or f"db{next(self._numbers)}"
        self.execute(f'create database "{name}"')
        return self.url(name)

    def with_password(self, user: str, password: str, url: str) -> str:
        """The URL of a database for a new owner of it all, who must give a password, which the URL does not hold."""
        rules = self.data / "pg_hba.conf"
        text = rules.read_text(encoding="utf-8")
        rules.write_text(f"host all {user} 127.0.0.1/32 scram-sha-256\n{text}", encoding="utf-8")
        known = self.execute(f"select 1 from pg_roles where rolname = '{user}'")
        role = f"{'alter' if known else 'create'} role {user} superuser login replication password '{password}'"
        self.execute(role, "select pg_reload_conf()")
        return self.url(url.rpartition("/")[2], user)

    def execute(self, *statements: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Runs statements, each by itself; returns the rows of the last one."""
        return execute(self.url(database), *statements)


def execute(url: str, *statements: str) -> list[tuple[Any, ...]]:
    """Runs statements in the database of a URL, each by itself; returns the rows of the last one."""
    import psycopg

    rows: list[tuple[Any, ...]] = []
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement.encode())
            rows = cursor.fetchall() if cursor.description else []
    return rows


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """One server for all tests of a process. A test that ends it has a server of its own."""
    if BINARIES is None or not (BINARIES / "initdb").exists() or shutil.which("setpriv") is None:
        pytest.skip(NOT_INSTALLED)
    pytest.importorskip("psycopg")
    server = Postgres()
    yield server
    server.close()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    skipped = [each for each in terminalreporter.stats.get("skipped", ()) if NOT_INSTALLED in str(each.longrepr)]
    if skipped:
        terminalreporter.write_line(f"{len(skipped)} tests were skipped: {NOT_INSTALLED}", yellow=True)


__all__ = ["Postgres", "execute", "postgres_server"]
