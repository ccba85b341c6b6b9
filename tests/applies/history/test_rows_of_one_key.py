"""Inserts have made several rows of one key before versions begin: the newest becomes the version."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.history_model import Change, ChangeFile, HistoryModel, hashable
from tests.random_histories import Story, compare_with, declared, publish
from tests.table_rows import read_table

from lakemirror import MirroredDatabase
from lakemirror.mirror.history import first_versions

TYPES = {"id": pa.int64(), "n": pa.int64(), "v": pa.string()}
LONG_AGO = datetime(2020, 1, 1)
INSERT, UPSERT = 0, 4


def file(number: int, *rows: tuple[int, int | None, int, str]) -> ChangeFile:
    changes = tuple(Change(mark, {"id": key, "n": at, "v": value}) for mark, key, at, value in rows)
    return ChangeFile(f"{number:020}.parquet", tuple(TYPES), changes, LONG_AGO + timedelta(hours=number))


FILES = (
    file(1, (INSERT, 1, 3, "a"), (INSERT, 2, 1, "b"), (INSERT, 1, 2, "c"), (INSERT, None, 1, "x")),
    file(2, (INSERT, 3, 3, "d"), (INSERT, 1, 1, "e"), (INSERT, 1, 3, "f"), (INSERT, None, 2, "y"), (INSERT, 2, 2, "g")),
    file(3, (UPSERT, 1, 5, "z"), (INSERT, 4, 4, "w")),
)
ORDERED = {"history": "scd2", "sequence": "n"}


def begun(database: Path, batch_files: int, options: dict[str, Any]) -> Any:
    """Two files are applied without a history; then it is declared."""
    story = Story(TYPES, ("id",), {}, FILES)
    table = declared(database, story)
    for each in FILES[:2]:
        publish(table, story, each)
    assert not MirroredDatabase(database, batch_files=batch_files).sync().failed
    table.declare(**options)
    return lambda: publish(table, story, FILES[2])


@pytest.mark.parametrize("at_once", [3, 1000])
@pytest.mark.parametrize("batch_files", [1, 2])
@pytest.mark.parametrize("options", [{"history": "scd2"}, ORDERED, {**ORDERED, "deletes": "soft"}], ids=str)
def test_versions_begin_with_one_row_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], batch_files: int, at_once: int
) -> None:
    monkeypatch.setattr(first_versions, "_ROWS", at_once)
    before = datetime.now(timezone.utc)
    begun(tmp_path, batch_files, options)()
    assert not MirroredDatabase(tmp_path).sync().failed
    model = HistoryModel(("id",))
    for each in FILES[:2]:
        model.apply(each)
    model.switched_on(options, FILES[2].modified - timedelta(microseconds=1))
    model.apply(FILES[2])
    compare_with(tmp_path, "t", model, (before, datetime.now(timezone.utc)))


def test_keys_are_read_once_however_many_parts_they_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(TYPES, ("id",), {}, (file(1, *((INSERT, key, 1, "a") for key in range(40))),))
    table = declared(tmp_path, story)
    publish(table, story, story.files[0])
    assert not MirroredDatabase(tmp_path).sync().failed
    table.declare(history="scd2")
    monkeypatch.setattr(first_versions, "_ROWS", 2)
    read, reads = first_versions.undeleted_rows, list[int]()
    monkeypatch.setattr(first_versions, "undeleted_rows", lambda *its: (reads.append(1), read(*its))[1])
    assert not MirroredDatabase(tmp_path).sync().failed
    assert len(read_table(tmp_path / "Tables/t__history")) == 40
    assert len(reads) == 2, "the keys, and the rows that become versions"


@pytest.mark.parametrize("options", [{"history": "scd2"}, ORDERED], ids=str)
def test_versions_are_built_of_rows_of_one_key(tmp_path: Path, options: dict[str, Any]) -> None:
    begun(tmp_path, 2, options)
    MirroredDatabase(tmp_path).build_history("t")
    model = HistoryModel(("id",), options)
    for each in FILES[:2]:
        model.apply(each)
    rows = read_table(tmp_path / "Tables/t__history").to_pylist()
    found = Counter(tuple(hashable(_plain(each)) for each in row.values()) for row in rows)
    assert found == model.versions()


@pytest.mark.parametrize("options", [{"history": "scd2"}, ORDERED], ids=str)
def test_versions_that_were_off_for_a_while_go_on_with_one_row_a_key(tmp_path: Path, options: dict[str, Any]) -> None:
    story = Story(TYPES, ("id",), options, FILES)
    table = declared(tmp_path, story)
    publish(table, story, FILES[0])
    assert not MirroredDatabase(tmp_path).sync().failed
    table.declare(history=[], sequence=[])
    publish(table, story, FILES[1])
    assert not MirroredDatabase(tmp_path).sync().failed
    table.declare(**options)
    assert not MirroredDatabase(tmp_path).sync().failed
    rows = read_table(tmp_path / "Tables/t__history").to_pylist()
    assert sorted(row["v"] for row in rows if row["__END_AT"] is None) == ["d", "f", "g", "y"]
    assert not [row for row in rows if row["v"] == "e"], "it is not the newest row of its key"


def _plain(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value
