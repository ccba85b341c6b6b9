"""`init`, `config`, `status`, and what commands say of a path that is no database."""

from __future__ import annotations

import importlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests import preloaded
from tests.commands import CommandRunner
from tests.landing import put
from typer.testing import CliRunner

import lakemirror as package
from lakemirror import MirroredDatabase
from lakemirror.cli import app, run_log
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.database_folder import missing_database
from lakemirror.settings.origin import setting_origins
from lakemirror.settings.settings import Settings
from lakemirror.storage.addresses import local_folder


def lakemirror(*words: object, code: int = 0) -> str:
    result = CommandRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def refused(*words: object) -> LakemirrorError:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert isinstance(result.exception, LakemirrorError), result.output
    return result.exception


def test_check_names_a_place_once(tmp_path: Path) -> None:
    where = put(tmp_path, "orders", 1, {"id": [1]}).with_name("_metadata.json")
    where.write_text('{"keyColumns": ["id"], "lakemirror": {"deletes": "sotf"}}')
    first, *_ = lakemirror("check", tmp_path, code=3).splitlines()
    assert first.startswith("error: Files/LandingZone/orders/_metadata.json lakemirror.deletes must be one of")


def test_init_makes_a_database_once(tmp_path: Path) -> None:
    assert "made" in lakemirror("init", tmp_path / "shop")
    (tmp_path / "shop/Files/LandingZone/orders").mkdir()
    assert "there already" in lakemirror("init", tmp_path / "shop")
    assert (tmp_path / "shop/Files/LandingZone/orders").is_dir()


@pytest.mark.parametrize("command", ["sync", "run", "status", "doctor", "config"])
def test_a_misspelt_database_is_never_made(tmp_path: Path, command: str) -> None:
    assert refused(command, tmp_path / "shpo").code == "database-missing"
    assert list(tmp_path.iterdir()) == []


def test_publish_makes_a_database_only_when_told(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("id\n1\n")
    assert "database-missing" in lakemirror("publish", tmp_path / "shop", "orders", "--from", rows, code=2)
    assert not (tmp_path / "shop").exists()
    lakemirror("publish", tmp_path / "shop", "orders", "--from", rows, "--create")
    assert (tmp_path / "shop/Files/LandingZone/orders/00000000000000000001.parquet").is_file()


def test_databases_below_are_named(tmp_path: Path) -> None:
    for name in ("a", "b", "c", "group/d"):
        lakemirror("init", tmp_path / name)
    error = missing_database(str(tmp_path))
    assert (
        error.hint == f"Databases below it: {', '.join(str(tmp_path / n) for n in 'abc')} and 1 more. Give one of them."
    )
    assert str(tmp_path / "a") in lakemirror("check", tmp_path, code=2)
    assert missing_database(str(tmp_path / "a" / "Files")).hint == f"The database is {tmp_path / 'a'}."


@pytest.mark.parametrize("address", ["hdfs://host/x", "ftp://host/shop"])
def test_other_addresses_are_said_to_be_unsupported(address: str, tmp_path: Path) -> None:
    for words in (("sync", address), ("publish", address, "t"), ("check", address), ("tables", address)):
        assert refused(*words).code == "address-unsupported"
    assert "address-unsupported" in lakemirror("features", "list", address, code=2)
    with pytest.raises(LakemirrorError, match="not supported"):
        MirroredDatabase(address)


@pytest.mark.parametrize("words", [("compat", ""), ("features", "plan", "", "--drop", "deletionVectors"), ("sync", "")])
def test_an_empty_path_is_not_the_current_folder(words: tuple[str, ...]) -> None:
    """A script's variable that is not set: `features drop "$DB" … --yes` would change every table below."""
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code and "the path is empty" in result.output + str(result.exception)


def test_a_second_ctrl_c_ends_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes while the command ends because of the first one."""

    class Ended(BaseException):
        pass

    def leave(code: int) -> None:
        raise Ended(code)

    def first(_: str = "") -> Any:
        raise SystemExit(130)

    def second() -> Any:
        raise KeyboardInterrupt

    main = sys.modules["lakemirror.cli.main"]
    monkeypatch.setattr("lakemirror.cli.commands.command_line", first)
    monkeypatch.setattr(main, "leave", leave)
    monkeypatch.setattr("threading.enumerate", second)
    importlib.import_module("lakemirror.mirror.queue")
    with pytest.raises(Ended, match="130"):
        main.main()


def test_a_link_to_itself_and_a_file_are_no_database(tmp_path: Path) -> None:
    loop, file = tmp_path / "loop", tmp_path / "file"
    loop.symlink_to(loop)
    file.write_text("x")
    for path in (loop, file):
        assert "is no folder" in lakemirror("check", path, code=2)
        assert "database-missing" in lakemirror("verify", path, code=2)


def test_an_address_without_a_bucket_and_an_empty_host_are_refused(tmp_path: Path) -> None:
    assert "names no bucket" in refused("sync", "s3://").message
    pytest.importorskip("aiohttp", reason="the service's packages")
    assert refused("serve", tmp_path, "--host", "").code == "service-option-invalid"


def test_a_file_address_is_a_folder() -> None:
    assert local_folder("file:///data/my%20shop") == Path("/data/my shop")


def test_a_catalog_name_is_said_to_be_unsupported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "catalog" in refused("sync", "main.sales.orders").message


def test_config_tells_where_each_setting_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lakemirror("init", tmp_path)
    (tmp_path / "mirroring.json").write_text(json.dumps({
        "properties": {"target": {"typeProperties": {"retentionInDays": 3}}},
        "lakemirror": {"retention": 2, "poll": 1.5, "engine": "spark"},
    }))  # fmt: skip
    monkeypatch.setenv("LAKEMIRROR_POLL", "2.5")
    found = json.loads(lakemirror("config", tmp_path, "--engine", "local", "--json"))["settings"]
    named = {each["name"]: (each["value"], each["source"]) for each in found}
    assert named["engine"] == ("local", "flag")
    assert named["poll"] == (2.5, "LAKEMIRROR_POLL")
    assert named["processed_retention"] == (2, "mirroring.json")
    assert named["retention_in_days"] == (3, "mirroring.json")
    assert named["settle"] == (30, "default")
    assert [each["name"] for each in found] == [each.name for each in setting_origins({}, {}, {})]
    assert any(
        line.split() == ["poll", "2.5", "LAKEMIRROR_POLL"] for line in lakemirror("config", tmp_path).splitlines()
    )


def test_config_shows_every_setting_beside_one_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lakemirror("init", tmp_path)
    (tmp_path / "mirroring.json").write_text('{"lakemirror": {"memory": "abc", "settle": 3}}')
    monkeypatch.setenv("LAKEMIRROR_POLL", "soon")
    shown = lakemirror("config", tmp_path, code=2)
    assert "memory in mirroring.json: 'abc' is not a whole number" in shown and "LAKEMIRROR_POLL: 'soon'" in shown
    by_name = {each.name: each for each in setting_origins({"lakemirror": {"memory": "abc", "settle": 3}}, {})}
    assert (by_name["memory"].value, by_name["memory"].source) == ("abc", "mirroring.json") and by_name["memory"].error
    assert by_name["settle"].value == 3.0 and not by_name["settle"].error


def test_config_hides_secrets() -> None:
    (spark,) = (
        each.value
        for each in setting_origins({}, {"spark": ["spark.hadoop.fs.s3a.secret.key=x", "spark.ui.port=1"]}, {})
        if each.name == "spark"
    )
    assert spark == {"spark.hadoop.fs.s3a.secret.key": "(hidden)", "spark.ui.port": "1"}


def test_status_ends_with_3_where_a_table_is_too_far_behind(tmp_path: Path) -> None:
    put(tmp_path, "orders", 2, {"id": [1]})  # waits for number 1
    lakemirror("status", tmp_path, "--behind", "1h")
    late = time.time() - 600
    (path,) = (tmp_path / "Files/LandingZone/orders").glob("*.parquet")
    os.utime(path, (late, late))
    lakemirror("status", tmp_path, "--behind", "5m", code=3)
    lakemirror("status", tmp_path)
    lakemirror("status", tmp_path, "--behind", "soon", code=2)


def test_the_last_apply_outlives_the_process(tmp_path: Path) -> None:
    put(tmp_path, "orders", 1, {"id": [1]})
    MirroredDatabase(tmp_path).sync()
    (first,) = MirroredDatabase(tmp_path).status().tables
    assert first.last_sync
    MirroredDatabase(tmp_path).sync()
    (again,) = MirroredDatabase(tmp_path).status().tables
    assert (again.last_sync, again.engine) == (first.last_sync, first.engine)


def test_equal_warnings_of_many_tables_are_one_line(tmp_path: Path) -> None:
    for number in range(6):
        put(tmp_path, f"t{number}", 1, {"id": [1]})
        (tmp_path / f"Files/LandingZone/t{number}/a.parquet").write_bytes(b"")
    lines = [line for line in lakemirror("status", tmp_path).splitlines() if "file-ignored" in line]
    assert len(lines) == 1
    assert "5 more tables" in lines[0]


def run_once(database: Path, *words: str) -> list[str]:
    """What `run` says in a second."""
    environment = {
        "PYTHONPATH": str(Path(package.__file__).parents[1]), "LAKEMIRROR_CACHE_DIR": str(database / "cache"),
        "PATH": "/nonexistent",
    }  # fmt: skip
    process = preloaded.Popen(
        [sys.executable, "-m", "lakemirror.cli", "run", str(database), *words],
        stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line.rstrip("\n"))
            if "now at 1" in line:
                process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
    return lines


def test_run_says_what_it_does_as_json_lines(tmp_path: Path) -> None:
    put(tmp_path, "orders", 1, {"id": [1, 2]})
    (tmp_path / "Files/LandingZone/_mine").mkdir()
    lines = run_once(tmp_path, "--log-format", "json")
    events: list[dict[str, Any]] = [json.loads(line) for line in lines]
    assert [e["event"] for e in events if e["event"] != "log"] == ["started", "applied", "stopped"]
    started, applied = events[0], next(e for e in events if e["event"] == "applied")
    assert (started["database"], started["engine"]) == (str(tmp_path), "auto")
    assert (applied["table"], applied["files"], applied["rows"], applied["position"]) == ("orders", 1, 2, 1)
    assert [e["level"] for e in events if "folder-skipped" in e["text"]] == ["warning"]
    assert all(time.strptime(e["time"], "%Y-%m-%dT%H:%M:%S.%fZ") for e in events)
    (kept,) = (tmp_path / "cache/logs").glob("run-*.log")
    assert kept.read_text().splitlines() == lines


def test_the_log_of_run_is_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_log, "MOST_BYTES", 500)
    root = logging.getLogger()
    before = root.handlers[:], root.level, logging.raiseExceptions
    try:
        said = run_log.RunLog(tmp_path / "shop", "text")
        said.started(Settings(cache_dir=str(tmp_path)))
        for _ in range(100):
            said.dropped("Tables/orders")
    finally:
        for handler in set(root.handlers) - set(before[0]):
            handler.close()
        root.handlers[:], logging.raiseExceptions = before[0], before[2]
        root.setLevel(before[1])
    files = list((tmp_path / "logs").iterdir())
    assert len(files) == 1 + run_log.KEPT
    assert all(path.stat().st_size <= 500 for path in files)


def test_sync_says_what_tables_wait_for(tmp_path: Path) -> None:
    lakemirror("init", tmp_path)
    assert lakemirror("sync", tmp_path) == "nothing to apply\n"
    put(tmp_path, "orders", 1, {"id": [1, 2]})
    put(tmp_path, "orders", 3, {"id": [3]})
    shown = lakemirror("sync", tmp_path).splitlines()
    assert sorted(shown) == ["orders: 1 file, 2 changes, 1 commit", "orders: waits for number 2"]
    lakemirror("pause", tmp_path, "orders")
    assert "orders: warning table-paused" in lakemirror("sync", tmp_path)


def test_many_tables_that_wait_are_one_line(tmp_path: Path) -> None:
    for number in range(5):
        put(tmp_path, f"t{number}", 2, {"id": [1]})
    assert lakemirror("sync", tmp_path) == "t0: waits for number 1 (and 4 more tables wait)\n"


def test_a_misspelt_command_is_suggested_once() -> None:
    assert lakemirror("statsu", code=2).count("'status'") == 1


def test_a_query_is_sent_to_the_tools_that_read() -> None:
    shown = lakemirror("sql", "SELECT * FROM shop/Tables/orders", code=2)
    assert "statement-invalid" in shown and "lakemirror tables DB TABLE" in shown
