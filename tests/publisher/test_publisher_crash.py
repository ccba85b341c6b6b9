"""A publisher is killed at its failpoints: no half file is seen, nothing published is lost or repeated wrongly."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from published_contents import change_files, changes, fold, others, retire

from lakemirror.failpoints import PUBLISHER_NAMES
from lakemirror.publisher import Landing, LandingTable

pytestmark = pytest.mark.usefixtures("door")

FORK = multiprocessing.get_context("fork")

PUBLISH = [
    "publish.metadata-written",
    "publish.file-written",
    "publish.before-link",
    "publish.after-link",
    "publish.done",
]
SNAPSHOT = [*PUBLISH[1:], "snapshot.before-state"]


def end_at(failpoint: str, act: Callable[[], object]) -> None:
    """Runs `act` in a process of its own that is killed when it reaches the failpoint."""
    assert failpoint in PUBLISHER_NAMES

    def run() -> None:
        os.environ["LAKEMIRROR_FAILPOINT"] = failpoint
        act()
        os._exit(0)

    process = FORK.Process(target=run)
    process.start()
    process.join(30)
    assert process.exitcode == -signal.SIGKILL, f"{failpoint} was not reached"


def readable(folder: Path) -> list[int]:
    """Numbers of the change files; each must be a whole Parquet file. A service makes the folder for the first one."""
    if not folder.is_dir():
        return []
    found = change_files(folder)
    for path in found.values():
        pq.read_table(path, partitioning=None)
    assert others(folder) == set()
    return list(found)


@pytest.mark.parametrize("failpoint", PUBLISH)
def test_a_publisher_ends(tmp_path: Path, failpoint: str) -> None:
    table = Landing(tmp_path).table("t", ["id"])
    end_at(failpoint, lambda: table.insert([{"id": 1}]))
    seen = readable(table.folder)
    assert seen == ([1] if failpoint in ("publish.after-link", "publish.done") else [])
    if seen:
        assert (table.folder / "_metadata.json").exists()
    published = table.insert([{"id": 2}])  # the next process goes on
    assert published is not None and published.number == len(seen) + 1
    assert [row["id"] for _, row in changes(table.folder)] == ([1, 2] if seen else [2])
    assert '"id"' in (table.folder / "_metadata.json").read_text()


def test_a_publisher_ends_inside_a_drop(tmp_path: Path) -> None:
    table = Landing(tmp_path).table("t", ["id"])
    table.insert([{"id": 1}])
    end_at("publish.dropped", table.drop)
    assert not table.folder.exists()
    assert all(path.name.startswith("_") for path in table.folder.parent.iterdir())
    Landing(tmp_path).table("t", ["id"]).insert([{"id": 2}])
    assert changes(table.folder) == [(0, {"id": 2})]
    assert list(table.folder.parent.iterdir()) == [table.folder]  # the rest of the dropped one is swept


CONTENTS = [
    {1: "a", 2: "b", 3: "c"},
    {1: "a", 2: "B", 4: "d"},  # 2 changed, 3 gone, 4 new
    {1: "A", 4: "d", 5: "e"},  # 1 changed, 2 gone, 5 new
]


def snapshot(content: dict[int, str]) -> pa.Table:
    return pa.table(
        {"id": list(content), "v": list(content.values())}, pa.schema([("id", pa.int64()), ("v", pa.string())])
    )


def mirrored(table: LandingTable) -> dict[int, str]:
    """The rows after all changes; a row that was inserted twice shows as two."""
    rows = fold(changes(table.folder), ["id"])
    assert len({row["id"] for row in rows}) == len(rows), rows
    return {row["id"]: row["v"] for row in rows}


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize("failpoint", SNAPSHOT)
def test_a_snapshot_ends_and_the_next_one_differs(tmp_path: Path, failpoint: str, step: int, moved: bool) -> None:
    table = Landing(tmp_path).table("t", ["id"])
    for content in CONTENTS[:step]:
        table.publish_snapshot(snapshot(content))
    end_at(failpoint, lambda: table.publish_snapshot(snapshot(CONTENTS[step])))
    readable(table.folder)
    if moved and change_files(table.folder):
        retire(table.folder)
    after = CONTENTS[step + 1]
    Landing(tmp_path).table("t", ["id"]).publish_snapshot(snapshot(after))
    assert mirrored(table) == after
    count = len(change_files(table.folder))
    assert table.publish_snapshot(snapshot(after)) is None  # and now all is known again
    assert len(change_files(table.folder)) == count


def test_a_snapshot_ends_between_the_whole_state_and_its_clean_up(tmp_path: Path) -> None:
    """A patch of an older whole state is left over: it must count for nothing."""
    table = Landing(tmp_path).table("t", ["id"])
    many = dict.fromkeys(range(20000), "x")
    table.publish_snapshot(snapshot(many))
    table.publish_snapshot(snapshot({**many, 5: "patched"}))
    assert (table.folder / "_snapshot_patch.arrow").exists()
    other = dict.fromkeys(range(10, 20010), "y")
    end_at("snapshot.between-states", lambda: table.publish_snapshot(snapshot(other)))
    assert (table.folder / "_snapshot_patch.arrow").exists()
    assert table.publish_snapshot(snapshot(other)) is None
    table.publish_snapshot(snapshot(many))
    assert mirrored(table) == many
