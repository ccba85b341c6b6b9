"""Values that the table does not keep as they were: warned of by the pass that applies them, in status and log."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pyarrow as pa
import pytest
from tests.landing import put

from lakemirror import MirroredDatabase
from lakemirror.landing_zone.metadata import Warned
from lakemirror.mirror.position import from_note, with_notes


def warned(database: Path) -> list[tuple[str, str]]:
    MirroredDatabase(database, maintenance=False).sync()
    (table,) = json.loads((database / "Files/Monitoring/tables.json").read_text())["tables"]
    return [(each["code"], each["file"]) for each in table["warnings"]]


def test_the_status_of_the_same_pass_names_code_and_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="lakemirror")
    moments = pa.array([1], pa.timestamp("ns", "UTC"))
    first = str(put(tmp_path, "t", 1, {"at": moments}).relative_to(tmp_path))
    assert warned(tmp_path) == [("value-converted", first)]
    assert [record.getMessage() for record in caplog.records] == [
        "t: warning value-converted: column at: nanoseconds are cut to microseconds"
    ]
    second = str(put(tmp_path, "t", 2, {"at": moments, "a list": [[1]]}).relative_to(tmp_path))
    assert warned(tmp_path) == [("value-converted", first), ("value-converted", second), ("column-mapping", second)]
    assert warned(tmp_path) == [("value-converted", first), ("value-converted", second), ("column-mapping", second)]


def test_notes_come_back_as_the_warnings_that_they_were() -> None:
    warnings = [Warned("value-converted", "column a: cut", "f1"), Warned("column-mapping", "column 'b'", "f\n2")]
    notes = with_notes(["column c: old"], warnings, 50)
    assert [from_note(note) for note in notes] == [Warned("value-converted", "column c: old"), *warnings]
    again = [Warned("value-converted", "column c: old", "f3"), Warned("value-converted", "column a: cut", "f4")]
    assert with_notes(notes, again, 50) == notes
    assert len(with_notes(notes, [Warned("value-converted", str(n)) for n in range(9)], 5)) == 5
