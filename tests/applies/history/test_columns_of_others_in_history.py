"""Columns that another writer renamed, dropped or added in tables with options (history.md, section 3): as in any
mirrored table, and never silently where keys, order, deleted rows or versions need them."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.applies.test_columns_of_others import Fields, added, altered, dropped, renamed
from tests.change_tables import expected_versions, held_versions, marked, put_at
from tests.landing import declare, folder
from tests.rounds import every_second
from tests.table_rows import read_table

from lakemirror import MirroredDatabase
from lakemirror.delta.log import read_snapshot
from lakemirror.errors import LakemirrorError
from lakemirror.features.drop import Wish, drop
from lakemirror.maintenance.compaction import merge_small_files
from lakemirror.storage import LocalStorage
from lakemirror.verify.proof import Options, verify_database

ALL = {"deletes": "soft", "sequence": "n", "history": ["changes", "scd2"]}
TABLES = ("t", "t__changes", "t__history", "t__late")


def sync(database: Path, **settings: Any) -> LakemirrorError | None:
    given = {"engine": "local", "durability": "process", "settle": 0, **settings}
    return MirroredDatabase(database, **given).sync().failed.get("t")


def begun(database: Path, options: dict[str, Any]) -> None:
    """Row 1 has two versions, row 2 was deleted."""
    shutil.copytree(_begun(json.dumps(options)).name, database, dirs_exist_ok=True)


@cache
def _begun(options: str) -> tempfile.TemporaryDirectory[str]:
    """A database that tests copy, instead of making it again; removed when the process ends."""
    made = tempfile.TemporaryDirectory()
    _begin(Path(made.name), json.loads(options))
    return made


def _begin(database: Path, options: dict[str, Any]) -> None:
    declare(database, "t", ["id"], lakemirror=options)
    put_at(database, "t", 1, marked([4] * 3, id=[1, 2, 3], v=["a", "b", "c"], w=["x", "y", "z"], n=[1, 1, 1]))
    put_at(database, "t", 2, marked([4, 2], id=[1, 2], v=["A", None], w=["x", None], n=[2, 2]))
    assert sync(database, batch_files=1) is None


def go_on(database: Path, *, has_w: bool = True) -> None:
    """A larger and small applies, with merges in between; row 3 goes, row 4 comes, row 2 comes back. `has_w`: change
    files still have that column."""

    def put(number: int, markers: list[int], w: list[str | None], **columns: Any) -> None:
        columns = {**columns, "w": w} if has_w else columns
        put_at(database, "t", number, marked(markers, n=[number] * len(markers), **columns))

    put(3, [4, 4, 2], ["x", "q", None], id=[1, 4, 3], v=["AA", "d", None])
    assert sync(database) is None
    put(4, [4, 4], ["xx", "q"], id=[1, 4], v=["AA", "D"])
    put(5, [4], ["Y"], id=[2], v=["B"])
    assert sync(database, batch_files=1) is None
    for name in TABLES:
        while (database / "Tables" / name).exists() and merge_small_files(str(database / "Tables" / name)):
            pass
    put(6, [4], ["xx"], id=[1], v=["last"])
    assert sync(database) is None


def rows(database: Path, table: str, *names: str) -> list[tuple[Any, ...]]:
    found = read_table(database / "Tables" / table, list(names)).to_pylist()
    return sorted((tuple(row[name] for name in names) for row in found), key=repr)


def wrong(database: Path) -> set[str]:
    """What `verify` finds that is an error."""
    report = verify_database(LocalStorage(database), (), Options(against_files=True))
    return {each.code for each in report.findings if each.severity == "error"}


NEEDED = [
    ("t", "id"), ("t", "n"), ("t", "__deleted"), ("t", "__deleted_at"), ("t__history", "id"), ("t__history", "n"),
    ("t__history", "__START_AT"), ("t__history", "__END_AT"), ("t__late", "id"), ("t__late", "n"),
    ("t__late", "__deleted_at"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("table", "name", "again"),
    every_second([(*each, (number + of) % 2 == 1) for number, each in enumerate(NEEDED) for of in (0, 1)]),
)
def test_a_column_that_no_change_can_be_applied_without(tmp_path: Path, table: str, name: str, again: bool) -> None:
    begun(tmp_path, ALL)
    target = tmp_path / "Tables" / table
    altered(target, renamed(name, "other"))
    if again:
        altered(target, added(name, "long", 90))
    put_at(tmp_path, "t", 3, marked([4, 2], id=[1, 3], v=["B", None], w=["x", None], n=[3, 3]))
    before = [rows(tmp_path, each, "v", "w") for each in TABLES]
    declare(tmp_path, "u", ["id"])
    put_at(tmp_path, "u", 1, {"id": [1]})
    error = sync(tmp_path)
    assert error is not None and error.code == "key-columns-missing-in-table" and not error.retry
    assert f"Tables/{table}: " in error.message and f"'{name}' (its values are in 'other')" in error.message
    assert ("resync" in str(error.hint)) is (table == "t") and "Rename the column back" in str(error.hint)
    assert str(tmp_path) not in str(error)
    assert [rows(tmp_path, each, "v", "w") for each in TABLES] == before
    assert read_table(tmp_path / "Tables/u").num_rows == 1, "other tables go on"
    if again:
        altered(target, dropped(name))
    altered(target, renamed("other", name))
    assert sync(tmp_path) is None
    assert rows(tmp_path, "t__history", "id", "v", "__START_AT", "__END_AT") == [
        (1, "A", 2, 3), (1, "B", 3, None), (1, "a", 1, 2), (2, "b", 1, 2), (3, "c", 1, 3),
    ]  # fmt: skip
    assert not wrong(tmp_path)


@pytest.mark.parametrize("change", [dropped("w"), renamed("w", "other")], ids=["dropped", "renamed"])
@pytest.mark.parametrize("table", TABLES)
def test_a_column_that_is_added_again_is_a_warning_of_its_table(tmp_path: Path, table: str, change: Any) -> None:
    begun(tmp_path, ALL)
    altered(tmp_path / "Tables" / table, change)
    put_at(tmp_path, "t", 3, marked([4], id=[1], v=["B"], w=["x"], n=[3]))
    put_at(tmp_path, "t", 4, marked([4], id=[1], v=["C"], w=["x"], n=[4]))
    assert sync(tmp_path, batch_files=1) is None
    (status,) = MirroredDatabase(tmp_path).status().tables
    (warned,) = [each for each in status.warnings if each.code == "column-added-again"]
    assert warned.message.startswith(f"Tables/{table}: " if table != "t" else "another writer")
    assert "'w'" in warned.message


@pytest.mark.parametrize("table", ["t", "t__history"])
def test_the_ways_out(tmp_path: Path, table: str) -> None:
    begun(tmp_path, ALL)
    altered(tmp_path / "Tables" / table, renamed("id", "other"))
    assert sync(tmp_path) is not None
    if table == "t":
        MirroredDatabase(tmp_path).resync("t")
    else:
        (tmp_path / "Tables/t__history").rename(tmp_path / "moved")
    put_at(tmp_path, "t", 3, marked([4, 2], id=[1, 3], v=["B", None], w=["x", None], n=[3, 3]))
    assert sync(tmp_path) is None
    assert rows(tmp_path, "t", "id", "v", "n", "__deleted") == [
        (1, "B", 3, False), (2, "b", 1, True), (3, "c", 1, True),
    ]  # fmt: skip
    found = rows(tmp_path, "t__history", "id", "v", "__START_AT", "__END_AT")
    assert found[:2] == [(1, "A", 2, 3), (1, "B", 3, None)] and (3, "c", 1, 3) in found


ACTS: dict[str, Callable[[Fields], Fields]] = {
    "dropped": dropped("w"), "renamed": renamed("w", "ww"), "added": added("more", "string", 90),
}  # fmt: skip
OPTIONS: dict[str, dict[str, Any]] = {
    "soft": {"deletes": "soft"},
    "changes": {"history": "changes"},
    "track": {"history": {"mode": "scd2", "track": ["v"]}},
    "all": ALL,
}
PLACES = [
    pytest.param(options, where, act, id=f"{options}-{name}-{act}")
    for options in OPTIONS
    for name, where in (("mirrored", TABLES[:1]), ("history", TABLES[1:]), ("every", TABLES))
    if options != "soft" or name == "mirrored"  # it has no other table
    for act in ACTS
]


@pytest.mark.parametrize(("options", "where", "act"), every_second(PLACES))
def test_another_column(tmp_path: Path, options: str, act: str, where: tuple[str, ...]) -> None:
    """Old values go with their column; what change files still have comes again, NULL in older rows."""
    begun(tmp_path, OPTIONS[options])
    altered_in = [name for name in where if (tmp_path / "Tables" / name).exists()]
    for name in altered_in:
        altered(tmp_path / "Tables" / name, ACTS[act])
    go_on(tmp_path)
    is_soft, is_all = OPTIONS[options].get("deletes") == "soft", options == "all"
    dead = [(3, "c", "z")] if is_soft else []
    living = [(1, "last", "xx"), (2, "B", "Y"), (4, "D", "q")]
    is_lost = act != "added" and "t" in altered_in
    expected = [*living, *((number, v, None if is_lost else w) for number, v, w in dead)]
    assert rows(tmp_path, "t", "id", "v", "w") == sorted(expected, key=repr)
    if act == "renamed" and is_lost and dead:
        assert (3, "z") in rows(tmp_path, "t", "id", "ww")
    if (tmp_path / "Tables/t__changes").exists():
        found = rows(tmp_path, "t__changes", "id", "v", "w", "__operation")
        lost = act != "added" and "t__changes" in altered_in
        assert (1, "a", None if lost else "x", "upsert") in found and (1, "last", "xx", "upsert") in found
        assert len(found) == 12
    if (tmp_path / "Tables/t__history").exists():
        found = rows(tmp_path, "t__history", "id", "v", "w")
        lost = act != "added" and "t__history" in altered_in
        old = [(1, "A", "x"), (1, "a", "x"), (2, "b", "y"), (3, "c", "z")]
        new = [(1, "AA", "x"), (1, "AA", "xx"), (1, "last", "xx"), (2, "B", "Y"), (4, "D", "q"), (4, "d", "q")]
        if not is_all:  # `w` is not tracked
            new.remove((1, "AA", "x"))
        assert found == sorted([*new, *((n, v, None if lost else w) for n, v, w in old)], key=repr)
    if act == "added":
        assert not wrong(tmp_path)


@pytest.mark.parametrize(("options", "where", "act"), every_second(PLACES, 1))  # those that the test above leaves out
def test_another_column_that_change_files_do_not_have_any_more(
    tmp_path: Path, options: str, act: str, where: tuple[str, ...]
) -> None:
    begun(tmp_path, OPTIONS[options])
    for name in where:
        if (tmp_path / "Tables" / name).exists():
            altered(tmp_path / "Tables" / name, ACTS[act])
    go_on(tmp_path, has_w=False)
    dead = [(3, "c")] if OPTIONS[options].get("deletes") == "soft" else []
    assert rows(tmp_path, "t", "id", "v") == [(1, "last"), (2, "B"), *dead, (4, "D")]
    assert ("w" in read_table(tmp_path / "Tables/t").column_names) is (act == "added" or "t" not in where)
    if (tmp_path / "Tables/t__changes").exists():
        found = rows(tmp_path, "t__changes", "id", "v", "__operation")
        assert len(found) == 12 and (1, "last", "upsert") in found
    if (tmp_path / "Tables/t__history").exists():
        found = rows(tmp_path, "t__history", "id", "v")
        old, new = [(1, "A"), (1, "a"), (2, "b"), (3, "c")], [(1, "AA"), (1, "last"), (2, "B"), (4, "D"), (4, "d")]
        assert found == sorted([*old, *new], key=repr)


def test_column_mapping_may_be_dropped(tmp_path: Path) -> None:
    """Then the files have the columns' own names, also those of columns that came while there was a mapping."""
    declare(tmp_path, "t", ["id"])
    put_at(tmp_path, "t", 1, marked([4, 4], id=[1, 2], v=["a", "b"], n=[1, 1]))
    assert sync(tmp_path) is None
    altered(tmp_path / "Tables/t", renamed("v", "w"))
    declare(tmp_path, "t", ["id"], lakemirror={"deletes": "soft", "sequence": "n"})
    put_at(tmp_path, "t", 2, marked([2], id=[1], n=[2]))
    assert sync(tmp_path) is None
    drop(str(tmp_path / "Tables/t"), Wish(("columnMapping",)))
    put_at(tmp_path, "t", 3, marked([2], id=[2], n=[3]))
    assert sync(tmp_path) is None
    assert rows(tmp_path, "t", "id", "w", "__deleted") == [(1, "a", True), (2, "b", True)]


def test_deletion_vectors_may_be_dropped(tmp_path: Path) -> None:
    """Of a history table alone: it goes on without them, and the mirrored table has them."""
    declare(tmp_path, "t", ["id"], lakemirror=(options := {"sequence": "n", "history": "scd2"}))
    for number in range(1, 5):
        put_at(tmp_path, "t", number, marked([4, 4], id=[1, number + 1], v=[f"{number}", "x"], n=[number * 10] * 2))
        assert sync(tmp_path) is None
        if number == 2:
            drop(str(tmp_path / "Tables/t__history"), Wish(("deletionVectors",)))
    assert held_versions(tmp_path, "t__history") == expected_versions(tmp_path, "t", ["id"], options)
    vectors = {}
    for table in ("t", "t__history"):
        snapshot = read_snapshot(tmp_path / "Tables" / table)
        assert snapshot is not None
        vectors[table] = any("deletionVector" in add for add in snapshot.files.values())
    assert vectors == {"t": True, "t__history": False}


@pytest.mark.parametrize("name", ["id", "__START_AT", "__END_AT"])
def test_a_folder_is_dropped_whose_history_has_lost_a_column(tmp_path: Path, name: str) -> None:
    begun(tmp_path, ALL)
    altered(tmp_path / "Tables/t__history", renamed(name, "other"))
    shutil.rmtree(folder(tmp_path, "t"))
    errors = [sync(tmp_path, drop_after=0) for _ in range(3)]
    assert not (tmp_path / "Tables/t").exists(), errors
    assert read_table(tmp_path / "Tables/t__history").num_rows == 4
