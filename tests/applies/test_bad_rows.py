"""Bad files anywhere among good ones: the error names the right file and row, and each good file is applied once."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.bad_rows import play, zone
from tests.landing import declare, put
from tests.table_rows import table_rows

from lakemirror import MirroredDatabase
from lakemirror.engines.local_engine import LocalEngine
from lakemirror.lint import check


def several(tmp_path: Path, seeds: range) -> int:
    told = 0
    for seed in seeds:
        chance = random.Random(seed)
        made = zone(tmp_path / str(seed), chance)
        settings = {
            "batch_files": chance.choice([1, 2, 1000, 1000]),
            "deletion_vectors": chance.choice([True, False]),
            "change_data_feed": chance.choice([True, False]),
        }
        try:
            told += play(made, quarantine=chance.random() < 0.3, **settings)
        except BaseException as error:
            error.add_note(f"seed {seed}: {made.keys}, {made.options}, text {made.is_text}, {settings}")
            raise
    return told


@pytest.mark.parametrize("way", ["held", "passes"])
def test_the_first_bad_file_is_told_and_what_is_before_it_applied_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if way == "passes":
        monkeypatch.setattr(LocalEngine, "read_small", lambda *given: None)
    assert several(tmp_path, range(15)) > 10


def test_check_finds_what_an_apply_refuses_and_nothing_else(tmp_path: Path) -> None:
    found = 0
    for seed in range(40):
        made = zone(tmp_path / str(seed), random.Random(seed))
        errors = [each for each in check(made.database, settle=0) if each.severity == "error"]
        for place, file in enumerate(made.good):
            codes = {each.code for each in errors if each.file.endswith(file.name)}
            says = {code for code, _ in made.bad[place].says} if place in made.bad else set()
            if "partial-row-missing" not in says:  # the rows of the table say that
                assert bool(codes & says) == bool(says) == bool(codes), (seed, place, codes, says)
                found += bool(says)
    assert found > 30


@pytest.mark.parametrize(
    ("code", "rows"),
    [
        ("sequence-null", {"id": [2], "n": [None], "v": [2]}),
        ("sequence-missing", {"id": [2], "v": [2]}),
        ("column-name-reserved", {"id": [2], "n": [2], "__START_AT": [2]}),
    ],
)
def test_what_a_sequence_refuses_is_quarantined(tmp_path: Path, code: str, rows: dict[str, Any]) -> None:
    declare(tmp_path, "t", ["id"], lakemirror={"sequence": "n", "history": "scd2"})
    for number, its in enumerate(({"id": [1], "n": [1], "v": [1]}, rows, {"id": [3], "n": [3], "v": [3]}), start=1):
        put(tmp_path, "t", number, {name: pa.array(values, pa.int64()) for name, values in its.items()})
    bad = f"Files/LandingZone/t/{2:020}.parquet"
    assert [(each.code, each.file) for each in check(tmp_path, settle=0) if each.severity == "error"] == [(code, bad)]
    assert not MirroredDatabase(tmp_path, engine="local", on_bad_file="quarantine").sync().failed
    assert table_rows(tmp_path, "t", ["id", "v"]) == {(1, 1): 1, (3, 3): 1}
    (table,) = json.loads((tmp_path / "Files/Monitoring/tables.json").read_text())["tables"]
    assert any(each["code"] == "file-quarantined" and code in each["message"] for each in table["warnings"])
