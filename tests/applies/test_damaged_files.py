"""A damaged file arrives as its code, with table, file and what to do, in all that a user sees, and loses no row.

`tests/damaged_parquet.py` has the damages; where each is noticed is tested in `tests/unit`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.commands import CommandRunner
from tests.damaged_parquet import DAMAGES, written
from tests.landing import declare, folder, put_broken
from tests.table_rows import table_rows

from lakemirror import MirroredDatabase
from lakemirror.cli import app
from lakemirror.engines.kernels import add_files
from lakemirror.error_codes import CODES
from lakemirror.lint import check

TABLES = {f"t{number}": damage for number, damage in enumerate(DAMAGES.values())}


@pytest.mark.parametrize("way", ["as rows", "as it is"])
def test_each_has_its_error_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Each damaged file stands behind a good one; `as it is`: files may be copied into the table whole."""
    monkeypatch.setattr(add_files, "large_enough", lambda sizes: way == "as it is")
    for table, damage in TABLES.items():
        declare(tmp_path, table, ["id"])
        put_broken(tmp_path, table, 1, written(damage.like))
        put_broken(tmp_path, table, 2, damage.data)
        put_broken(tmp_path, table, 3, written(damage.like))
    checked = {(each.code, each.table, each.file) for each in check(tmp_path) if each.severity == "error"}
    failed = MirroredDatabase(tmp_path, engine="local", maintenance=False).sync().failed
    assert failed.keys() == TABLES.keys()
    for table, damage in TABLES.items():
        error, file = failed[table], f"{2:020}.parquet"
        assert error.code == damage.code
        assert error.file == f"Files/LandingZone/{table}/{file}" and damage.says in error.message
        assert error.hint == CODES[damage.code].hint
        assert (damage.code, table, error.file) in checked
        assert (folder(tmp_path, table) / file).exists()
        assert sum(table_rows(tmp_path, table).values()) == damage.like.num_rows, "the file before, and no other"
    shown = json.loads(CommandRunner().invoke(app, ["status", str(tmp_path), "--json"]).stdout)
    states = {each["normalizedTableName"]: each for each in shown["tables"]}
    assert {name: state["errorCode"] for name, state in states.items()} == {n: d.code for n, d in TABLES.items()}
    said = CommandRunner().invoke(app, ["sync", str(tmp_path)])
    assert said.exit_code == 3
    for name, state in states.items():
        assert f"{2:020}.parquet" in state["errorMessage"] and state["errorHint"]
        assert f"{name}: {state['errorCode']}: " in said.stdout
