"""Deletes that were remembered while another sequence held: none makes a change of a living row late (history.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.change_tables import marked, put_at
from tests.landing import declare
from tests.table_rows import read_table

from lakemirror import MirroredDatabase
from lakemirror.storage import LocalStorage
from lakemirror.verify.proof import Options, verify_database

BY_N, BY_M, BY_BOTH = ({"sequence": each} for each in ("n", "m", ["n", "m"]))
SOFT, VERSIONS = {"deletes": "soft"}, {"history": "scd2"}
Step = tuple[dict[str, Any], int, int, int]  # options, marker, n, m

STORIES: dict[str, tuple[list[Step], int | None]] = {
    "older by both columns, newer by the second": ([(BY_BOTH, 4, 5, 1), (BY_BOTH, 2, 4, 9), (BY_M, 4, 6, 5)], 6),
    "older by one sequence, newer by the next": (
        [(BY_N, 2, 5, 1), (BY_M, 4, 3, 9), (BY_N, 4, 4, 9)], 4
    ),
    "not looked at for a while": ([(BY_N, 2, 5, 1), (BY_BOTH, 4, 3, 9), (BY_N, 4, 4, 9)], 4),
    "deletes were ignored for a while": ([
        ({**BY_N, **VERSIONS, "deletes": deletes}, marker, n, n)
        for deletes, marker, n in (("hard", 2, 5), ("ignore", 4, 3), ("hard", 4, 4))
    ], 4),
    "the first of both columns goes on": ([(BY_BOTH, 4, 4, 1), (BY_BOTH, 2, 5, 9), (BY_N, 4, 4, 10)], None),
}  # fmt: skip


@pytest.mark.parametrize("deletes", [{}, SOFT], ids=["hard", "soft"])
@pytest.mark.parametrize("story", STORIES)
def test_changes_after_another_sequence(tmp_path: Path, story: str, deletes: dict[str, Any]) -> None:
    steps, lives = STORIES[story]
    for number, (options, marker, n, m) in enumerate(steps, start=1):
        declare(tmp_path, "t", ["id"], lakemirror={**deletes, **options})
        put_at(tmp_path, "t", number, marked([marker], id=[1], n=[n], m=[m]))
        given = {"engine": "local", "durability": "process", "settle": 0}
        assert not MirroredDatabase(tmp_path, **given).sync().failed
    rows = [row["n"] for row in read_table(tmp_path / "Tables/t").to_pylist() if not row.get("__deleted")]
    assert rows == ([] if lives is None else [lives])
    report = verify_database(LocalStorage(tmp_path), (), Options(against_files=True))
    wrong = [each for each in report.findings if each.table == "t" and each.code != "verify-not-compared"]
    assert not wrong
