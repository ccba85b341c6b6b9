"""A batch is published exactly once, wherever its publisher stops."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from published_contents import change_files, changes

from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing, LandingTable, batches
from lakemirror.publisher.batches import Run, publish_batch
from lakemirror.publisher.folders import local_folder, remote_folder
from lakemirror.publisher.table_writer import Prepared

pytestmark = pytest.mark.usefixtures("door")

POINTS = ["batch.planned", "publish.after-link", "batch.file-published"]


class Stopped(BaseException):
    pass


def prepared(table: LandingTable, batch: int) -> list[Prepared]:
    found = [table.prepare([{"id": 10 * batch + part}], "insert") for part in (1, 2)]
    return [each for each in found if each is not None]


def ids(table: LandingTable) -> list[int]:
    return [row["id"] for _, row in changes(table.folder)]


def left(table: LandingTable) -> list[Path]:
    return list(table.folder.glob("_publishing-*"))


def test_a_batch_that_comes_again_is_not_published_again(tmp_path: Path) -> None:
    table = Landing(tmp_path).table("t", ["id"])
    assert publish_batch(table, "q", 0, prepared(table, 0)) == 2
    assert publish_batch(table, "q", 0, prepared(table, 0)) == 0
    assert publish_batch(table, "q", 1, prepared(table, 1)) == 2
    assert publish_batch(table, "q", 1, prepared(table, 1)) == 0
    assert publish_batch(table, "another", 0, prepared(table, 7)) == 2
    assert ids(table) == [1, 2, 11, 12, 71, 72]
    assert not left(table)


RUNS = {  # who numbered the last batch, who numbers this one: what becomes of batch 0 and of batch 1
    "another checkpoint": (Run("a"), Run("b"), ("error", "error")),
    "another checkpoint, announced": (Run("a"), Run("b", "2"), ("published", "published")),
    "another checkpoint, announced before": (Run("a", "2"), Run("b", "2"), ("error", "error")),
    "the same checkpoint": (Run("a"), Run("a"), ("error", "repeated")),
    "the same checkpoint, another word": (Run("a"), Run("a", "2"), ("published", "repeated")),
    "nobody knows": (Run(), Run(), ("error", "repeated")),
    "nobody knows, announced": (Run(), Run("", "2"), ("published", "published")),
    "by an earlier version": (Run(), Run("a"), ("error", "repeated")),
    "an empty batch in between": (Run("a"), Run(), ("error", "repeated")),
}


@pytest.mark.parametrize("case", RUNS)
@pytest.mark.parametrize("batch", [0, 1])
def test_a_number_of_another_run_is_never_taken_for_a_repetition(tmp_path: Path, case: str, batch: int) -> None:
    """Once, a stream with a new checkpoint under an old name published nothing for the numbers that were used."""
    before, now, expected = RUNS[case]
    table = Landing(tmp_path).table("t", ["id"])
    for number in (0, 1):
        publish_batch(table, "q", number, prepared(table, number), before)
    files = prepared(table, 5)
    if expected[batch] == "error":
        with pytest.raises(LakemirrorError) as caught:
            publish_batch(table, "q", batch, files, now)
        assert caught.value.code == "stream-restarted" and 'run="2"' in caught.value.hint
        assert f"batch {batch} of the stream 'q'" in caught.value.message
    else:
        assert publish_batch(table, "q", batch, files, now) == (2 if expected[batch] == "published" else 0)
    assert ids(table) == [1, 2, 11, 12, *([51, 52] if expected[batch] == "published" else [])]
    assert not left(table)
    if expected[batch] == "published":
        assert publish_batch(table, "q", batch, prepared(table, 5), now) == 0, "repeated within the new run"
        assert publish_batch(table, "q", batch + 1, prepared(table, 6), now) == 2


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("other", [False, True])
def test_stopped_anywhere(point: str, times: int, other: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`other`: another publisher takes a number before the batch comes again."""
    table = Landing(tmp_path).table("t", ["id"])
    publish_batch(table, "q", 0, prepared(table, 0))
    calls = 0

    def reach(name: str) -> None:
        nonlocal calls
        calls += name == point
        if calls == times and name == point:
            raise Stopped(point)

    files = prepared(table, 1)
    with monkeypatch.context() as patch:
        for module in (batches, local_folder):
            patch.setattr(module, "reach", reach)
        try:
            publish_batch(table, "q", 1, files)
        except Stopped:
            assert calls == times
    if other:
        Landing(tmp_path).table("t").insert([{"id": 99}])
    again = Landing(tmp_path).table("t")
    publish_batch(again, "q", 1, prepared(again, 1))
    publish_batch(again, "q", 2, prepared(again, 2))
    found = ids(again)
    assert sorted(found) == sorted([1, 2, 11, 12, 21, 22, *([99] if other else [])])
    assert [id for id in found if id != 99] == [1, 2, 11, 12, 21, 22]
    assert list(change_files(table.folder)) == list(range(1, len(found) + 1))
    assert not left(table)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_number_that_is_lost_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: bool) -> None:
    """Where no lock keeps others out: the rest goes on in the types of then, and each row is there once."""
    for folder in (local_folder.LocalFolder, remote_folder.RemoteFolder):
        monkeypatch.setattr(folder, "locked", lambda _: contextlib.nullcontext())
    table = Landing(tmp_path).table("t", ["id"])

    def files() -> list[Prepared]:
        rows = [{"id": 1}, {"id": 2, "w": 5}, {"id": 3}]
        return [each for row in rows if (each := table.prepare([row], "insert")) is not None]

    met: list[str] = []

    def reach(name: str) -> None:
        met.append(name)
        if name == "batch.file-published" and met.count(name) == 1:
            Landing(tmp_path).table("t").insert([{"id": 99, "w": 0.5}])
            met.append("another")
        if stopped and name == "publish.after-link" and "another" in met:
            raise Stopped

    with monkeypatch.context() as patch:
        batch = files()
        for module in (batches, local_folder, remote_folder):
            patch.setattr(module, "reach", reach)
        try:
            assert publish_batch(table, "q", 0, batch) == 3 and not stopped
        except Stopped:
            assert stopped
    publish_batch(Landing(tmp_path).table("t", ["id"]), "q", 0, files())
    assert ids(table) == [1, 99, 2, 3]
    assert pq.read_schema(change_files(table.folder)[3]).field("w").type == pa.float64()
    assert not left(table)


def test_a_batch_without_rows(tmp_path: Path) -> None:
    table = Landing(tmp_path).table("t", ["id"])
    assert table.prepare([], "upsert") is None
    assert publish_batch(table, "q", 0, []) == 0
    assert publish_batch(table, "q", 1, prepared(table, 1)) == 2
