"""Each option of a table is changed to another one later: what then holds, or an error with the way out (history.md).

Nothing is lost, and other tables go on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.change_tables import marked, put_at
from tests.landing import declare
from tests.table_rows import read_table

from lakemirror import MirroredDatabase
from lakemirror.lint import check
from lakemirror.storage import LocalStorage
from lakemirror.verify.proof import Options as Against
from lakemirror.verify.proof import verify_database

TRACK = "history-track-changed"
DELETES = "deletes-mode-changed"
TABLES = ("t", "t__changes", "t__history", "past")
SOFT = {"deletes": "soft"}
ORDERED = {"sequence": "n"}
ALL = {**SOFT, **ORDERED, "history": ["changes", "scd2"]}

CHANGES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, SOFT, ""), ({}, {"deletes": "ignore"}, ""), ({"deletes": "ignore"}, {}, ""), ({"deletes": "ignore"}, SOFT, ""),
    (SOFT, {}, DELETES), (SOFT, {"deletes": "ignore"}, DELETES), (ALL, {**ALL, "deletes": "hard"}, DELETES),
    ({}, ORDERED, ""), (ORDERED, {}, ""), (ORDERED, {"sequence": "m"}, ""), (ORDERED, {"sequence": ["n", "m"]}, ""),
    ({"sequence": ["n", "m"]}, ORDERED, ""), (ALL, {**ALL, "sequence": None}, TRACK),
    (ALL, {**ALL, "sequence": "m"}, TRACK), (ALL, {**ALL, "sequence": ["n", "m"]}, TRACK),
    ({"history": "scd2"}, {"history": "scd2", **ORDERED}, TRACK),
    ({}, {"history": "changes"}, ""), ({}, {"history": "scd2"}, ""), (ORDERED, {**ORDERED, "history": "scd2"}, ""),
    ({"history": "scd2"}, {"history": "changes"}, ""), ({"history": "changes"}, {"history": "scd2"}, ""),
    (ALL, {}, DELETES), ({"history": "scd2"}, {**SOFT, "history": {"mode": "scd2", "track": ["v"]}}, TRACK),
    (ALL, {**ALL, "history": "scd2"}, ""), (ALL, {**ALL, "history": "changes"}, ""), (ALL, {**ALL, "history": []}, ""),
    ({"history": "scd2"}, {"history": {"mode": "scd2", "track": ["v"]}}, TRACK),
    ({"history": {"mode": "scd2", "track": ["v"]}}, {"history": "scd2"}, TRACK),
    ({"history": {"mode": "scd2", "track": ["v"]}}, {"history": {"mode": "scd2", "track": ["w"]}}, TRACK),
    ({"history": {"mode": "scd2", "track": ["v", "w"]}}, {"history": {"mode": "scd2", "track": ["W", "v"]}}, ""),
    ({"history": "scd2"}, {"history": {"mode": "scd2", "name": "past"}}, ""),
    ({"history": {"mode": "changes", "name": "log"}}, {"history": {"mode": "changes", "name": "t__late"}}, ""),
]  # fmt: skip


def sync(database: Path, **settings: Any) -> Any:
    given = {"engine": "local", "durability": "process", "settle": 0, **settings}
    return MirroredDatabase(database, **given).sync().failed.get("t")


def begun(database: Path, options: dict[str, Any]) -> None:
    declare(database, "t", ["id"], lakemirror=options)
    put_at(database, "t", 1, marked([4] * 3, id=[1, 2, 3], v=["a", "b", "c"], w=["x"] * 3, n=[1] * 3, m=[9] * 3))
    put_at(database, "t", 2, marked([4, 2], id=[1, 2], v=["A", None], w=["x", None], n=[2, 2], m=[10, 10]))
    assert sync(database, batch_files=1) is None


def held(database: Path) -> dict[str, list[str]]:
    names = [path.parent.name for path in (database / "Tables").glob("*/_delta_log")]
    chosen = [name for name in names if name in TABLES]
    return {name: sorted(map(str, read_table(database / "Tables" / name).to_pylist())) for name in chosen}


@pytest.mark.parametrize(("before", "after", "code"), CHANGES, ids=str)
def test_an_option_is_changed(tmp_path: Path, before: dict[str, Any], after: dict[str, Any], code: str) -> None:
    begun(tmp_path, before)
    rows = held(tmp_path)
    declare(tmp_path, "t", ["id"], lakemirror=after)
    declare(tmp_path, "u", ["id"])
    put_at(tmp_path, "u", 1, {"id": [1]})
    put_at(tmp_path, "t", 3, marked([4, 2, 4], id=[1, 3, 4], v=["B", None, "d"], w=["x"] * 3, n=[3] * 3, m=[11] * 3))
    told = {each.code for each in check(tmp_path, settle=0) if each.table == "t" and each.severity == "error"}
    assert told == ({code} if code else set()), "it is known before"
    error = sync(tmp_path)
    assert read_table(tmp_path / "Tables/u").num_rows == 1
    if not code:
        assert error is None
        living = [row for row in read_table(tmp_path / "Tables/t").to_pylist() if not row.get("__deleted")]
        kept = [(3, "c")] if after.get("deletes") == "ignore" else []
        kept += [(2, "b")] if before.get("deletes") == "ignore" else []
        assert sorted((row["id"], row["v"]) for row in living) == sorted([(1, "B"), (4, "d"), *kept])
        (status,) = [each for each in MirroredDatabase(tmp_path).status().tables if each.name == "t"]
        both = before.get("sequence"), after.get("sequence")
        assert ("sequence-changed" in {each.code for each in status.warnings}) is (all(both) and both[0] != both[1])
        if (tmp_path / "Tables/past").exists():
            assert read_table(tmp_path / "Tables/t__history").num_rows == 4, "the table of the old name stays"
        return
    assert error.code == code and not error.retry and str(tmp_path) not in str(error)
    assert ("put " in error.hint.lower() or "Take " in error.hint) and held(tmp_path) == rows, "nothing is applied"
    declare(tmp_path, "t", ["id"], lakemirror=before)  # the way out that every hint has
    assert sync(tmp_path) is None
    found = {row["id"]: row["v"] for row in read_table(tmp_path / "Tables/t").to_pylist()}
    assert found[1] == "B" and found[4] == "d"


@pytest.mark.parametrize(
    ("name", "value", "options"),
    [("__deleted", True, SOFT), ("__deleted_at", "x", SOFT), ("__Deleted", 1, {**SOFT, "history": "changes"}),
     ("__START_AT", 1, {"history": "scd2"}), ("__file", "x", {"history": "changes"}), ("__row", 1, ORDERED)],
)  # fmt: skip
def test_a_column_that_the_source_had_before(tmp_path: Path, name: str, value: Any, options: dict[str, Any]) -> None:
    """It has a name that the option reserves. It is not taken for a column of ours, and is not lost."""
    declare(tmp_path, "t", ["id"])
    put_at(tmp_path, "t", 1, marked([4, 4], id=[1, 2], n=[1, 1], **{name: [value] * 2}))
    assert sync(tmp_path) is None
    rows = held(tmp_path)
    declare(tmp_path, "t", ["id"], lakemirror=options)
    put_at(tmp_path, "t", 2, marked([4], id=[1], n=[2]))
    (told,) = [each for each in check(tmp_path, settle=0) if each.severity == "error"]
    error = sync(tmp_path)
    assert told.code == error.code == "column-name-reserved" and error.column == name
    assert "Take the option" in error.hint and held(tmp_path) == rows
    declare(tmp_path, "t", ["id"])
    assert sync(tmp_path) is None and read_table(tmp_path / "Tables/t").num_rows == 2


def test_a_resync_puts_the_changes_in_the_order_of_another_sequence(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"], lakemirror={"sequence": "n"})
    put_at(tmp_path, "t", 1, marked([4, 4], id=[1, 1], v=["a", "b"], n=[2, 1], m=[1, 2]))
    declare(tmp_path, "u", ["id"])
    put_at(tmp_path, "u", 1, {"id": [1]})
    assert sync(tmp_path) is None
    declare(tmp_path, "t", ["id"], lakemirror={"sequence": "m"})
    put_at(tmp_path, "t", 2, marked([4], id=[2], v=["c"], n=[1], m=[1]))
    assert sync(tmp_path) is None

    def warned() -> list[str]:
        (status,) = [each for each in MirroredDatabase(tmp_path).status().tables if each.name == "t"]
        return [each.code for each in status.warnings]

    assert warned() == ["sequence-changed"]
    assert {row["v"] for row in read_table(tmp_path / "Tables/t").to_pylist()} == {"a", "c"}
    MirroredDatabase(tmp_path).resync("t")
    assert sync(tmp_path) is None and warned() == []
    assert {row["v"] for row in read_table(tmp_path / "Tables/t").to_pylist()} == {"b", "c"}


@pytest.mark.parametrize("deletes", [True, False])
def test_the_message_says_what_the_table_has(tmp_path: Path, deletes: bool) -> None:
    declare(tmp_path, "t", ["id"], lakemirror=SOFT)
    put_at(tmp_path, "t", 1, marked([4, 4, *([2] if deletes else [])], id=[1, 2, *([2] if deletes else [])]))
    assert sync(tmp_path) is None
    declare(tmp_path, "t", ["id"])
    put_at(tmp_path, "t", 2, marked([4], id=[1]))
    error = sync(tmp_path)
    assert error.message == (
        "Tables/t: deletes were soft and are now hard (Files/LandingZone/t/_metadata.json), and the table still has "
        "`__deleted`"
    )
    MirroredDatabase(tmp_path).resync("t", purge_deleted=True)
    assert sync(tmp_path) is None
    assert read_table(tmp_path / "Tables/t").num_rows == 2 - deletes


@pytest.mark.parametrize(
    ("code", "keys", "options"),
    [
        ("metadata-invalid", ["id"], {"delets": "soft"}),
        ("metadata-invalid", ["id"], {"history": {"mode": "scd2", "name": "t"}}),
        ("metadata-invalid", ["id"], {"history": {"mode": "scd2", "name": "other", "track": ["x"]}}),
        ("history-track-changed", ["id"], {"history": {"mode": "scd2", "track": ["v"]}}),
        ("history-track-changed", ["id"], {"history": "scd2", "sequence": "n"}),
        ("key-columns-changed", ["v"], {"history": "scd2"}),
    ],
)
def test_an_error_of_an_option_names_its_file(tmp_path: Path, code: str, keys: list[str], options: Any) -> None:
    declare(tmp_path, "t", ["id"], lakemirror={"history": "scd2"})
    put_at(tmp_path, "t", 1, marked([4], id=[1], v=["a"], n=[1]))
    assert sync(tmp_path) is None
    declare(tmp_path, "t", keys, lakemirror=options)
    put_at(tmp_path, "t", 2, marked([4], id=[2], v=["b"], n=[2]))
    error = sync(tmp_path)
    assert error.code == code
    assert error.file == "Files/LandingZone/t/_metadata.json" and error.file in error.message, error.message


def test_versions_cannot_begin_without_the_sequence(tmp_path: Path) -> None:
    """Rows of a time without it are versions since ever."""
    declare(tmp_path, "t", ["id"])
    put_at(tmp_path, "t", 1, marked([4, 4, 4], id=[1, 2, 3], v=["a", "b", "c"]))
    assert sync(tmp_path) is None
    declare(tmp_path, "t", ["id"], lakemirror={**ORDERED, "history": "scd2"})
    put_at(tmp_path, "t", 2, marked([4], id=[1], v=["A"], n=[2]))
    error = sync(tmp_path)
    assert error.code == "sequence-missing" and "Declare `sequence` first" in error.hint
    assert error.file == "Files/LandingZone/t/_metadata.json" and error.file in error.message
    declare(tmp_path, "t", ["id"], lakemirror=ORDERED)
    assert sync(tmp_path) is None
    declare(tmp_path, "t", ["id"], lakemirror={**ORDERED, "history": "scd2"})
    put_at(tmp_path, "t", 3, marked([4, 2], id=[2, 3], v=["B", None], n=[3, 3]))
    put_at(tmp_path, "t", 4, marked([4], id=[2], v=["late"], n=[1]))
    assert sync(tmp_path, batch_files=1) is None
    found = [tuple(row.values()) for row in read_table(tmp_path / "Tables/t__history").to_pylist()]
    assert sorted(found, key=repr) == sorted(
        [
            (1, "A", 2, 2, None), (2, "B", 3, 3, None), (2, "b", None, None, 1), (2, "late", 1, 1, 3),
            (3, "c", None, None, 3),
        ],
        key=repr,
    )  # fmt: skip


def test_a_check_finds_a_tracked_column_that_no_file_has(tmp_path: Path) -> None:
    begun(tmp_path, {})
    declare(tmp_path, "t", ["id"], lakemirror={"history": {"mode": "scd2", "track": ["x"]}})
    put_at(tmp_path, "t", 3, marked([4], id=[1], v=["B"], w=["x"], n=[3], m=[11]))
    (found,) = [each for each in check(tmp_path, settle=0) if each.severity == "error"]
    error = sync(tmp_path)
    assert (found.code, found.message) == (error.code, error.message) and "names 'x'" in error.message


@pytest.mark.parametrize(
    ("keys", "options", "code"),
    [
        (["n"], {}, "key-columns-changed"),
        (["n"], {"history": "scd2"}, "key-columns-changed"),
        (["id"], {"history": [{"mode": "changes", "name": "t__history"}, {"mode": "scd2", "name": "t__changes"}]},
         "table-name-ambiguous"),
    ],
)  # fmt: skip
def test_what_is_refused_is_no_damage(tmp_path: Path, keys: list[str], options: Any, code: str) -> None:
    declare(tmp_path, "t", ["id"], lakemirror={"history": ["changes", "scd2"]})
    put_at(tmp_path, "t", 1, marked([4, 4], id=[1, 2], v=["a", "b"], n=[1, 1]))
    assert sync(tmp_path) is None
    declare(tmp_path, "t", keys, lakemirror=options)
    assert sync(tmp_path).code == code
    report = verify_database(LocalStorage(tmp_path), (), Against(against_files=True))
    assert not [each for each in report.findings if each.severity == "error"], report.findings
