"""The command line without a JVM: output, exit codes, many tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from protocol_tables import make
from tests.commands import CommandRunner

from lakemirror.cli import features as cli_features
from lakemirror.delta.log import Protocol, read_snapshot

app = typer.Typer()
app.add_typer(cli_features.app, name="features")
app.command()(cli_features.compat)
app.command()(cli_features.sql)


def run(*arguments: str) -> tuple[int, str, str]:
    result = CommandRunner().invoke(app, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def table(tmp_path: Path) -> Path:
    names = frozenset({"appendOnly", "invariants", "v2Checkpoint", "clustering", "domainMetadata"})
    return make(tmp_path / "t", Protocol(3, 7, frozenset({"v2Checkpoint"}), names))


def test_list(table: Path) -> None:
    status, out, _ = run("features", "list", str(table), "--json")
    found = {feature["feature"]: feature for feature in json.loads(out)[0]["features"]}
    assert status == 0 and found["clustering"]["in_use"] and not found["v2Checkpoint"]["in_use"]
    assert found["domainMetadata"]["needed_by"] == ["clustering"]
    assert found["v2Checkpoint"]["by"] == "WRITE by unknown" and found["v2Checkpoint"]["since"] == 0
    assert "clustering" in run("features", "list", str(table))[1]


def test_plan_changes_nothing(table: Path) -> None:
    status, out, _ = run("features", "plan", str(table), "--drop", "v2checkpoint,clustering", "--json")
    (plan,) = json.loads(out)
    assert status == 0 and plan["drop"] == ["clustering", "domainMetadata", "v2Checkpoint"]
    assert [step["kind"] for step in plan["steps"]] == ["writer-features", "protected-drop", "checkpoint"]
    assert any(change["client"].startswith("delta-rs 0.19") for change in plan["clients"])
    assert len(list((table / "_delta_log").iterdir())) == 1
    assert run("features", "plan", str(table))[0] == 2


def test_drop_asks_and_then_acts_once(table: Path) -> None:
    status, _, messages = run("features", "drop", str(table), "clustering")
    assert status == 3 and "confirmation-needed" in messages
    assert run("features", "drop", str(table), "clustering", "--yes")[0] == 0
    status, out, _ = run("features", "drop", str(table), "clustering", "--yes", "--json")
    assert status == 0 and json.loads(out)[0]["commits"] == 0


def test_waiting_is_exit_code_4(table: Path) -> None:
    names = frozenset({"appendOnly", "invariants", "v2Checkpoint"})
    used = make(
        table.parent / "u", Protocol(3, 7, frozenset({"v2Checkpoint"}), names), **{"delta.checkpointPolicy": "v2"}
    )
    status, out, _ = run("sql", f"ALTER TABLE '{used}' DROP FEATURE V2Checkpoint TRUNCATE HISTORY")
    assert status == 4 and "wait until" in out
    status, _, messages = run("sql", f"ALTER TABLE '{used}' DROP FEATURE clustering")
    assert status == 3 and "feature-absent" in messages
    assert run("sql", "SELECT 1")[0] == 2


def test_compat(table: Path) -> None:
    status, out, _ = run("compat", str(table), "--for", "delta-rs@0.19", "--json")
    (verdict,) = json.loads(out)[0]["clients"]
    assert status == 3 and verdict["read"] == "no" and verdict["blocks"]["read"] == ["v2Checkpoint"]
    assert run("compat", str(table), "--for", "duckdb", "--mode", "write")[0] == 0
    assert run("compat", str(table), "--for", "nobody")[0] == 2
    assert "duckdb" in run("compat", str(table))[1]


def test_many_tables_go_on_after_a_failure(tmp_path: Path) -> None:
    names = frozenset({"appendOnly", "invariants", "changeDataFeed"})
    tables = [make(tmp_path / "db" / "Tables" / n, Protocol(1, 7, None, names)) for n in ("a", "b", "c")]
    (tables[1] / "_delta_log" / f"{0:020}.json").write_text("{torn")
    status, out, messages = run("features", "drop", str(tmp_path / "db"), "changeDataFeed", "--yes")
    assert status == 3 and messages == ""
    assert out.splitlines()[0] == "3 tables: 2 changed, 1 refused"
    assert "1 × table-unreadable" in out and str(tables[1]) in out
    for path in (tables[0], tables[2]):
        snapshot = read_snapshot(path)
        assert snapshot is not None and snapshot.version == 1
    run("features", "drop", str(tmp_path / "db"), "changeDataFeed", "--yes")
    again = read_snapshot(tables[0])
    assert again is not None and again.version == 1
