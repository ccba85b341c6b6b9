"""What Spark's writers leave behind when rows are refused, without a JVM: partitions are lists of Arrow batches."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.publisher.published_contents import changes

from lakemirror.errors import LakemirrorError
from lakemirror.publisher.folders import local_folder
from lakemirror.publisher.spark_batches import Target, publish_each_batch

source = pytest.importorskip("lakemirror.publisher.spark", reason="PySpark 4.0 or newer is not installed")

GOOD = pa.record_batch({"id": [1], "__rowMarker__": [4]})
BAD = pa.record_batch({"id": [2], "__rowMarker__": [9]})


class Frame:
    """As much of a frame as `foreachBatch` needs: each partition is one batch."""

    columns = GOOD.schema.names
    schema: tuple[()] = ()

    def __init__(self, *partitions: pa.RecordBatch) -> None:
        self.partitions = partitions
        self.sparkSession = SimpleNamespace(streams=SimpleNamespace(active=[]))

    def mapInArrow(self, write: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], _: str) -> Frame:
        return Frame(*(out for each in self.partitions for out in write(iter([each]))))

    def collect(self) -> list[dict[str, Any]]:
        return [row for each in self.partitions for row in each.to_pylist()]


def writers(db: Path) -> dict[str, Any]:
    """The two writers of the data source, as the driver has them and as another process gets them."""
    target = Target.of({"path": str(db / "sales.t"), "keys": "id"}, GOOD.schema.names)
    made = (source._Writer(target, None), source._StreamWriter(target, None, "q", ""))
    return dict(zip(("batch", "stream"), pickle.loads(pickle.dumps(made)), strict=True))


def test_a_refused_first_batch_leaves_nothing(tmp_path: Path) -> None:
    publish = publish_each_batch(str(tmp_path / "db/sales.t"), "q", keys="id")
    with pytest.raises(LakemirrorError) as caught:
        publish(Frame(GOOD, BAD), 0)  # type: ignore[arg-type]
    assert caught.value.code == "row-marker-invalid" and "9" in caught.value.message
    assert not list(tmp_path.iterdir())
    publish(Frame(GOOD, GOOD.slice(1)), 0)  # type: ignore[arg-type]
    assert [row["id"] for _, row in changes(tmp_path / "db/Files/LandingZone/sales.schema/t")] == [1]


@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_a_refused_first_write_leaves_nothing(tmp_path: Path, kind: str) -> None:
    writer = writers(tmp_path / "db")[kind]
    message = writer.write(iter([GOOD]))
    with pytest.raises(LakemirrorError, match="9"):
        writer.write(iter([BAD]))
    writer.abort([message, None], *([0] if kind == "stream" else []))
    assert not list(tmp_path.iterdir())


def test_a_write_without_rows_makes_no_table(tmp_path: Path) -> None:
    writer = writers(tmp_path / "db")["batch"]
    writer.commit([writer.write(iter([GOOD.slice(1)]))])
    assert not list(tmp_path.iterdir())


def test_a_commit_that_fails_halfway_keeps_what_its_plan_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark calls `abort` after a commit that failed, and runs the batch again."""
    writer, real = writers(tmp_path / "db")["stream"], local_folder._link
    first = [writer.write(iter([GOOD])) for _ in range(2)]
    links = iter([real, None])

    def link(temporary: Path, target: Path) -> None:
        step = next(links) if target.suffix == ".parquet" else real
        if step is None:
            raise OSError("the disk is full")
        step(temporary, target)

    monkeypatch.setattr(local_folder, "_link", link)
    with pytest.raises((OSError, LakemirrorError)):
        writer.commit(first, 0)
    writer.abort(first, 0)
    monkeypatch.undo()
    writer.commit([writer.write(iter([GOOD])) for _ in range(2)], 0)
    folder = tmp_path / "db/Files/LandingZone/sales.schema/t"
    assert [row["id"] for _, row in changes(folder)] == [1, 1]
    assert not list(folder.glob("_publishing-*"))
