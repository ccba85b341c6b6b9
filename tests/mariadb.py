"""A MariaDB or a MySQL of the tests' own on loopback, whose binary log can be followed.

It runs as another user where the tests run as root, and ends with the process of the tests, however that ends. Where
no server is installed its tests are skipped, and the summary says so. MySQL, which Debian has only in `sid`, is in the
full run where `MYSQLD_BINARY` or PATH has it: `scripts/mysql.sh` unpacks it. `MARIADB_FOLDER` names the folder of
another MariaDB than the one that is installed: `scripts/server.sh` unpacks it.
"""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.free_ports import free_port

_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/bin"))
_FOLDER = os.environ.get("MARIADB_FOLDER")
_PLACES = f"{_FOLDER}/bin{os.pathsep}{_FOLDER}/scripts" if _FOLDER else _PATH
PROGRAM = shutil.which("mariadbd", path=_PLACES)
INSTALL = shutil.which("mariadb-install-db", path=_PLACES)
NOT_INSTALLED = "MariaDB is not installed; as root: scripts/install.sh mariadb"
NO_MYSQL = "MySQL is not installed; scripts/mysql.sh FOLDER unpacks it, MYSQLD_BINARY=FOLDER/mysqld names it"
USER = "root"
LOGGED = ("--log-bin=binlog", "--binlog-format=ROW", "--binlog-row-metadata=FULL", "--server-id=1")

GTIDS = ("--gtid-mode=ON", "--enforce-gtid-consistency=ON")


def _mysqld() -> str | None:
    """The program of a MySQL server; MariaDB has one of the same name."""
    found = os.environ.get("MYSQLD_BINARY") or shutil.which("mysqld", path=_PATH)
    return None if found is None or Path(found).resolve().name.startswith("mariadb") else found


MYSQLD = _mysqld()


class MariaDb:
    """One server. `port` stays the same from start to start; `options` are those of its start."""

    kind = "mariadb"
    program, missing = PROGRAM if INSTALL else None, NOT_INSTALLED
    log_status = "show master status"
    monitor = "binlog monitor"
    """The right to ask how long the log is."""
    clear_log = "reset master"
    of_all: tuple[str, ...] = (f"--basedir={_FOLDER}", "--skip-ssl") if _FOLDER else ()
    """Options of each start."""

    def __init__(self, *options: str) -> None:
        assert self.program is not None
        self._options = (*(options or LOGGED), *self.of_all)
        self._as_user: list[str] = []
        # not below pytest's own folder, which each run of pytest closes to other users
        self.folder = Path(tempfile.mkdtemp(prefix="lakemirror-mariadb-"))
        if os.geteuid() == 0:
            found = pwd.getpwnam("nobody")
            self._as_user = ["setpriv", f"--reuid={found.pw_uid}", f"--regid={found.pw_gid}", "--clear-groups"]
            shutil.chown(self.folder, found.pw_uid, found.pw_gid)
        self.port = free_port()
        made = [*self._as_user, *self.installation(), *self._folders()]
        done = subprocess.run(made, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr + done.stdout
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)
        self.start()

    def installation(self) -> list[str]:
        """The command that makes the folder of data."""
        assert INSTALL is not None
        return [INSTALL, "--no-defaults", "--skip-test-db", "--auth-root-authentication-method=normal", *self.of_all]

    def _folders(self) -> list[str]:
        return [f"--datadir={self.folder / 'data'}", f"--tmpdir={self.folder}"]

    def url(self, database: str = "", user: str = USER) -> str:
        return f"{self.kind}://{user}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Starts the server and waits until it answers."""
        assert self._process is None and self.program is not None
        command = ["setpriv", "--pdeathsig", "KILL", *self._as_user[1:], self.program, "--no-defaults"]
        command += [*self._folders(), f"--port={self.port}", "--bind-address=127.0.0.1"]
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


class MySql(MariaDb):
    """One server of MySQL."""

    kind = "mysql"
    program, missing = MYSQLD, NO_MYSQL
    log_status = "show binary log status"
    monitor = "replication client"
    clear_log = "reset binary logs and gtids"
    of_all = ("--mysqlx=OFF", "--secure-file-priv=NULL", "--innodb-doublewrite=OFF")

    def __init__(self, *options: str) -> None:
        super().__init__(*(options or (*LOGGED, *GTIDS)))

    def installation(self) -> list[str]:
        first = self.folder / "first.sql"
        first.write_text(
            f"create user {USER}@'127.0.0.1' identified by '';\n"
            f"grant all on *.* to {USER}@'127.0.0.1' with grant option;\n"
        )
        return [str(self.program), "--no-defaults", "--initialize-insecure", f"--init-file={first}", *self.of_all]


SERVERS = {server.kind: server for server in (MariaDb, MySql)}


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


def numbers(count: int) -> str:
    """A table in SQL: the numbers from 1 on, in the column `seq`."""
    many = (
        "information_schema.collations a cross join information_schema.collations b cross join (select 1 "
        + "union all select 2 union all select 3 union all select 4 union all select 5 union all select 6) c"
    )
    return f"(select row_number() over () as seq from {many} limit {count}) as numbers"


@pytest.fixture(scope="session")
def mariadb_servers() -> Iterator[Callable[[str], MariaDb]]:
    """Gives one server of a kind for all tests of a process."""
    made: dict[str, MariaDb] = {}

    def server(kind: str) -> MariaDb:
        require_server(SERVERS[kind])
        if kind not in made:
            made[kind] = SERVERS[kind]()
        return made[kind]

    yield server
    for each in made.values():
        each.close()


@pytest.fixture(params=["mariadb", pytest.param("mysql", marks=pytest.mark.full)])
def server_kind(request: pytest.FixtureRequest) -> str:
    """MariaDB, and in the full run MySQL."""
    return str(request.param)


@pytest.fixture
def mariadb_server(server_kind: str, mariadb_servers: Callable[[str], MariaDb]) -> MariaDb:
    """One server for all tests of a process. A test that ends it has a server of its own."""
    return mariadb_servers(server_kind)


@pytest.fixture
def own_server(server_kind: str) -> Iterator[Callable[..., MariaDb]]:
    """Makes a server for this test alone."""
    require_server(SERVERS[server_kind])
    made: list[MariaDb] = []

    def make(*options: str) -> MariaDb:
        made.append(SERVERS[server_kind](*options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def require_server(kind: type[MariaDb] = MariaDb) -> None:
    """Skips a test where there is no server or no driver."""
    if kind.program is None or shutil.which("setpriv") is None:
        pytest.skip(kind.missing)
    pytest.importorskip("pymysql")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for missing in (NOT_INSTALLED, NO_MYSQL):
        skipped = [each for each in terminalreporter.stats.get("skipped", ()) if missing in str(each.longrepr)]
        if skipped:
            terminalreporter.write_line(f"{len(skipped)} tests were skipped: {missing}", yellow=True)


__all__ = ["LOGGED", "SERVERS", "MariaDb", "MySql", "connect", "execute", "mariadb_server", "numbers", "own_server"]
