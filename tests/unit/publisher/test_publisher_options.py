"""A publisher declares what the mirror does with deletes, late changes and history."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemirror import MirroredDatabase
from lakemirror.errors import LakemirrorError
from lakemirror.lint import check
from lakemirror.publisher import Landing, LandingTable


@pytest.fixture
def orders(tmp_path: Path) -> LandingTable:
    return Landing(tmp_path / "shop").table("orders", keys=["id"])


def declared(table: LandingTable) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((table.folder / "_metadata.json").read_text())
    return found


def test_options_are_declared_with_the_keys_and_replace_each_other(orders: LandingTable) -> None:
    orders.declare(
        deletes="soft", sequence="at", late_days=3, history=["changes", {"mode": "scd2", "track": ["price"]}]
    )
    assert declared(orders) == {
        "keyColumns": ["id"],
        "lakemirror": {
            "deletes": "soft", "sequence": "at", "late_days": 3,
            "history": ["changes", {"mode": "scd2", "track": ["price"]}],
        },
    }  # fmt: skip
    orders.declare(history="scd2")
    assert declared(orders)["lakemirror"] == {"history": "scd2"}
    orders.declare()
    assert declared(orders) == {"keyColumns": ["id"]}


def test_what_else_the_metadata_says_stays(orders: LandingTable) -> None:
    orders.folder.mkdir(parents=True)
    written = {"keyColumns": ["id"], "other": 1, "lakemirror": {"complete": "rename", "Deletes": "soft"}}
    (orders.folder / "_metadata.json").write_text(json.dumps(written))
    orders.declare(deletes="ignore")
    assert declared(orders) == {**written, "lakemirror": {"complete": "rename", "deletes": "ignore"}}


def test_publishing_keeps_the_options(orders: LandingTable, tmp_path: Path) -> None:
    orders.declare(deletes="soft")
    orders.insert([{"id": 1}])
    Landing(tmp_path / "shop").table("orders").insert([{"id": 2}])
    assert declared(orders)["lakemirror"] == {"deletes": "soft"}


@pytest.mark.parametrize("again", ["recreate", "recreate_first"])
def test_a_table_that_starts_again_keeps_its_options_once(tmp_path: Path, again: str) -> None:
    landing = Landing(tmp_path / "shop")
    landing.table("orders", keys=["id"]).declare(
        sequence=["day", "n"], late_days=2, history=[{"mode": "scd2", "name": "orders_past", "track": ["v"]}]
    )
    table = landing.table("orders")
    table.upsert([{"id": 1, "day": 1, "n": 1, "v": 1}])
    getattr(table, again)()
    table.upsert([{"id": 1, "day": 1, "n": 1, "v": 1}])
    assert declared(table) == {
        "keyColumns": ["id"],
        "lakemirror": {
            "sequence": ["day", "n"], "late_days": 2,
            "history": [{"mode": "scd2", "name": "orders_past", "track": ["v"]}],
        },
    }  # fmt: skip
    landing.table("orders").declare(deletes="ignore")
    table.upsert([{"id": 1, "day": 1, "n": 1, "v": 1}])
    assert declared(table)["lakemirror"] == {"deletes": "ignore"}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"deletes": "maybe"}, "deletes"),
        ({"sequence": ["a", "A"]}, "sequence"),
        ({"late_days": 3}, "late_days"),
        ({"history": "scd3"}, "mode"),
        ({"history": [{"mode": "changes", "track": ["v"]}]}, "track"),
        ({"history": {"mode": "changes", "name": "Orders"}}, "history.name"),
        ({"history": {"mode": "changes", "name": "sales.log"}}, "outside of its schema"),
        ({"history": ["scd2", {"mode": "changes", "name": "orders__history"}]}, "name of two tables"),
    ],
)
def test_a_wrong_option_is_named_and_nothing_is_written(
    orders: LandingTable, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(LakemirrorError) as error:
        orders.declare(**options)
    assert error.value.code == "metadata-invalid"
    assert named in error.value.message
    assert not (orders.folder / "_metadata.json").exists()


def test_a_table_without_keys_has_no_versions(tmp_path: Path) -> None:
    with pytest.raises(LakemirrorError, match="keyColumns") as error:
        Landing(tmp_path / "shop").table("log").declare(history="scd2")
    assert error.value.code == "metadata-invalid"


def test_a_delete_carries_the_sequence(orders: LandingTable) -> None:
    orders.declare(sequence=["day", "n"])
    published = orders.delete([{"id": 1, "v": "x", "day": 2, "n": 3}])
    assert published is not None
    assert pq.read_table(published.path).column_names == ["id", "day", "n", "__rowMarker__"]
    with pytest.raises(LakemirrorError, match="column n, which is in the sequence") as error:
        orders.delete([{"id": 1, "DAY": 2}])
    assert error.value.code == "sequence-missing" and orders.delete([]) is None


def test_a_delete_carries_the_sequence_of_the_operator(tmp_path: Path) -> None:
    options = {"*": {"sequence": "at"}, "orders": {"sequence": ["day", "n"]}}
    (tmp_path / "Files/LandingZone").mkdir(parents=True)
    (tmp_path / "mirroring.json").write_text(json.dumps({"lakemirror": {"tables": options}}))
    orders = Landing(tmp_path).table("orders", keys=["id"])
    for number in (1, 2):
        published = orders.delete([{"id": number, "v": "x", "day": 2, "n": 3}])
        assert published is not None
        assert pq.read_table(published.path).column_names == ["id", "day", "n", "__rowMarker__"]
    with pytest.raises(LakemirrorError, match="column at, which is in the sequence"):
        Landing(tmp_path).table("others", keys=["id"]).delete([{"id": 1}])


def test_a_delete_carries_the_time_of_the_source(orders: LandingTable) -> None:
    at = datetime(2026, 3, 1, tzinfo=timezone.utc)
    published = orders.delete([{"id": 1, "v": "x", "__sourceTimestamp__": at}])
    assert published is not None
    rows = pq.read_table(published.path)
    assert rows.column_names == ["id", "__sourceTimestamp__", "__rowMarker__"]
    assert rows["__sourceTimestamp__"].to_pylist() == [at]


def test_a_snapshot_has_no_sequence_for_rows_that_are_gone(orders: LandingTable) -> None:
    orders.declare(sequence="n")
    with pytest.raises(LakemirrorError, match="sequence") as error:
        orders.publish_snapshot([{"id": 1, "n": 1}])
    assert error.value.code == "not-supported"


def test_lint_names_a_wrong_option(orders: LandingTable, tmp_path: Path) -> None:
    orders.insert([{"id": 1}])
    (orders.folder / "_metadata.json").write_text('{"keyColumns": ["id"], "lakemirror": {"delets": "soft"}}')
    (found,) = (finding for finding in check(tmp_path / "shop", settle=0) if finding.code == "metadata-invalid")
    assert "delets" in found.message


def test_the_time_of_the_source_is_a_time(orders: LandingTable) -> None:
    """A text would be refused by the mirror, when it is too late to change it."""
    for method in (orders.upsert, orders.delete):
        with pytest.raises(LakemirrorError, match="__sourceTimestamp__ is string; it must be a timestamp") as raised:
            method([{"id": 1, "__sourceTimestamp__": "2026-03-01T00:00:00Z"}])
        assert raised.value.code == "type-unsupported" and "--types" in (raised.value.hint or "")
    assert not list(orders.folder.glob("*.parquet"))
    for moment in (datetime(2026, 3, 1), datetime(2026, 3, 1, tzinfo=timezone.utc), None):
        orders.upsert([{"id": 1, "__sourceTimestamp__": moment}])


@pytest.mark.parametrize("deletes", ["soft", "hard"])
def test_check_looks_at_the_time_of_the_source_as_an_apply_does(
    orders: LandingTable, tmp_path: Path, deletes: str
) -> None:
    orders.declare(deletes=deletes)
    orders.opened()
    rows = pa.table({"id": [1], "__rowMarker__": [4], "__sourceTimestamp__": ["2026-03-01"]})
    pq.write_table(rows, orders.folder / f"{1:020}.parquet")
    found = [each.code for each in check(tmp_path / "shop")]
    failed = MirroredDatabase(tmp_path / "shop", engine="local", durability="process").sync().failed
    assert found == [each.code for each in failed.values()] == (["type-unsupported"] if deletes == "soft" else [])


@pytest.mark.parametrize(
    ("own", "operators", "keeps"),
    [
        ({}, {}, False), ({"deletes": "soft"}, {}, True), ({"history": "scd2"}, {}, True),
        ({"history": "changes", "sequence": "at"}, {}, False), ({}, {"deletes": "soft"}, True),
        ({}, {"history": ["changes", "scd2"]}, True), ({}, {"deletes": "sotf"}, True),
    ],
    ids=str,
)  # fmt: skip
def test_whether_the_mirror_keeps_the_times_of_the_source(
    tmp_path: Path, own: dict[str, Any], operators: dict[str, Any], keeps: bool
) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/mirroring.json").write_text(json.dumps({"lakemirror": {"tables": {"ord*": operators}}}))
    table = Landing(tmp_path / "shop").table("orders", keys=["id"])
    table.declare(**own)
    assert table.keeps_times is keeps
    assert not Landing(tmp_path / "shop").table("ordinary").keeps_times, "without keys there is neither"
