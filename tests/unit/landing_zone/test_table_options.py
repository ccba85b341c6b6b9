"""Options of a table under `lakemirror` in `_metadata.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.landing import declare, put

from lakemirror import MirroredDatabase
from lakemirror.errors import TableError
from lakemirror.landing_zone.metadata import parse_metadata
from lakemirror.landing_zone.table_options import CHANGES, SCD2, HistoryOptions, TableOptions


def options(ours: Any, keys: list[str] | None = None) -> TableOptions:
    content = {"keyColumns": ["id"] if keys is None else keys, "lakemirror": ours}
    return parse_metadata(json.dumps(content).encode(), "orders/_metadata.json").options


def test_a_table_without_options_is_the_default() -> None:
    assert options({}) == options({"complete": "rename"}) == TableOptions()


def test_every_option() -> None:
    found = options(
        {"deletes": "soft", "sequence": "at", "late_days": 3, "history": {"mode": "scd2", "track": ["a", "b"]}}
    )
    assert found == TableOptions("soft", ("at",), 3, (HistoryOptions(SCD2, "", ("a", "b")),))
    assert options({"sequence": ["at", "n"]}).sequence == ("at", "n")


def test_histories_by_mode_object_or_list() -> None:
    assert options({"history": "changes"}).history == (HistoryOptions(CHANGES),)
    found = options({"history": ["changes", {"mode": "scd2", "name": "orders_versions"}]}).history
    assert [each.table("orders") for each in found] == ["orders__changes", "orders_versions"]
    assert HistoryOptions(SCD2).table("orders") == "orders__history"
    assert options({"history": "changes"}, keys=[]).history


@pytest.mark.parametrize(
    ("ours", "says"),
    [
        ({"delets": "soft"}, "lakemirror.delets. Known are deletes, complete, freshness, history, "),
        ({"late_day": 3, "sequence": "n"}, "lakemirror.late_day. Known are late_days, complete, deletes, "),
        ({"history": {"mode": "scd2", "tracks": ["v"]}}, "lakemirror.history.tracks. Known are track, mode, name"),
        ({"deletes": "gone"}, "lakemirror.deletes"),
        ({"sequence": 3}, "lakemirror.sequence"),
        ({"sequence": ["a", "A"]}, 'names a column twice: ["a", "A"]'),
        ({"sequence": []}, "must name a column, or be a list of column names, not []"),
        ({"sequence": ["a", 3, [[1]]]}, 'not ["a", 3, a list]'),
        ({"sequence": "ID"}, 'names keyColumns alone: ["ID"] orders no changes of one key'),
        ({"history": 5}, "lakemirror.history.mode must be a string, not 5"),
        ({"sequence": "__rowmarker__"}, 'sequence names "__rowmarker__", which is no column of the source'),
        ({"history": {"mode": "scd2", "track": ["a", "__START_AT"]}}, 'history.track names "__START_AT"'),
        ({"history": {"mode": "scd2", "track": ["a", "Id"]}}, 'history.track names "Id", which is a key column'),
        ({"sequence": "n", "history": {"mode": "scd2", "track": ["N"]}}, 'names "N", which is a key column or the seq'),
        ({"late_days": 3}, "without lakemirror.sequence"),
        ({"sequence": "a", "late_days": 0}, "lakemirror.late_days"),
        ({"history": "scd3"}, "history.mode"),
        ({"history": {}}, "history.mode"),
        ({"history": {"mode": "changes", "track": ["a"]}}, "history.track"),
        ({"history": {"mode": "scd2", "tracks": ["a"]}}, "history.tracks"),
        ({"history": ["scd2", "scd2"]}, 'mode twice: ["scd2", "scd2"]'),
        ({"history": [{"mode": "scd2", "name": "X"}, {"mode": "changes", "name": "x"}]}, "one name"),
    ],
)
def test_a_wrong_option_names_itself(ours: Any, says: str) -> None:
    with pytest.raises(TableError) as failed:
        options(ours)
    assert failed.value.code == "metadata-invalid"
    assert says in failed.value.message


@pytest.mark.parametrize(
    ("table", "ours"),
    [("t", {"history": {"mode": "scd2", "name": "é" * 128}}), ("t" * 247, {"history": "scd2"}),
     ("t" * 250, {"sequence": "n"})],
)  # fmt: skip
def test_a_name_that_no_folder_can_have(tmp_path: Path, table: str, ours: Any) -> None:
    declare(tmp_path, table, ["id"], lakemirror=ours)
    put(tmp_path, table, 1, {"id": [1], "n": [1]})
    error = MirroredDatabase(tmp_path).sync().tables[table].error
    assert error is not None and error.code == "metadata-invalid"
    assert "256 bytes, and the name of a folder at most 255" in error.message
    assert f"lakemirror.{next(iter(ours))}" in error.message, "the option that asks for this table"
    assert error.file is not None and error.file.endswith("_metadata.json")


def test_an_option_at_another_place_is_warned_of() -> None:
    content = {"keyColumns": ["id"], "History": "scd2", "tracks": 1}
    warnings = [each.message for each in parse_metadata(json.dumps(content).encode(), "t/_metadata.json").warnings]
    told = "_metadata.json: the property {} is not known and was not applied"
    assert warnings == [told.format("History") + ": put it under lakemirror", told.format("tracks")]


def test_a_wrong_option_stops_its_table_alone(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"], lakemirror={"deletes": "sotf"})
    put(tmp_path, "t", 1, {"id": [1], "a": [1]})
    put(tmp_path, "u", 1, {"id": [1]})
    tables = MirroredDatabase(tmp_path).sync().tables
    error = tables["t"].error
    assert error is not None and error.code == "metadata-invalid" and "lakemirror.deletes" in error.message
    assert tables["u"].files == 1 and not (tmp_path / "Tables/t").exists()


@pytest.mark.parametrize("ours", [{"sequence": "a"}, {"history": "scd2"}, {"deletes": "soft"}, {"deletes": "ignore"}])
def test_what_needs_keys_is_refused_without_them(ours: Any) -> None:
    with pytest.raises(TableError, match="needs keyColumns"):
        options(ours, keys=[])
