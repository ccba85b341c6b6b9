"""A sequence of several columns through a whole database: late changes, ties, `__START_AT` as a struct, crashes."""

from __future__ import annotations

import json
import os
import sys
from datetime import date
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pytest
from tests import preloaded
from tests.change_tables import expected_versions, held_versions, marked, put_at
from tests.landing import declare
from tests.table_rows import read_table, table_rows

from lakemirror import MirroredDatabase
from lakemirror.delta.log import read_snapshot
from lakemirror.maintenance.compaction import merge_small_files
from lakemirror.storage import LocalStorage
from lakemirror.verify.proof import Options, verify_database

OPTIONS = {"deletes": "soft", "sequence": ["day", "n"], "history": ["changes", "scd2"]}
FIRST, SECOND = date(2026, 1, 1), date(2026, 1, 2)
SYNC = """
import sys
from lakemirror import MirroredDatabase
failed = MirroredDatabase(sys.argv[1], engine="local", durability="process", settle=0, batch_files=1).sync().failed
raise SystemExit(bool(failed))
"""
Row = tuple[int, int, date, int, str | None]

FILES: list[list[Row]] = [
    [(4, 1, FIRST, 5, "a"), (4, 2, FIRST, 5, "b"), (4, 3, FIRST, 1, "c")],
    [(4, 1, SECOND, 1, "a2"), (4, 2, FIRST, 5, "tie: the later one counts"), (2, 3, SECOND, 2, None)],
    [(4, 1, FIRST, 9, "late: the first column decides"), (4, 3, SECOND, 1, "late: before the delete")],
    [(4, 1, SECOND, 1, "tie again"), (2, 2, SECOND, 1, None), (4, 3, SECOND, 2, "tie with the delete")],
    [(4, 2, SECOND, 0, "late: before the delete"), (4, 4, FIRST, -1, "d"), (4, 1, SECOND, 10, "a10")],
]


def put(database: Path, number: int, rows: list[Row]) -> None:
    markers, ids, days, numbers, values = map(list, zip(*rows, strict=True))
    kinds = {"id": pa.int64(), "day": pa.date32(), "n": pa.int32(), "v": pa.string()}
    columns = {
        name: pa.array(each, kinds[name]) for name, each in zip(kinds, (ids, days, numbers, values), strict=True)
    }
    put_at(database, "t", number, marked(markers, **columns))


def sync(database: Path, failpoint: str = "") -> int:
    """A pass by a process of its own, which dies at that point. Returns its exit code."""
    env = {**os.environ, **({"LAKEMIRROR_FAILPOINT": failpoint} if failpoint else {})}
    return preloaded.run([sys.executable, "-c", SYNC, str(database)], env=env, capture_output=True).returncode


def is_as_expected(database: Path) -> None:
    assert held_versions(database, "t__history") == expected_versions(database, "t", ["id"], OPTIONS)
    living = [row["v"] for row in read_table(database / "Tables/t").sort_by("id").to_pylist() if not row["__deleted"]]
    assert living == ["a10", "tie with the delete", "d"]
    (dead,) = [row for row in read_table(database / "Tables/t").to_pylist() if row["__deleted"]]
    assert (dead["id"], dead["v"]) == (2, "late: before the delete")
    assert sum(table_rows(database, "t__changes", ["id"]).values()) == sum(map(len, FILES))
    report = verify_database(LocalStorage(database), (), Options(against_files=True))
    assert not [each for each in report.findings if each.severity == "error"], report.findings


@pytest.mark.parametrize("point", ["", "history.after-commit:1", "history.after-commit:2", "apply.before-commit:1"])
def test_late_changes_and_ties_whatever_dies(tmp_path: Path, point: str) -> None:
    declare(tmp_path, "t", ["id"], lakemirror=OPTIONS)
    for number, rows in enumerate(FILES, start=1):
        put(tmp_path, number, rows)
        if point:
            assert sync(tmp_path, point) not in (0, 1), "it has died"
        elif number in (2, 3, 5):
            result = MirroredDatabase(tmp_path, engine="local", durability="process", settle=0).sync()
            assert not result.failed
    if point:
        assert sync(tmp_path) == 0
    is_as_expected(tmp_path)
    for name in ("t", "t__history", "t__late"):
        while merge_small_files(str(tmp_path / "Tables" / name)):
            pass
    is_as_expected(tmp_path)


def test_readers_find_the_bounds_by_the_names_of_the_columns(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"], lakemirror=OPTIONS)
    for number, rows in enumerate(FILES, start=1):
        put(tmp_path, number, rows)
    assert not MirroredDatabase(tmp_path, engine="local", durability="process", settle=0).sync().failed
    table = deltalake.DeltaTable(tmp_path / "Tables/t__history")
    kinds = {field.name: str(field.type) for field in table.schema().fields}
    assert kinds["__START_AT"] == kinds["__END_AT"] and "Field(day," in kinds["__START_AT"]
    rows = read_table(tmp_path / "Tables/t__history")
    found = duckdb.sql("SELECT v FROM rows WHERE id = 1 AND __START_AT.day = DATE '2026-01-02' ORDER BY __START_AT.n")
    assert [value for (value,) in found.fetchall()] == ["tie again", "a10"]


def test_bounds_under_column_mapping(tmp_path: Path) -> None:
    """Fields of structs have ids and names in files, too; the history can still be made again."""
    declare(tmp_path, "t", ["id"], lakemirror={"sequence": ["day", "no. of day"], "history": "scd2"})
    kinds: Any = {"id": [1], "v": ["a"]}
    for number, day in ((1, FIRST), (2, SECOND), (3, SECOND)):
        later = {"n (later)": [1]} if number == 3 else {}
        put_at(tmp_path, "t", number, marked([4], **kinds, **{"day": [day], "no. of day": [number]}, **later))
    database = MirroredDatabase(tmp_path, engine="local", durability="process", settle=0, batch_files=1)
    expected = [{"day": FIRST, "no. of day": 1}, {"day": SECOND, "no. of day": 3}]
    for act in (lambda: database.sync().failed, lambda: database.build_history("t")):
        act()
        rows = read_table(tmp_path / "Tables/t__history").sort_by("n (later)").to_pylist()
        assert sorted((row["__START_AT"] for row in rows), key=str) == expected


def test_bounds_are_widened_as_the_columns_are(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"], lakemirror={"sequence": ["n", "m"], "history": "scd2"})
    wide = 1.1
    for number, n in enumerate([pa.array([0.5], pa.float32()), pa.array([wide]), pa.array([2.5])], start=1):
        put_at(tmp_path, "t", number, marked([4], id=[1], v=[number], n=n, m=[1]))
        settings: Any = {"engine": "local", "durability": "process", "settle": 0, "on_type_change": "widen"}
        assert not MirroredDatabase(tmp_path, **settings).sync().failed
    table = tmp_path / "Tables/t__history"
    found = [(row["__START_AT"]["n"], (row["__END_AT"] or {}).get("n")) for row in read_table(table).to_pylist()]
    assert sorted(found) == [(0.5, wide), (wide, 2.5), (2.5, None)]
    snapshot = read_snapshot(table)
    assert snapshot is not None and "typeWidening" in (snapshot.protocol.reader_features or ())
    database = MirroredDatabase(tmp_path, engine="local", durability="process")
    database.build_history("t")
    assert [(row["__START_AT"]["n"], row["v"]) for row in read_table(table).sort_by("v").to_pylist()] == [
        (0.5, 1), (wide, 2), (2.5, 3),
    ]  # fmt: skip


@pytest.mark.parametrize("columns", [28, 29, 30])
def test_the_bounds_of_a_wide_table_have_statistics(tmp_path: Path, columns: int) -> None:
    """Each field of them is one of the 32 columns that have statistics, also where the table has no more columns."""
    declare(tmp_path, "t", ["id"], lakemirror={"sequence": ["n", "v"], "history": "scd2"})
    more = {f"c{place}": [1, 2] for place in range(columns - 3)}
    put_at(tmp_path, "t", 1, marked([4, 4], id=[1, 1], n=[1, 2], v=["a", "b"], **more))
    assert not MirroredDatabase(tmp_path, settle=0).sync().failed
    snapshot = read_snapshot(tmp_path / "Tables/t__history")
    assert snapshot is not None
    for add in snapshot.files.values():
        nulls = json.loads(add["stats"])["nullCount"]
        assert all(set(nulls[name]) == {"n", "v"} for name in ("__START_AT", "__END_AT"))
