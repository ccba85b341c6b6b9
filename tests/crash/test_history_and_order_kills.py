"""A process that is killed while tables with soft deletes, an order, changes and versions are written: by the model,
each table has all, once; no file stays that no version names; none is archived that a table lacks."""

from __future__ import annotations

import json
import os
import signal
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests import preloaded
from tests.crash.test_history_kills import check_archived
from tests.history_model import DELETE, UPDATE, UPSERT, Change, ChangeFile
from tests.landing import folder
from tests.random_histories import LONG_AGO, Story, compare, declared, publish

CHILD = """
import os, signal, sys
from itertools import count
from lakemirror import MirroredDatabase
from lakemirror.engines import early_rows, version_buckets, write_versions
from lakemirror.engines.local_engine import LocalEngine

def then_killed(name, act):
    def acts(*given):
        result = act(*given) if name == "_write_first" else None
        os.kill(os.getpid(), signal.SIGKILL)
    return acts

early_rows.FEWEST_ROWS = 1
if hasattr(early_rows.EarlyRows, sys.argv[2]):
    act = getattr(early_rows.EarlyRows, sys.argv[2])
    setattr(early_rows.EarlyRows, sys.argv[2], then_killed(sys.argv[2], act))
if sys.argv[2] == "split":
    LocalEngine.read_small = lambda *_: None
    version_buckets._MORE = 2e-6
    changed, calls = write_versions.changed_versions, count(1)
    write_versions.changed_versions = lambda *its: (then_killed("", None)() if next(calls) == 3 else changed(*its))
result = MirroredDatabase(sys.argv[1], engine="local", batch_files=2).sync()
for error in result.failed.values():
    raise error
"""

ROWS: list[list[tuple[int, int, Any, Any, int, tuple[str, ...]]]] = [
    [(UPSERT, key, key, "p", 10, ()) for key in range(1, 7)],
    [(DELETE, 1, None, None, 20, ()), (UPSERT, 2, 5, "q", 30, ())],
    [
        (DELETE, 3, None, None, 21, ()), (UPSERT, 7, 7, "p", 22, ()), (UPSERT, 1, 8, "late", 15, ()),
        (UPSERT, 4, 4, "q", 40, ()), (DELETE, 2, None, None, 25, ()), (UPSERT, 8, 8, "p", 9, ()),
        (UPSERT, 9, 9, "p", 8, ()),
    ],
    [(UPSERT, 1, 9, "r", 26, ()), (DELETE, 7, None, None, 50, ()), (UPDATE, 5, 6, None, 41, ("w",))],
    [(UPSERT, 3, 2, "late", 20, ()), (DELETE, 6, None, None, 60, ()), (UPDATE, 2, 1, None, 35, ("w",))],
]  # fmt: skip
TYPES = {"id": pa.int64(), "v": pa.int32(), "w": pa.string(), "n": pa.int64()}
BEFORE, AT_THE_KILL = 2, 4  # so many files are there


def story() -> Story:
    """Late changes and deletes, partial rows of living and of deleted rows; some change no old row is read for."""
    files = [
        ChangeFile(
            f"{number:020}.parquet", tuple(TYPES),
            tuple(Change(marker, dict(zip(TYPES, row, strict=True)), names) for marker, *row, names in rows), LONG_AGO,
        )
        for number, rows in enumerate(ROWS, start=1)
    ]  # fmt: skip
    options = {"deletes": "soft", "sequence": "n", "history": [{"mode": "scd2", "track": ["v"]}, "changes"]}
    return Story(TYPES, ("id",), options, tuple(files))


def sync(database: Path, place: str = "") -> int:
    """A pass of a process of its own, with batches of two files; how it ended."""
    environment = {**os.environ, "LAKEMIRROR_FAILPOINT": place if "." in place else ""}
    words = [sys.executable, "-c", CHILD, str(database), place]
    done = preloaded.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, -signal.SIGKILL), (done.stdout, done.stderr)
    return int(done.returncode)


def unnamed(database: Path) -> list[str]:
    """The files of all tables, and folders, that no version of them names."""
    found = []
    for log in (database / "Tables").glob("*/_delta_log"):
        actions = [json.loads(line) for path in log.glob("*.json") for line in path.read_text().splitlines()]
        named = {action["add"]["path"] for action in actions if "add" in action}
        text = json.dumps(actions)
        for path in log.parent.iterdir():
            is_vector = path.name.startswith("deletion_vector") and "deletionVector" in text
            if path != log and path.name not in named and not is_vector:
                found.append(f"{log.parent.name}/{path.name}")
        found += [f"{log.parent.name}/{path.name}" for path in log.glob("*.tmp")]
    return found


PLACES = [
    "_write_first", "history.after-commit:2", "split", "close", "apply.before-commit:4", "history.after-commit:1",
    "history.after-commit:3", "archive.before-move:1",
    *(f"{name}:{time}" for name in ("commit.before-checksum", "apply.after-commit") for time in (1, 2, 3, 4)),
    *(f"apply.before-commit:{time}" for time in (1, 2, 3)),
]  # fmt: skip
"""Of the early rows, between every two of the four commits of a batch, and of a bucket that is done in several."""


@pytest.mark.parametrize(
    "place", [pytest.param(each, marks=pytest.mark.full) if at > 4 else each for at, each in enumerate(PLACES)]
)
def test_killed(tmp_path: Path, place: str) -> None:
    its, begun = story(), datetime.now(timezone.utc)
    table = declared(tmp_path, its)
    for number, file in enumerate(its.files, start=1):
        publish(table, its, file)
        if number == BEFORE:
            assert sync(tmp_path) == 0
        if number == AT_THE_KILL:
            assert sync(tmp_path, place) == -signal.SIGKILL
            check_archived(tmp_path)
            is_early = place in ("_write_first", "close", "apply.before-commit:4")
            assert not is_early or any(each.startswith("t/part") for each in unnamed(tmp_path))
            assert place != "split" or any(each.startswith("t__history/part") for each in unnamed(tmp_path))
    assert sync(tmp_path) == 0
    compare(tmp_path, its, begun)
    assert not unnamed(tmp_path)
    assert [path.name for path in folder(tmp_path, "t").glob("*.parquet")] == [its.files[-1].name]
