"""Changes out of order by every way of row work: in memory, in passes, spilled, and by Spark's tasks, run here."""

from __future__ import annotations

import random
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from tests.history_model import DELETE, UPDATE, UPSERT, Change, ChangeFile
from tests.random_histories import Story, play
from tests.unit.engines.test_partial_rows import WAYS, tuned

from lakemirror.engines.local_engine import LocalEngine
from lakemirror.engines.pipeline import Pipeline
from lakemirror.engines.row_work import RowResult, RowWork

TYPES = {"id": pa.int64(), "k": pa.string(), "v": pa.int32(), "n": pa.int64()}


def story(options: dict[str, Any]) -> Story:
    """Four files with distinct sequences that ascend nowhere."""
    rng = random.Random(11)
    numbers = iter(rng.sample(range(1000), 240))
    files = []
    for number in range(1, 5):
        changes = [
            Change(
                rng.choice([UPSERT, UPDATE, DELETE]),
                {"id": rng.randrange(12), "k": rng.choice(["a", None]), "v": rng.randrange(9), "n": next(numbers)},
            )
            for _ in range(60)
        ]
        files.append(ChangeFile(f"{number:020}.parquet", tuple(TYPES), tuple(changes), datetime(2020, 1, number)))
    return Story(TYPES, ("id", "k"), options, tuple(files), frozenset({2}), batch_files=1)


@pytest.mark.parametrize("deletes", ["hard", "soft"])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_knows_the_remembered_deletes(monkeypatch: pytest.MonkeyPatch, way: str, deletes: str) -> None:
    engine, works = tuned(monkeypatch, way), list[RowWork]()

    def run(_: LocalEngine, work: RowWork) -> RowResult:
        works.append(work)
        return engine.run(work) if way in ("tasks", "buckets") else Pipeline.run(engine, work)

    monkeypatch.setattr(LocalEngine, "run", run, raising=False)
    play(story({"sequence": "n", "deletes": deletes}))
    assert [work.ordering is not None and work.ordering.memory is not None for work in works] == [False, *[True] * 3]
