"""Features over many tables: one summary, a report, patterns; whatever one table is, the others go on."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import typer
from protocol_tables import make
from tests.commands import CommandRunner

from lakemirror.cli import features as cli_features
from lakemirror.delta.feature_names import features_of
from lakemirror.delta.log import Protocol, read_commit, read_snapshot
from lakemirror.errors import LakemirrorError
from lakemirror.features.catalogue import BY_NAME
from lakemirror.features.drop import drop
from lakemirror.features.fleet import Outcome, act_on_each, chosen, summary
from lakemirror.features.plan import Wish

app = typer.Typer()
app.add_typer(cli_features.app, name="features")


def run(*arguments: str) -> tuple[int, str, str]:
    result = CommandRunner().invoke(app, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """Twelve tables: clean ones, ones with a feature, one in use, one torn, one whose commit is a folder."""
    tables = tmp_path / "shop" / "Tables"
    names = frozenset({"appendOnly", "invariants"})
    for number in range(4):
        make(tables / f"clean{number}", Protocol(1, 2))
        make(tables / "sales" / f"ntz{number}", Protocol(3, 7, frozenset({"timestampNtz"}), names | {"timestampNtz"}))
    used(make(tables / "used", Protocol(3, 7, frozenset({"variantType"}), names | {"variantType"})), "variant")
    make(tables / "archive" / "old", Protocol(3, 7, frozenset({"timestampNtz"}), names | {"timestampNtz"}))
    torn = make(tables / "torn", Protocol(1, 2))
    (torn / "_delta_log" / f"{0:020}.json").write_text("{")
    odd = make(tables / "odd", Protocol(1, 2))
    (odd / "_delta_log" / f"{0:020}.json").unlink()
    (odd / "_delta_log" / f"{0:020}.json").mkdir()
    return tmp_path / "shop"


def used(table: Path, kind: str) -> Path:
    log = table / "_delta_log" / f"{0:020}.json"
    actions = read_commit(log)
    for action in actions:
        if metadata := action.get("metaData"):
            schema = json.loads(metadata["schemaString"])
            schema["fields"].append({"name": "x", "type": kind, "nullable": True, "metadata": {}})
            metadata["schemaString"] = json.dumps(schema)
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    return table


def features(table: Path) -> frozenset[str]:
    found = read_snapshot(table)
    assert found is not None
    return features_of(found.protocol)


def test_one_summary_and_one_report(fleet: Path, tmp_path: Path) -> None:
    report = tmp_path / "drops.csv"
    given = [
        "features",
        "drop",
        str(fleet),
        "--for",
        "delta-rs@0.10",
        "--exclude",
        "archive/*",
        "--report",
        str(report),
    ]
    status, out, messages = run(*given, "--yes")
    assert status == 3 and messages == ""
    assert out.splitlines()[0] == "11 tables: 4 changed, 4 nothing to do, 3 refused" or "failed" in out.splitlines()[0]
    assert "1 × feature-not-droppable: variantType is in use: column x" in out
    assert len(out.splitlines()) < 12
    rows = list(csv.DictReader(report.open()))
    assert len(rows) == 11 and {row["state"] for row in rows if "ntz" in row["table"]} == {"changed"}
    assert not any("timestampNtz" in features(fleet / "Tables" / "sales" / f"ntz{number}") for number in range(4))
    assert "timestampNtz" in features(fleet / "Tables" / "archive" / "old")
    assert "8 nothing to do" in run(*given, "--yes")[1].splitlines()[0]


def test_without_yes_only_a_summary_is_shown(fleet: Path) -> None:
    status, out, messages = run("features", "drop", str(fleet), "--for", "delta-rs@0.10")
    assert (status, out) == (3, "")
    assert "12 tables: 5 would change, 4 nothing to do" in messages and "--yes was not given" in messages


def test_a_plan_for_a_client_is_a_summary_and_json_is_a_list(fleet: Path, tmp_path: Path) -> None:
    report = tmp_path / "plan.json"
    status, out, _ = run(
        "features", "plan", str(fleet), "--for", "delta-rs@0.10", "--include", "sales/*", "--report", str(report)
    )
    assert (status, out) == (0, "4 tables: 4 would change\n")
    assert [row["state"] for row in json.loads(report.read_text())] == ["would change"] * 4
    one = str(fleet / "Tables" / "clean0")
    (only,) = json.loads(run("features", "list", one, "--json")[1])
    assert only["table"] == one


@pytest.mark.parametrize("arguments", [["--report", "x.txt"], ["--report", "none/x.csv"], ["--include", "nothing*"]])
def test_what_cannot_be_is_said_before_anything_is_done(fleet: Path, arguments: list[str]) -> None:
    assert run("features", "drop", str(fleet), "timestampNtz", "--yes", *arguments)[0] in (2, 3)
    assert "timestampNtz" in features(fleet / "Tables" / "archive" / "old")


def test_an_act_that_fails_in_any_way_ends_no_other() -> None:
    errors: dict[str, Exception] = {"a": PermissionError(13, "no"), "b": KeyError("x"),
                                    "c": LakemirrorError("concurrent-commit", "taken")}  # fmt: skip

    def act(table: Path) -> str:
        if table.name in errors:
            raise errors[table.name]
        return "done"

    seen: list[Outcome] = []
    found = act_on_each([Path(name) for name in "abcd"], act, lambda _: "changed", 2, seen.append)
    assert [(each.state, each.code) for each in found] == [
        ("failed", "storage-unavailable"), ("failed", "internal"), ("failed", "concurrent-commit"),
        ("changed", ""),
    ]  # fmt: skip
    assert sorted(each.table for each in seen) == list("abcd")
    assert summary(found)[0] == "4 tables: 1 changed, 3 failed"


def test_equal_reasons_are_one_line() -> None:
    many = [Outcome(f"t{n}", "refused", "feature-in-use", f"t{n}: why", "Do this.") for n in range(5000)]
    assert summary(many) == [
        "5,000 tables: 5,000 refused", "  5,000 × feature-in-use: …: why", "      Do this.",
        "      t0, t1, t2 and 4,997 more",
    ]  # fmt: skip


def test_patterns(tmp_path: Path) -> None:
    tables = [tmp_path / name for name in ("a", "sales/b", "sales/old/c")]
    assert chosen(tables, tmp_path, ["sales/*"], ["*/old/*"]) == [tmp_path / "sales/b"]
    assert chosen(tables, tmp_path) == tables


@pytest.mark.parametrize(("name", "kind"), [("timestampNtz", "timestamp_ntz"), ("variantType", "variant")])
def test_in_use_it_stays(tmp_path: Path, name: str, kind: str) -> None:
    names = frozenset({"appendOnly", "invariants", name})
    table = used(make(tmp_path / "t", Protocol(3, 7, frozenset({name}), names)), kind)
    with pytest.raises(LakemirrorError) as refused:
        drop(table, Wish((name,)))
    assert refused.value.code == "feature-not-droppable"
    assert refused.value.hint == BY_NAME[name].way_out
    assert name in features(table)


def test_columns_that_were_dropped_may_be_in_files(tmp_path: Path) -> None:
    names = frozenset({"appendOnly", "invariants", "columnMapping", "variantType"})
    mapping = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"}
    readers = frozenset({"columnMapping", "variantType"})
    table = make(tmp_path / "t", Protocol(3, 7, readers, names), **mapping)
    log = table / "_delta_log" / f"{0:020}.json"
    actions = read_commit(log)
    for action in actions:
        if metadata := action.get("metaData"):
            schema = json.loads(metadata["schemaString"])
            for number, field in enumerate(schema["fields"]):
                field["metadata"] = {"delta.columnMapping.id": number + 2,
                                     "delta.columnMapping.physicalName": field["name"]}  # fmt: skip
            metadata["schemaString"] = json.dumps(schema)
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    with pytest.raises(LakemirrorError, match="dropped under column mapping"):
        drop(table, Wish(("variantType",)))
