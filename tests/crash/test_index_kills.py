"""The key index while other processes use it or are killed at it: what is found is right, or nothing is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests import preloaded
from tests.mirror import target_of
from tests.unit.engines.test_key_index import (
    TABLES,
    every_file_has_an_index,  # noqa: F401 - a fixture of these tests, too
    found,
    restarted,
    with_table,
)

from lakemirror import failpoints
from lakemirror.engines.row_work import Target
from lakemirror.keys.key_index import KeyIndex
from lakemirror.landing_zone.reserved_columns import DELETED

BEFORE_RENAME, BEFORE_COPY, BEFORE_DROP = failpoints.INDEX_NAMES


SCRIPT = """
import sys
from pathlib import Path
import pyarrow.parquet as pq
from tests.crash.test_index_kills import add_of
from lakemirror.keys import key_index
key_index.FEWEST_ROWS = 1
key_index._READ_NUMBERS = 0
index = key_index.KeyIndex(Path(sys.argv[1]) / "keys", 1 << 30)
target, add, keys = add_of(Path(sys.argv[1]))
index.build(add, target)
from lakemirror.keys.wanted_keys import WantedKeys
print(index.find(add, target, WantedKeys(keys.slice(5, 1))).tolist())
"""


AT_ONCE = """
import sys
from pathlib import Path
from tests.crash.test_index_kills import add_of
from lakemirror.keys import key_index
from lakemirror.keys.look_up import LATELY_READ
from lakemirror.keys.wanted_keys import WantedKeys
key_index.FEWEST_ROWS = 1
key_index._READ_NUMBERS = 0
place = Path(sys.argv[1])
target, add, keys = add_of(place)
index = key_index.KeyIndex(place / "keys", 1 << 30)
print("begins", flush=True)
for turn in range(int(sys.argv[2])):
    index.build(add, target)
    for begin in (0, 2000, 4000):
        rows = index.find(add, target, WantedKeys(keys.slice(begin, 5)))
        assert rows is None or rows.tolist() == list(range(begin, begin + 5)), rows
    if turn % 3 == 0:
        for path in (place / "keys").glob("*/*.keys"):
            index._folder.drop(path)
    if turn % 5 == 0:
        LATELY_READ.clear()
print("right")
"""


def add_of(place: Path) -> tuple[Target, dict[str, Any], pa.Table]:
    """The table of `with_table`, for another process."""
    keys = pq.ParquetFile(place / "t/a.parquet").read()
    add = {"path": "a.parquet", "size": 0, "stats": json.dumps({"numRecords": keys.num_rows})}
    kinds = {field.name: field.type for field in keys.schema}
    return target_of(place / "t", kinds, (keys.schema.names[0],)), add, keys


def in_a_process(place: Path, failpoint: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "LAKEMIRROR_FAILPOINT": failpoint}
    return preloaded.run(
        [sys.executable, "-c", SCRIPT, str(place)], env=environment, capture_output=True, text=True, check=False
    )


def test_several_engines_build_find_and_drop_in_one_folder(tmp_path: Path) -> None:
    """Other processes build, find and drop the same index all the time; whatever this one finds is right."""
    target, add = with_table(tmp_path, TABLES["uuid"])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    others = [
        preloaded.Popen(
            [sys.executable, "-c", AT_ONCE, str(tmp_path), "6"], env=environment, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    index, answers = KeyIndex(tmp_path / "keys", 1 << 30), set()
    while any(other.poll() is None for other in others):
        for begin in (5, 1700, 4990):
            rows = found(index, add, target, TABLES["uuid"].slice(begin, 9))
            assert rows in (None, list(range(begin, begin + 9)))
            answers.add(rows is None)
        index.want(add, target)
    index.wait()
    assert [other.communicate()[0] for other in others] == ["begins\nright\n"] * 2
    assert False in answers
    assert found(index, add, target, TABLES["uuid"].slice(5, 2)) in (None, [5, 6])
    assert not [each for each in (tmp_path / "keys").glob("*/*") if each.suffix != ".keys"]


@pytest.mark.full
def test_a_kill_at_any_moment_of_a_build_leaves_nothing_that_is_believed(tmp_path: Path) -> None:
    target, add = with_table(tmp_path, TABLES["uuid"])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for milliseconds in range(0, 400, 20):
        child = preloaded.Popen(
            [sys.executable, "-c", AT_ONCE, str(tmp_path), "99"], env=environment, stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(milliseconds / 1000)
        child.kill()
        child.wait()
        index = restarted(tmp_path / "keys")
        assert found(index, add, target, TABLES["uuid"].slice(5, 2)) in (None, [5, 6])
        assert index.build(add, target)
        assert found(index, add, target, TABLES["uuid"].slice(5, 2)) == [5, 6]


def test_engines_of_one_process_share_an_index_and_another_engine_may_replace_its_files(tmp_path: Path) -> None:
    first = KeyIndex.shared(tmp_path / "keys", 1 << 30)
    assert KeyIndex.shared(tmp_path / "keys", 1 << 29) is first
    target, add = with_table(tmp_path, TABLES["uuid"])
    assert first.build(add, target)
    assert found(first, add, target, TABLES["uuid"].slice(3, 1)) == [3]
    assert in_a_process(tmp_path).stdout == "[5]\n", "built again, at the same place"
    assert found(first, add, target, TABLES["uuid"].slice(4, 2)) == [4, 5]
    (path,) = (tmp_path / "keys").glob("*/*")
    path.unlink()
    assert found(first, add, target, TABLES["uuid"].slice(4, 2)) is None, "another engine has dropped it"


def test_a_kill_before_the_rename_leaves_no_index(tmp_path: Path) -> None:
    target, add = with_table(tmp_path, TABLES["uuid"])
    assert in_a_process(tmp_path, BEFORE_RENAME).returncode == -9
    assert not list((tmp_path / "keys").glob("*/*.keys")) and list((tmp_path / "keys").glob("*/.building-*"))
    assert found(KeyIndex(tmp_path / "keys", 1 << 30), add, target, TABLES["uuid"].slice(5, 1)) is None
    assert in_a_process(tmp_path).stdout == "[5]\n"


def test_a_kill_before_an_index_is_dropped_leaves_one_that_is_not_believed(tmp_path: Path) -> None:
    with_table(tmp_path, TABLES["uuid"])
    assert in_a_process(tmp_path).stdout == "[5]\n"
    (path,) = (tmp_path / "keys").glob("*/*")
    shutil.rmtree(path.parent / "gone", ignore_errors=True)
    foreign = path.with_name(f"{'0' * 32}.keys")
    foreign.write_bytes(b"LMKEYS04 of nothing")
    assert in_a_process(tmp_path, BEFORE_DROP).returncode == -9
    assert foreign.exists() and path.exists()
    assert in_a_process(tmp_path).stdout == "[5]\n" and not foreign.exists()


COPIES = """
import sys
from pathlib import Path
import numpy as np
from tests.crash.test_index_kills import add_of
from lakemirror.keys import row_copies
from lakemirror.keys.key_index import KeyIndex
row_copies.FEWEST_ROWS = 1
target, add, keys = add_of(Path(sys.argv[1]))
index = KeyIndex(Path(sys.argv[1]) / "keys", 1 << 30)
for _ in range(2):
    index.rows.open([add], target)
    copied = row_copies.copied_rows(add, target, np.array([5]), target.columns)
    print(copied and copied["v"][0].as_py(), flush=True)
    index.wait()
"""


def test_a_kill_before_the_rename_leaves_no_copy_of_rows(tmp_path: Path) -> None:
    rows = pa.table({"v": [f"v{number}" for number in range(100)], DELETED: [False] * 100})
    with_table(tmp_path, rows)
    for failpoint, status, said in ((BEFORE_COPY, -9, "None\n"), ("", 0, "None\nv5\n"), ("", 0, "v5\nv5\n")):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "LAKEMIRROR_FAILPOINT": failpoint}
        ran = preloaded.run(
            [sys.executable, "-c", COPIES, str(tmp_path)], env=environment, capture_output=True, text=True, check=False
        )
        assert (ran.returncode, ran.stdout) == (status, said), ran.stderr
        assert bool(list((tmp_path / "keys").glob("*/*.rows"))) is not bool(failpoint)
