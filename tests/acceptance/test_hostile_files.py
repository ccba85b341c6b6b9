"""One bad table, file or folder stops nobody else: what a user sees, through the command line. No JVM is needed."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests import preloaded
from tests.landing import declare, folder, put

ENVIRONMENT = {
    **os.environ,
    "COLUMNS": "200",
    "JAVA_HOME": "/nonexistent",
    "LAKEMIRROR_POLL_IDLE": "0.2",
    "LAKEMIRROR_DROP_AFTER": "0",
    "LAKEMIRROR_MAINTENANCE": "false",
    "PYTHONDONTWRITEBYTECODE": "1",
}
COMMAND = [sys.executable, "-m", "lakemirror.cli"]
WITHOUT_RIGHTS = """
import ctypes, runpy
libc, header, held = ctypes.CDLL(None, use_errno=True), (ctypes.c_uint32 * 2)(0x20080522), (ctypes.c_uint32 * 6)()
assert libc.capget(header, held) == 0
for kind in (0, 1):  # effective and permitted
    held[kind] &= ~0b110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
assert libc.capset(header, held) == 0, ctypes.get_errno()
runpy.run_module("lakemirror.cli", run_name="__main__", alter_sys=True)
"""
LIMITED = [sys.executable, "-c", WITHOUT_RIGHTS]
"""The command as one for which permissions hold, also where root runs it."""


def lakemirror(*words: object, **more: Any) -> subprocess.CompletedProcess[str]:
    environment = {**ENVIRONMENT, **more.pop("env", {})}
    is_started = "PYTHONIOENCODING" in environment  # Python reads it when it starts
    run = subprocess.run if is_started else preloaded.run
    done = run(
        [*more.pop("command", COMMAND), *map(str, words)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **more,
    )
    assert "Traceback" not in done.stderr + done.stdout, done.stderr
    return done


def rows(database: Path, table: str, number: int = 1) -> Path:
    return put(database, table, number, {"id": [number * 10, number * 10 + 1]})


def tables(database: Path, **more: Any) -> dict[str, dict[str, Any]]:
    found = lakemirror("status", database, "--json", **more)
    return {t["normalizedTableName"]: t for t in json.loads(found.stdout)["tables"]}


def codes(rows: list[dict[str, str]]) -> set[str]:
    return {row["code"] for row in rows}


@contextmanager
def running(database: Path) -> Iterator[subprocess.Popen[str]]:
    with tempfile.TemporaryFile("w+") as said:
        process = preloaded.Popen([*COMMAND, "run", str(database)], env=ENVIRONMENT, stderr=said, text=True)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(20)
            said.seek(0)
            process.said = said.read()  # type: ignore[attr-defined]
    assert "Traceback" not in process.said  # type: ignore[attr-defined]


def wait_for(what: Callable[[], object], seconds: float = 40.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def position(database: Path, table: str) -> int:
    try:
        found = json.loads((database / "Files/Monitoring/tables.json").read_text())
    except (OSError, ValueError):
        return 0
    return next((int(t["position"]) for t in found["tables"] if t["normalizedTableName"] == table), 0)


def replicator(database: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((database / "Files/Monitoring/replicator.json").read_text()))
    except (OSError, ValueError):
        return {}


def test_folders_without_permission_stop_only_their_tables(tmp_path: Path) -> None:
    database = tmp_path / "shop"
    for table in ("good", "unreadable", "unwritable", "closed.customers"):
        rows(database, table)
    folder(database, "unreadable").chmod(0)
    folder(database, "unwritable").chmod(0o555)
    folder(database, "closed.customers").parent.chmod(0)
    done = lakemirror("sync", database, command=LIMITED)
    assert done.returncode == 3
    assert "good: 1 file, 2 changes, 1 commit" in done.stdout
    assert "unreadable: storage-unavailable" in done.stdout
    assert "Permission denied" in done.stdout
    found = tables(database, command=LIMITED)
    assert found["good"]["position"] == 1
    assert found["unreadable"]["errorCode"] == "storage-unavailable"
    assert "storage-unavailable" in lakemirror("check", database, command=LIMITED).stdout
    folder(database, "unreadable").chmod(0o755)
    folder(database, "unwritable").chmod(0o755)
    folder(database, "closed.customers").parent.chmod(0o755)
    assert lakemirror("sync", database, command=LIMITED).returncode == 0
    assert {name: t["position"] for name, t in tables(database, command=LIMITED).items()} == dict.fromkeys(
        ("good", "unreadable", "unwritable", "closed.customers"), 1
    )


def test_a_mirrored_table_whose_folder_cannot_be_listed_any_more_is_not_dropped(tmp_path: Path) -> None:
    database = tmp_path / "shop"
    rows(database, "closed.customers")
    rows(database, "good")
    assert lakemirror("sync", database, command=LIMITED).returncode == 0
    folder(database, "closed.customers").parent.chmod(0)
    for _ in range(3):
        lakemirror("sync", database, command=LIMITED)
    assert (database / "Tables/closed/customers/_delta_log").is_dir()
    folder(database, "closed.customers").parent.chmod(0o755)


def test_a_mirrored_table_whose_folder_became_a_link_is_not_dropped(tmp_path: Path) -> None:
    database = tmp_path / "shop"
    rows(database, "orders")
    assert lakemirror("sync", database, command=LIMITED).returncode == 0
    folder(database, "orders").rename(database.parent / "elsewhere")
    folder(database, "orders").symlink_to(database.parent / "elsewhere")
    for _ in range(3):
        lakemirror("sync", database, command=LIMITED)
    assert (database / "Tables/orders/_delta_log").is_dir()


def test_links_to_themselves_and_loops_are_warned_of(tmp_path: Path) -> None:
    rows(tmp_path, "good")
    zone = tmp_path / "Files/LandingZone"
    (zone / "self").symlink_to("self")
    (zone / "a").symlink_to("b")
    (zone / "b").symlink_to("a")
    (folder(tmp_path, "good") / "loop").symlink_to(".")
    (folder(tmp_path, "good") / f"{2:020}.parquet").symlink_to(f"{2:020}.parquet")
    done = lakemirror("sync", tmp_path)
    assert done.returncode == 0
    assert "good: 1 file" in done.stdout
    assert done.stderr.count("warning not-a-file: ") == len(done.stderr.splitlines()) == 5
    found = json.loads(lakemirror("status", tmp_path, "--json").stdout)
    assert [w["code"] for w in found["warnings"]] == ["not-a-file"] * 3
    assert [w["code"] for w in found["tables"][0]["warnings"]] == ["not-a-file"] * 2
    assert lakemirror("check", tmp_path).stdout.count("[not-a-file]") == 5


def test_fifos_in_the_place_of_every_file_hang_nothing(tmp_path: Path) -> None:
    names = ("_metadata.json", "_mirror.json", f"{2:020}.parquet")
    for name in names:
        rows(tmp_path, f"t-{name[:9]}")
        os.mkfifo(folder(tmp_path, f"t-{name[:9]}") / name)
    rows(tmp_path, "good")
    os.mkfifo(tmp_path / "Files/LandingZone/_partnerEvents.json")
    monitoring = tmp_path / "Files/Monitoring"
    monitoring.mkdir()
    for name in ("tables.json", "replicator.json", "missing.json"):
        os.mkfifo(monitoring / name)
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(folder(tmp_path, "good"))  # a socket's path may be only 108 bytes long
        try:
            listener.bind("socket")
        finally:
            os.chdir(here)
        done = lakemirror("sync", tmp_path)
        assert done.returncode == 3
        assert "good: 1 file, 2 changes, 1 commit" in done.stdout
        assert "t-_metadata: metadata-invalid: Files/LandingZone/t-_metadata/_metadata.json is a FIFO" in done.stdout
        found = tables(tmp_path)
    assert found["t-_metadata"]["errorCode"] == "metadata-invalid"
    assert found["t-_mirror.j"]["errorCode"] == "path-refused"
    assert found["t-000000000"]["position"] == 1
    assert codes(found["good"]["warnings"]) == {"not-a-file"}


def test_sigterm_ends_run_beside_fifos(tmp_path: Path) -> None:
    rows(tmp_path, "good")
    rows(tmp_path, "fifo")
    os.mkfifo(folder(tmp_path, "fifo") / "_metadata.json")
    with running(tmp_path) as process:
        wait_for(lambda: position(tmp_path, "good") == 1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0
    assert replicator(tmp_path)["status"] == "Stopped"


def test_huge_files_of_metadata_are_not_read(tmp_path: Path) -> None:
    for table, name in (("a", "_metadata.json"), ("b", "_mirror.json")):
        rows(tmp_path, table)
        with (folder(tmp_path, table) / name).open("wb") as file:
            file.truncate(5 * 1024**3)
    rows(tmp_path, "good")
    with (tmp_path / "Files/LandingZone/_partnerEvents.json").open("wb") as file:
        file.truncate(3 * 1024**3)
    done = lakemirror("sync", tmp_path)
    assert done.returncode == 3
    assert "good: 1 file" in done.stdout
    assert "a: metadata-invalid: Files/LandingZone/a/_metadata.json is larger than 16 MiB and is not" in done.stdout
    assert "b: 1 file" in done.stdout, "a marker that makes no sense counts as none"
    assert lakemirror("status", tmp_path).returncode == 3
    assert "16 MiB" in lakemirror("check", tmp_path).stdout


@pytest.mark.parametrize("kind", ["fifo", "folder", "huge", "half", "link"])
def test_a_definition_that_is_no_file_is_definition_invalid(tmp_path: Path, kind: str) -> None:
    rows(tmp_path, "good")
    place = tmp_path / "mirroring.json"
    if kind == "fifo":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    elif kind == "huge":
        with place.open("wb") as file:
            file.truncate(3 * 1024**3)
    elif kind == "half":
        place.write_text('{"lakemirror": {"pol')
    else:
        place.symlink_to("/etc/hostname")
    done = lakemirror("sync", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("definition-invalid: ")
    shown = lakemirror("status", tmp_path)
    assert shown.returncode == 3
    assert "definition-invalid" in shown.stdout


def test_a_running_engine_keeps_its_last_valid_settings(tmp_path: Path) -> None:
    definition = tmp_path / "mirroring.json"
    rows(tmp_path, "orders")
    definition.write_text('{"properties": {"target": {"typeProperties": {"defaultSchema": "dbo"}}}}')
    with running(tmp_path) as process:
        wait_for(lambda: position(tmp_path, "orders") == 1)
        for number, broken in enumerate(
            ('{"lakemirror": {"readers', '{"lakemirror": {"readers": ["duckbd"]}}', None), 2
        ):
            whole = tmp_path / "whole.json"  # so that no look finds half of it, or nothing
            if broken is None:
                os.mkfifo(whole)
            else:
                whole.write_text(broken)
            whole.replace(definition)
            code = "client-unknown" if broken and "duckbd" in broken else "definition-invalid"
            wait_for(lambda code=code: replicator(tmp_path).get("errorCode") == code)  # type: ignore[misc]
            rows(tmp_path, "orders", number)
            wait_for(lambda number=number: position(tmp_path, "orders") == number)  # type: ignore[misc]
        whole.write_text('{"properties": {"target": {"typeProperties": {"defaultSchema": "dbo"}}}}')
        whole.replace(definition)
        wait_for(lambda: replicator(tmp_path).get("errorCode") == "")
        assert process.poll() is None
        process.terminate()
        assert process.wait(15) == 0
    assert process.said.count("the last valid settings stay in force") == 3  # type: ignore[attr-defined]
    assert (tmp_path / "Tables/dbo/orders").is_dir()
    assert not (tmp_path / "Tables/orders").exists()


def test_features_drop_goes_on_behind_a_table_without_permission(tmp_path: Path) -> None:
    database = tmp_path / "shop"
    for table in ("a", "b", "c"):
        rows(database, table)
    assert lakemirror("sync", database, command=LIMITED).returncode == 0
    (database / "Tables/a/_delta_log").chmod(0)
    (database / "Tables/b").chmod(0)
    done = lakemirror("features", "drop", database, "deletionVectors", "--yes", "--truncate-history", command=LIMITED)
    assert done.returncode == 3
    assert "3 tables: 1 waiting, 2 failed" in done.stdout, done.stdout
    assert "2 × storage-unavailable" in done.stdout and "Tables/a" in done.stdout and "Tables/b" in done.stdout


def test_nothing_outside_the_database_is_read_or_written(tmp_path: Path) -> None:
    database, outside = tmp_path / "shop", tmp_path / "outside"
    rows(tmp_path / "other", "secret")
    shutil.move(folder(tmp_path / "other", "secret"), outside)
    before = sorted(path.name for path in outside.iterdir())
    rows(database, "good")
    zone = database / "Files/LandingZone"
    (zone / "linked").symlink_to(outside)
    rows(database, "aside")
    rows(database, "aside", 2)
    (folder(database, "aside") / "_ProcessedFiles").symlink_to(outside)
    rows(database, "marker")
    (folder(database, "marker") / "_mirror.json").symlink_to(outside / "_mirror.json")
    rows(database, "target")
    (database / "Tables").mkdir()
    (database / "Tables/target").symlink_to(outside)
    (database / "Files/Monitoring").symlink_to(outside)
    (folder(database, "good") / f"{2:020}.parquet").symlink_to(outside / f"{1:020}.parquet")
    done = lakemirror("sync", database)
    assert done.returncode == 3
    assert "good: 1 file" in done.stdout
    assert "target: path-refused" in done.stdout
    assert "linked" not in tables(database)
    assert sorted(path.name for path in outside.iterdir()) == before
    assert not (database / "Tables/linked").exists()


def test_the_path_of_the_database_itself_may_be_a_link(tmp_path: Path) -> None:
    rows(tmp_path / "real", "orders")
    (tmp_path / "shop").symlink_to(tmp_path / "real")
    assert lakemirror("sync", tmp_path / "shop").returncode == 0
    assert tables(tmp_path / "shop")["orders"]["position"] == 1


def test_monitoring_that_cannot_be_written_is_said_once(tmp_path: Path) -> None:
    database = tmp_path / "shop"
    rows(database, "orders")
    rows(database, "gone")
    assert lakemirror("sync", database, command=LIMITED).returncode == 0
    (database / "Files/Monitoring").chmod(0o555)
    rows(database, "orders", 2)
    shutil.rmtree(folder(database, "gone"))
    command = [*LIMITED, "run", str(database)]
    process = preloaded.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: (database / f"Tables/orders/_delta_log/{1:020}.json").exists())
        wait_for(lambda: not (database / "Tables/gone").exists())
        process.terminate()
        _, said = process.communicate(timeout=15)
    finally:
        process.kill()
    assert process.returncode == 0
    assert said.count("the status cannot be written: storage-unavailable") == 1
    assert "Traceback" not in said


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_monitoring_in_another_form_stops_nothing(tmp_path: Path, kind: str) -> None:
    rows(tmp_path, "orders")
    if kind == "file":
        (tmp_path / "Files/Monitoring").write_text("x")
    else:
        (tmp_path / "Files/Monitoring/tables.json").mkdir(parents=True)
        (tmp_path / "Files/LandingZone/_partnerEvents.json").mkdir()
    done = lakemirror("sync", tmp_path)
    assert done.returncode == 0
    assert "orders: 1 file" in done.stdout
    assert tables(tmp_path)["orders"]["position"] == 1


def test_names_with_line_breaks_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    rows(tmp_path, "good")
    rows(tmp_path, "two\nlines")
    shutil.copytree(os.fsencode(folder(tmp_path, "good")), os.fsencode(tmp_path / "Files/LandingZone") + b"/caf\xe9")
    done = lakemirror("sync", tmp_path)
    assert done.returncode == 3
    assert "good: 1 file" in done.stdout
    assert "two\\nlines: 1 file" in done.stdout
    assert "table-name-invalid" in done.stdout
    found = tables(tmp_path)
    assert found["two\nlines"]["position"] == 1
    assert found["caf\udce9"]["errorCode"] == "table-name-invalid"
    assert "caf\\udce9" in lakemirror("status", tmp_path).stdout
    assert "[table-name-invalid]" in lakemirror("check", tmp_path).stdout


def test_a_terminal_without_the_letters(tmp_path: Path) -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    rows(tmp_path, "tü")
    for word in ("sync", "status", "check"):
        done = lakemirror(word, tmp_path, env=ascii_only)
        assert done.returncode in (0, 3), done.stderr
        assert word != "status" or "t\\xfc" in done.stdout
    assert tables(tmp_path, env=ascii_only)["tü"]["position"] == 1


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed(tmp_path: Path, closed: str) -> None:
    rows(tmp_path, "t")
    for word, path, code in (("sync", tmp_path, 0), ("status", tmp_path, 0), ("status", tmp_path / "no", 2)):
        line = shlex.join([sys.executable, "-m", "lakemirror.cli", word, str(path)])
        done = subprocess.run(
            ["sh", "-c", f"{line} {closed}"], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == code and "Traceback" not in done.stderr, done.stderr
    assert tables(tmp_path)["t"]["position"] == 1


def test_a_delta_log_that_is_no_log(tmp_path: Path) -> None:
    database = tmp_path / "shop"
    for table in ("good", "file", "closed"):
        rows(database, table)
    (database / "Tables/file").mkdir(parents=True)
    (database / "Tables/file/_delta_log").write_text("x")
    assert lakemirror("sync", database, command=LIMITED).returncode == 3
    (database / "Tables/closed/_delta_log").chmod(0)
    rows(database, "good", 2)
    done = lakemirror("sync", database, command=LIMITED)
    assert done.returncode == 3
    assert "good: 1 file" in done.stdout
    found = tables(database, command=LIMITED)
    assert found["file"]["errorCode"] == "table-unreadable"
    assert "_delta_log is not a folder" in found["file"]["errorMessage"]
    assert found["closed"]["errorCode"] in ("table-unreadable", "storage-unavailable")
    assert "Permission denied" in found["closed"]["errorMessage"]
    assert found["good"]["position"] == 2


def test_a_broken_environment_ends_in_a_code_and_a_log(tmp_path: Path) -> None:
    """At the outermost edge of a command whatever nobody expected is `internal`, with the log's path."""
    rows(tmp_path, "orders")
    script = (
        "import lakemirror.api as d\n"
        "def broken(*_): raise ZeroDivisionError('nobody expected this')\n"
        "d.MirroredDatabase.status = broken\n"
        "from lakemirror.cli import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "status", str(tmp_path)],
        env={**ENVIRONMENT, "LAKEMIRROR_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    place = tmp_path / "cache/logs/failures.log"
    assert f"internal: ZeroDivisionError: nobody expected this; the log is {place}" in done.stderr
    assert "Traceback" in place.read_text()


@pytest.mark.parametrize("command", ["sync", "run", "status", "doctor"])
def test_a_misspelt_database_is_never_made(tmp_path: Path, command: str) -> None:
    done = lakemirror(command, tmp_path / "shpo")
    assert done.returncode == 2
    assert "database-missing" in done.stderr
    (tmp_path / "empty").mkdir()
    if command != "doctor":
        assert "database-missing" in lakemirror(command, tmp_path / "empty").stderr
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["empty"]


def test_misspelt_settings_are_warned_of(tmp_path: Path) -> None:
    rows(tmp_path, "orders")
    (tmp_path / "mirroring.json").write_text('{"lakemirror": {"pol_idle": 1}, "readers": ["duckdb"]}')
    done = lakemirror("sync", tmp_path, env={"LAKEMIRROR_PARALEL_TABLES": "2"})
    assert done.returncode == 0
    assert "did you mean poll_idle?" in done.stderr
    assert "did you mean LAKEMIRROR_PARALLEL_TABLES?" in done.stderr
    assert "readers in mirroring.json has no effect at this place" in done.stderr
    shown = lakemirror("status", tmp_path, "--json").stdout
    assert codes(json.loads(shown)["warnings"]) == {"setting-unknown"}


def test_a_killed_engine_is_shown_as_not_running(tmp_path: Path) -> None:
    rows(tmp_path, "orders")
    with running(tmp_path) as process:
        wait_for(lambda: position(tmp_path, "orders") == 1)
        shown = lakemirror("status", tmp_path).stdout
        assert f"(process {process.pid} on " in shown
        process.kill()
        process.wait(10)
    rows(tmp_path, "orders", 2)
    assert "engine: not running since 20" in lakemirror("status", tmp_path).stdout
    found = json.loads(lakemirror("status", tmp_path, "--json").stdout)
    assert found["status"] == "Stopped"
    assert found["notRunningSince"].startswith("20")
    assert found["tables"][0]["pendingFiles"] == 1
    assert found["tables"][0]["lagSeconds"] >= 0
    assert "oldestPendingTimeUtc" in found["tables"][0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_end_a_backlog_that_grows(tmp_path: Path, number: int) -> None:
    declare(tmp_path, "orders")
    big = pa.table({"id": list(range(20_000)), "text": ["x" * 20] * 20_000})
    for n in range(1, 40):
        put(tmp_path, "orders", n, big)
    with running(tmp_path) as process:
        wait_for(lambda: replicator(tmp_path))
        process.send_signal(number)
        assert process.wait(15) == 0
    assert replicator(tmp_path)["status"] == "Stopped"


STUCK = """
import sys, threading, time
import lakemirror.mirror.loop
from lakemirror.mirror.step import Replicator
lakemirror.mirror.loop.PATIENCE = 1.0
step = Replicator.step
def stuck(self, view, *given):
    if self.name.table == "stuck":
        open(sys.argv[2] + "/reached", "w").close()
        time.sleep(1000)
    return step(self, view, *given)
Replicator.step = stuck
from lakemirror.cli import main
main()
"""


def stuck_engine(database: Path) -> subprocess.Popen[bytes]:
    """An engine whose apply of the table `stuck` never ends, as when Spark starts or works, or a file does not come."""
    rows(database, "stuck")
    rows(database, "good")
    process = preloaded.Popen([sys.executable, "-c", STUCK, "run", str(database)], env=ENVIRONMENT)
    wait_for(lambda: (database / "reached").exists() and position(database, "good") == 1)
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_work_that_cannot_be_interrupted_is_left_behind(tmp_path: Path, number: int) -> None:
    process = stuck_engine(tmp_path)
    try:
        process.send_signal(number)
        assert process.wait(15) == 0
    finally:
        process.kill()
    assert replicator(tmp_path)["status"] == "Stopped"
    assert lakemirror("sync", tmp_path).returncode == 0
    assert tables(tmp_path)["stuck"]["position"] == 1


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    process = stuck_engine(tmp_path)
    try:
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 128 + signal.SIGTERM
    finally:
        process.kill()
