"""An apply of few changes does its tables one after the other, where none waits for a store."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.change_tables import expected_versions, held_versions, marked, put_at
from tests.landing import declare

from lakemirror import MirroredDatabase
from lakemirror.engines.kernels.row_reader import Reading
from lakemirror.engines.pipeline import Pipeline
from lakemirror.mirror.table_log import read_table_log


def files(database: Path) -> set[Path]:
    """The files of all tables, but their logs."""
    return {path for path in database.glob("Tables/*/*") if path.is_file()}


@pytest.mark.parametrize("waits", [False, True], ids=["disk", "store"])
@pytest.mark.parametrize("failing", [None, "_mirrored", "_write_history"])
def test_few_changes_are_done_table_by_table_but_in_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str | None, waits: bool
) -> None:
    """In one thread, or side by side where each waits for its requests; a table that fails leaves no file of any."""
    declare(tmp_path, "t", ["id"], lakemirror={"history": "scd2"})
    put_at(tmp_path, "t", 1, {"id": [1, 2], "v": ["a", "b"]})
    assert not MirroredDatabase(tmp_path).sync().failed
    before = files(tmp_path)
    put_at(tmp_path, "t", 2, marked([4, 2], id=[1, 2], v=["A", None]))
    ran: dict[str, int] = {}

    def noted(name: str) -> Any:
        act = getattr(Pipeline, name)

        def noting(self: Any, *given: Any) -> Any:
            ran[name] = threading.get_ident()
            found = act(self, *given)
            if name == failing:
                assert files(tmp_path) > before
                raise OSError("broken")
            return found

        return noting

    with monkeypatch.context() as patch:
        for name in ("_with_others", "_mirrored", "_write_history"):
            patch.setattr(Pipeline, name, noted(name))
        patch.setattr("lakemirror.engines.units.capabilities_of", lambda _: SimpleNamespace(waits=waits))
        patch.setattr(os, "cpu_count", lambda: 2)
        patch.setattr("lakemirror.engines.engine._local_engines", {})
        assert bool(MirroredDatabase(tmp_path).sync().failed) is bool(failing)
    assert {ident == ran["_with_others"] for name, ident in ran.items() if name != "_with_others"} == {not waits}
    if failing:
        assert files(tmp_path) == before
        assert not MirroredDatabase(tmp_path).sync().failed
    assert held_versions(tmp_path, "t__history") == expected_versions(tmp_path, "t", ["id"], {"history": "scd2"})


@pytest.mark.parametrize("rows", [2, 30_000])
def test_a_change_file_is_read_once_for_all_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """And each table has its own position, in a commit of its own."""
    declare(tmp_path, "t", ["id"], lakemirror={"deletes": "soft", "sequence": "n", "history": ["scd2", "changes"]})
    put_at(tmp_path, "t", 1, {"id": [1, 2], "n": [1, 1], "v": ["a", "b"]})
    assert not MirroredDatabase(tmp_path).sync().failed
    for number in (2, 3):
        keys = list(range(rows))
        put_at(tmp_path, "t", number, marked([4] * (rows - 1) + [2], id=keys, n=[number] * rows, v=["c"] * rows))
    read: list[str] = []
    begin = Reading.__init__

    def noted(self: Any, unit: Any, *given: Any, **more: Any) -> None:
        read.append(unit.name)
        begin(self, unit, *given, **more)

    monkeypatch.setattr(Reading, "__init__", noted)
    assert not MirroredDatabase(tmp_path, engine="local").sync().failed
    assert [Path(name).name for name in sorted(read)] == [f"{number:020}.parquet" for number in (2, 3)]
    for table in ("t", "t__late", "t__history", "t__changes"):
        log = read_table_log(str(tmp_path / "Tables" / table))
        assert log is not None and log.position is not None and (log.position.number, log.version) == (3, 1)
