"""Soft and ignored deletes through a whole database: columns, switching on, counts, errors (history.md, section 1)."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.commands import CommandRunner
from tests.landing import MARKER, declare, put
from tests.table_rows import read_table

from lakemirror import MirroredDatabase
from lakemirror.cli import app
from lakemirror.delta.log import read_snapshot
from lakemirror.engines import complete_rows, ordered_effect
from lakemirror.engines.kernels.ordered_fold import fold_ordered
from lakemirror.engines.unit_kernels import read_values
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.row_markers import UNCHANGED
from lakemirror.lint import check
from lakemirror.mirror.history import purge_deleted as purge_module

DAY = datetime(2026, 1, 1, tzinfo=timezone.utc)


def sync(database: Path, **options: Any) -> Any:
    result = MirroredDatabase(database, engine="local", durability="process", settle=0, **options).sync()
    return result.tables["t"].error


def rows(database: Path) -> list[tuple[Any, ...]]:
    """Rows by key; whether `__deleted_at` is there, in its place."""
    found = read_table(database / "Tables/t").sort_by("id").to_pylist()
    return [tuple(bool(v) if name == "__deleted_at" else v for name, v in row.items()) for row in found]


def soft(database: Path, deletes: str = "soft") -> None:
    declare(database, "t", ["id"], lakemirror={"deletes": deletes})


@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.parametrize("feed", [True, False])
def test_a_deleted_row_stays_and_comes_back(tmp_path: Path, vectors: bool, feed: bool) -> None:
    options = {"deletion_vectors": vectors, "change_data_feed": feed}
    soft(tmp_path)
    put(tmp_path, "t", 1, {"id": [1, 2, 3], "v": ["a", "b", "c"]})
    assert sync(tmp_path, **options) is None
    times = pa.array([DAY, None, DAY], pa.timestamp("us", "UTC"))
    put(tmp_path, "t", 2, {"id": [1, 2, 9], MARKER: [2, 2, 2], "__sourceTimestamp__": times})
    assert sync(tmp_path, **options) is None
    assert rows(tmp_path) == [(1, "a", True, True), (2, "b", True, True), (3, "c", False, False)]
    first, second, _ = read_table(tmp_path / "Tables/t").sort_by("id")["__deleted_at"].to_pylist()
    assert first == DAY and abs((datetime.now(timezone.utc) - second).total_seconds()) < 3600
    names = pa.array([["v"], None], pa.list_(pa.string()))
    put(tmp_path, "t", 3, {"id": [1, 2], "v": [None, "new"], MARKER: [4, 0], UNCHANGED: names})
    assert sync(tmp_path, **options) is None
    assert rows(tmp_path) == [(1, "a", False, False), (2, "new", False, False), (3, "c", False, False)]


@pytest.mark.parametrize(("memory", "again"), [(1 << 20, True), (1 << 30, False)])
def test_rows_of_deleted_keys_are_read_again_only_if_they_take_much_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: int, again: bool
) -> None:
    reads: list[Any] = []

    def read(shared: Any, unit: Any) -> Any:
        reads.append(unit)
        return read_values(shared, unit)

    monkeypatch.setattr(complete_rows, "read_values", read)
    texts = [f"{number}" * 500 for number in range(100, 200)]
    soft(tmp_path)
    put(tmp_path, "t", 1, {"id": range(100), "v": texts})
    assert sync(tmp_path, memory=memory) is None
    put(tmp_path, "t", 2, {"id": [200], "v": ["last"], MARKER: [4]})
    assert sync(tmp_path, memory=memory) is None
    put(tmp_path, "t", 3, {"id": [*range(0, 100, 2), 200], MARKER: [2] * 51})
    assert sync(tmp_path, memory=memory) is None
    kept = [(number, text, number % 2 == 0, number % 2 == 0) for number, text in enumerate(texts)]
    assert rows(tmp_path) == [*kept, (200, "last", True, True)]
    assert bool(reads) is again


def test_only_keys_with_more_than_a_delete_and_a_row_are_folded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folded: list[int] = []

    def fold(target: Any, ordering: Any, changes: Any, old: Any, remembered: Any) -> Any:
        folded.extend(changes["id"].to_pylist())
        return fold_ordered(target, ordering, changes, old, remembered)

    monkeypatch.setattr(ordered_effect, "fold_ordered", fold)
    soft(tmp_path)
    put(tmp_path, "t", 1, {"id": [1, 2, 3, 4, 5], "v": ["a", "b", "c", "d", "e"]})
    put(tmp_path, "t", 2, {"id": [4, 5], "v": ["f", "g"], MARKER: [0, 4]})
    put(tmp_path, "t", 3, {"id": [1], MARKER: [2]})
    assert sync(tmp_path, batch_files=1) is None
    assert folded == [4], "an insert may replace a deleted row"
    folded.clear()
    since = rows(tmp_path), read_table(tmp_path / "Tables/t").sort_by("id")["__deleted_at"].to_pylist()[0]
    put(
        tmp_path,
        "t",
        4,
        {"id": [1, 2, 3, 3, 4, 9], "v": [None, None, "h", None, None, None], MARKER: [2, 2, 4, 2, 2, 2]},
    )
    assert sync(tmp_path) is None
    assert folded == [3, 3, 4], "more than one change, or more than one row"
    gone = [(1, "a"), (2, "b"), (3, "h"), (4, "f")]
    assert rows(tmp_path) == [*((*row, True, True) for row in gone), (5, "g", False, False)]
    assert read_table(tmp_path / "Tables/t").sort_by("id")["__deleted_at"].to_pylist()[0] == since[1]


def test_deleted_rows_are_written_also_where_the_changes_are_read_again(tmp_path: Path) -> None:
    soft(tmp_path)
    put(tmp_path, "t", 1, {"id": [1, 2], "v": ["a", "b"], "n": [1, 2]})
    assert sync(tmp_path, memory=1 << 20) is None
    names = pa.array([None, ["v"], None], pa.list_(pa.string()))
    long = "x" * (200 << 10)
    put(
        tmp_path,
        "t",
        2,
        {"id": [1, 1, 2], "v": [long, None, None], "n": [3, 4, 0], MARKER: [4, 4, 2], UNCHANGED: names},
    )
    assert sync(tmp_path, memory=1 << 20) is None
    assert rows(tmp_path) == [(1, long, 4, False, False), (2, "b", 2, True, True)]


def test_inserts_alone_do_not_look_keys_up_until_a_row_is_deleted(tmp_path: Path) -> None:
    soft(tmp_path)
    put(tmp_path, "t", 1, {"id": [1]})
    put(tmp_path, "t", 2, {"id": [1]})
    assert sync(tmp_path, batch_files=1) is None
    assert [row[0] for row in rows(tmp_path)] == [1, 1], "duplicates are the publisher's affair"
    put(tmp_path, "t", 3, {"id": [1], MARKER: [2]})
    put(tmp_path, "t", 4, {"id": [1]})
    assert sync(tmp_path, batch_files=1) is None
    assert rows(tmp_path) == [(1, False, False)]


@pytest.mark.parametrize("name", ["v", "a name; with = odd"])
def test_soft_deletes_are_switched_on_for_a_table_with_rows(tmp_path: Path, name: str) -> None:
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1, 2, 3], name: ["a", "b", "c"]})
    put(tmp_path, "t", 2, {"id": [3], MARKER: [2]})
    assert sync(tmp_path, batch_files=1) is None
    soft(tmp_path)
    put(tmp_path, "t", 3, {"id": [2, 4], name: [None, "d"], MARKER: [2, 4]})
    assert sync(tmp_path) is None
    assert rows(tmp_path) == [(1, "a", False, False), (2, "b", True, True), (4, "d", False, False)]
    snapshot = read_snapshot(tmp_path / "Tables/t")
    assert snapshot is not None and snapshot.metadata.configuration["lakemirror.deletes"] == "soft"
    put(tmp_path, "t", 4, {"id": [5], name: ["e"], "new": [1]})
    assert sync(tmp_path) is None
    assert read_table(tmp_path / "Tables/t").num_rows == 4


@pytest.mark.parametrize("then", ["hard", "ignore"])
def test_deleted_rows_do_not_become_living_ones_by_another_option(tmp_path: Path, then: str) -> None:
    soft(tmp_path)
    put(tmp_path, "t", 1, {"id": [1, 2], MARKER: [0, 0]})
    put(tmp_path, "t", 2, {"id": [1], MARKER: [2]})
    assert sync(tmp_path, batch_files=1) is None
    soft(tmp_path, then)
    put(tmp_path, "t", 3, {"id": [3]})
    assert sync(tmp_path).code == "deletes-mode-changed"
    assert rows(tmp_path) == [(1, True, True), (2, False, False)]
    MirroredDatabase(tmp_path).resync("t")
    assert sync(tmp_path) is None
    assert rows(tmp_path) == [(1,), (2,), (3,)] if then == "ignore" else [(2,), (3,)]


@pytest.mark.parametrize("then", ["hard", "ignore", "soft"])
@pytest.mark.parametrize(
    "options", [{"deletion_vectors": False}, {"change_data_feed": True}, {}], ids=["plain", "feed", "vectors"]
)
@pytest.mark.parametrize("name", ["v", "a name; with = odd"])
def test_deleted_rows_are_purged(tmp_path: Path, then: str, options: dict[str, Any], name: str) -> None:
    soft(tmp_path)
    put(tmp_path, "t", 1, {"id": [1, 2], name: ["a", "b"], MARKER: [0, 0]})
    put(tmp_path, "t", 2, {"id": [1], MARKER: [2]})
    put(tmp_path, "t", 3, {"id": [3], name: ["c"]})
    assert sync(tmp_path, batch_files=1, **options) is None
    before = read_snapshot(tmp_path / "Tables/t")
    soft(tmp_path, then)
    put(tmp_path, "t", 4, {"id": [4], name: ["d"]})
    if then != "soft":
        assert sync(tmp_path, **options).code == "deletes-mode-changed"
    done = MirroredDatabase(tmp_path).resync("t", purge_deleted=True)
    assert done.changed and "removed 1 deleted row," in done.text
    after = read_snapshot(tmp_path / "Tables/t")
    assert before is not None and after is not None and after.version == before.version + 1
    ours = (False, False) if then == "soft" else ()
    assert rows(tmp_path) == [(2, "b", *ours), (3, "c", *ours)]
    put(tmp_path, "t", 5, {"id": [2], MARKER: [2]})
    assert sync(tmp_path, **options) is None
    assert {each.code for each in MirroredDatabase(tmp_path).status().tables[0].warnings} <= {"column-mapping"}
    kept = {"hard": [], "ignore": [(2, "b")], "soft": [(2, "b", True, True)]}[then]
    assert rows(tmp_path) == [*kept, (3, "c", *ours), (4, "d", *ours)]
    if then != "soft":
        assert not MirroredDatabase(tmp_path).resync("t", purge_deleted=True).changed


def test_a_purge_gives_way_to_another_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    soft(tmp_path)
    put(tmp_path, "t", 1, {"id": [1, 2], MARKER: [0, 0]})
    put(tmp_path, "t", 2, {"id": [1], MARKER: [2]})
    assert sync(tmp_path, batch_files=1) is None
    put(tmp_path, "t", 3, {"id": [3]})
    real = purge_module.commit_info
    monkeypatch.setattr(purge_module, "commit_info", lambda *a, **k: (sync(tmp_path), real(*a, **k))[1])
    with pytest.raises(LakemirrorError) as error:
        MirroredDatabase(tmp_path).resync("t", purge_deleted=True)
    monkeypatch.undo()
    assert error.value.code == "concurrent-commit"
    assert rows(tmp_path) == [(1, True, True), (2, False, False), (3, False, False)]
    snapshot = read_snapshot(tmp_path / "Tables/t")
    assert snapshot is not None
    MirroredDatabase(tmp_path).resync("t", purge_deleted=True)
    assert rows(tmp_path) == [(2, False, False), (3, False, False)]


def test_ignored_deletes_are_counted(tmp_path: Path) -> None:
    soft(tmp_path, "ignore")
    put(tmp_path, "t", 1, {"id": [1, 1, 2], MARKER: [0, 2, 4]})
    put(tmp_path, "t", 2, {"id": [2], MARKER: [2]})
    assert sync(tmp_path, batch_files=1) is None
    assert rows(tmp_path) == [(1,), (2,)]
    (table,) = json.loads((tmp_path / "Files/Monitoring/tables.json").read_text())["tables"]
    assert table["metrics"]["ignoredDeletes"] == 2
    assert MirroredDatabase(tmp_path).status().tables[0].ignored_deletes == 2
    assert "  t: ignoredDeletes 2" in CommandRunner().invoke(app, ["status", str(tmp_path)]).output


@pytest.mark.parametrize("before", [True, False])
def test_a_source_cannot_have_a_column_of_ours(tmp_path: Path, before: bool) -> None:
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1], "__Deleted" if before else "v": ["x"]})
    assert sync(tmp_path) is None
    soft(tmp_path)
    put(tmp_path, "t", 2, {"id": [2], "v": ["y"]} if before else {"id": [2], "__deleted": ["y"]})
    assert sync(tmp_path).code == "column-name-reserved"


@pytest.mark.parametrize("options", [{"complete": "rename"}, {"freshness": "1h"}, {"deletes": "hard", "history": []}])
def test_other_options_reserve_no_name(tmp_path: Path, options: dict[str, Any]) -> None:
    declare(tmp_path, "t", ["id"], lakemirror=options)
    put(tmp_path, "t", 1, {"id": [1], "__deleted": ["false"], "__file": ["x"]})
    assert not [each for each in check(tmp_path, settle=0) if each.severity == "error"]
    assert sync(tmp_path) is None
    assert read_table(tmp_path / "Tables/t").to_pylist() == [{"id": 1, "__deleted": "false", "__file": "x"}]


def test_the_source_s_time_must_be_a_time(tmp_path: Path) -> None:
    soft(tmp_path)
    put(tmp_path, "t", 1, {"id": [1], "__sourceTimestamp__": ["yesterday"]})
    assert sync(tmp_path).code == "type-unsupported"


def test_a_table_of_changes_beside_soft_deletes(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"], lakemirror={"deletes": "soft", "history": "changes"})
    put(tmp_path, "t", 1, {"id": [1, 2], "v": ["a", "b"], MARKER: [4, 4]})
    put(tmp_path, "t", 2, {"id": [1], "v": [None], MARKER: [2]})
    assert sync(tmp_path, batch_files=1) is None
    assert rows(tmp_path) == [(1, "a", True, True), (2, "b", False, False)]
    changes = read_table(tmp_path / "Tables/t__changes")
    assert "__deleted" not in changes.column_names
    assert sorted((row["id"], row["v"] or "", row["__operation"]) for row in changes.to_pylist()) == [
        (1, "", "delete"), (1, "a", "upsert"), (2, "b", "upsert"),
    ]  # fmt: skip
