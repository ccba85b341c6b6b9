"""`check` names a table folder whose table would be the history of another one, or what is remembered for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.landing import declare, put

from lakemirror.lint import check


@pytest.mark.parametrize("name", ["t__late", "T__History", "t__changes", "past", "other"])
def test_a_table_folder_that_is_named_like_a_second_table(tmp_path: Path, name: str) -> None:
    history = [{"mode": "scd2", "name": "past"} if name == "past" else "scd2", "changes"]
    declare(tmp_path, "t", ["id"], lakemirror={"sequence": "n", "history": history})
    declare(tmp_path, name, ["id"])
    for table in ("t", name):
        put(tmp_path, table, 1, {"id": [1], "n": [1]})
    found = [(each.table, each.code) for each in check(tmp_path, settle=0) if each.severity == "error"]
    assert found == ([] if name == "other" else [(name, "table-name-ambiguous")])
