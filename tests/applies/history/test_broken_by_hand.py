"""Tables of history that somebody damaged: the message says what helps, and doing it works; nothing is lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.landing import MARKER, declare, put
from tests.table_rows import read_table

from lakemirror import MirroredDatabase
from lakemirror.errors import LakemirrorError
from lakemirror.storage import LocalStorage
from lakemirror.verify.proof import Options, verify_database

SETTINGS: dict[str, Any] = {"engine": "local", "durability": "process", "settle": 0, "maintenance": False}
TABLES = ("t", "t__changes", "past")
BUILD = "history build DB TABLE --from-processed"


def failure(database: Path) -> LakemirrorError | None:
    done = MirroredDatabase(database, **SETTINGS).sync()
    assert set(done.failed) <= {"t"}, "other tables go on"
    error = done.failed.get("t")
    return error if isinstance(error, LakemirrorError) else None


def errors(database: Path) -> dict[str, str]:
    found = verify_database(LocalStorage(database), (), Options(against_files=True)).findings
    wrong = [each for each in found if each.severity == "error"]
    return {name: " ".join(each.advice for each in wrong if each.table == name) for name in {e.table for e in wrong}}


def no_data(table: Path) -> None:
    for file in table.glob("*.parquet"):
        file.unlink()


def no_log(table: Path) -> None:
    sorted(table.glob("_delta_log/*.json"))[-1].write_text('{"broken')


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    options = {"history": ["changes", {"mode": "scd2", "name": "past"}]}
    declare(tmp_path, "t", ["id"], lakemirror=options)
    declare(tmp_path, "u", ["id"])
    for number in (1, 2):
        for table in ("t", "u"):
            put(tmp_path, table, number, {"id": [1, number + 1], "v": [f"{number}", "x"], MARKER: [4, 4]})
        assert failure(tmp_path) is None
    return tmp_path


def build(database: Path) -> None:
    MirroredDatabase(database, **SETTINGS).build_history("t")


def drop(database: Path) -> None:
    MirroredDatabase(database, **SETTINGS).drop_history("t")


def move(database: Path) -> None:
    shutil.move(database / "Tables/past", database / "past")


@pytest.mark.parametrize(
    ("harm", "code", "says", "way_out", "versions"),
    [
        (no_data, "concurrent-commit", "lakemirror verify DB TABLE", build, 6),
        (no_data, "concurrent-commit", "lakemirror verify DB TABLE", move, 5),
        (no_log, "table-unreadable", "Move a history table away", move, 5),
        (no_log, "table-unreadable", "Move a history table away", drop, 5),
    ],
)
def test_the_way_out(
    mirror: Path, harm: Callable[[Path], None], code: str, says: str, way_out: Callable[[Path], None], versions: int
) -> None:
    harm(mirror / "Tables/past")
    for table in ("t", "u"):
        put(mirror, table, 3, {"id": [1, 4], "v": ["3", "x"], MARKER: [4, 4]})
    error = failure(mirror)
    assert error is not None and error.code == code and says in error.hint and "past" in error.message
    assert read_table(mirror / "Tables/u").num_rows == 4 and read_table(mirror / "Tables/t").num_rows == 3
    advice = errors(mirror)
    assert list(advice) == ["past"] and "move the history table away" in advice["past"]
    assert (BUILD in advice["past"]) is (harm is no_data) and "delete the table folder" not in advice["past"]
    way_out(mirror)
    assert failure(mirror) is None and not errors(mirror)
    changes = 6 if way_out is not drop else 2  # that begins again, too
    assert [read_table(mirror / "Tables" / name).num_rows for name in TABLES] == [4, changes, versions]


def test_what_late_changes_need_is_gone(tmp_path: Path) -> None:
    """No build makes it again."""
    declare(tmp_path, "t", ["id"], lakemirror={"sequence": "n", "history": "scd2"})
    for number in (1, 2):
        put(tmp_path, "t", number, {"id": [1, number + 1], "n": [number * 10] * 2, "v": [number, 0], MARKER: [4, 4]})
        assert failure(tmp_path) is None
    no_data(tmp_path / "Tables/t__late")
    advice = errors(tmp_path)
    assert list(advice) == ["t__late"] and "move the history table away" in advice["t__late"]
    assert BUILD not in advice["t__late"]
    shutil.move(tmp_path / "Tables/t__late", tmp_path / "late")
    put(tmp_path, "t", 3, {"id": [1], "n": [15], "v": [3], MARKER: [4]})
    assert failure(tmp_path) is None and not errors(tmp_path)
    assert read_table(tmp_path / "Tables/t__history").num_rows == 5


def test_a_mirrored_table_that_is_gone(mirror: Path) -> None:
    """The number that is awaited was applied before: that is said, and a resync applies it again."""
    shutil.rmtree(mirror / "Tables/t")
    put(mirror, "t", 3, {"id": [1, 4], "v": ["3", "x"], MARKER: [4, 4]})
    assert failure(mirror) is None
    (status,) = [each for each in MirroredDatabase(mirror).status().tables if each.name == "t"]
    assert status.waiting_for is not None and status.waiting_for.what == "number 1, which is in _ProcessedFiles"
    MirroredDatabase(mirror, **SETTINGS).resync("t")
    assert failure(mirror) is None
    assert [read_table(mirror / "Tables" / name).num_rows for name in TABLES] == [4, 6, 6]
