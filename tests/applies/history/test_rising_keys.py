"""Batches that do not fit into memory, with keys that rise from change to change, or nearly so: as the model has it."""

from __future__ import annotations

import random
from collections import Counter
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.change_tables import expected_versions, held_versions, put_at
from tests.history_model import DELETE, UPDATE, UPSERT, Change, ChangeFile
from tests.landing import declare
from tests.random_histories import LONG_AGO, Story, play
from tests.rounds import rounds

from lakemirror import MirroredDatabase
from lakemirror.engines import version_buckets, write_versions
from lakemirror.engines.local_engine import LocalEngine
from lakemirror.engines.version_buckets import VersionBucket

KEYS: dict[pa.DataType, Any] = {
    pa.int64(): lambda place: (place - 6) << 59,
    pa.int16(): lambda place: place * 1000 - 5000,
    pa.date32(): lambda place: date(1969, 12, 25) + timedelta(days=place),
    pa.timestamp("us", "UTC"): lambda place: LONG_AGO + timedelta(microseconds=place),
}
OPTIONS: list[dict[str, Any]] = [
    {"history": "scd2"},
    {"history": {"mode": "scd2", "track": ["v"]}, "deletes": "soft"},
    {"history": ["changes", "scd2"], "sequence": "n"},
    {"history": "scd2", "sequence": "n", "deletes": "ignore"},
]


def story(rng: random.Random) -> Story:
    """Two to four batches of files. In one of four, a key is there twice, NULL, or lower than the one before it."""
    kind = rng.choice(list(KEYS))
    files: list[ChangeFile] = []
    passes = set()
    for _ in range(rng.randint(2, 4)):
        keys: list[Any] = [KEYS[kind](place) for place in sorted(rng.sample(range(12), rng.randint(4, 12)))]
        place = rng.randrange(len(keys) - 1)
        if rng.random() < 0.25:
            keys[place] = rng.choice([keys[place + 1], None, keys[-1]])
        cuts = [0, *sorted(rng.sample(range(1, len(keys)), rng.randint(1, 3))), len(keys)]
        for begin, end in pairwise(cuts):
            changes = [
                Change(
                    rng.choice([UPSERT, UPSERT, UPDATE, DELETE]),
                    {"k": key, "v": rng.choice([1, 2, None]), "w": rng.choice(["p", "q"]), "n": rng.randrange(6)},
                )
                for key in keys[begin:end]
            ]
            moment = LONG_AGO + timedelta(seconds=rng.randint(0, 9))
            files.append(ChangeFile(f"{len(files) + 1:020}.parquet", ("k", "v", "w", "n"), tuple(changes), moment))
        passes.add(len(files))
    types = {"k": kind, "v": pa.int32(), "w": pa.string(), "n": pa.int64()}
    return Story(types, ("k",), rng.choice(OPTIONS), tuple(files), frozenset(passes))


def test_rising_keys_and_nearly_rising_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """In every other story, the changes of a bucket take more memory than their share."""
    ways, splits = Counter[bool](), Counter[str]()
    parts_of, split = version_buckets._parts, VersionBucket.split

    def noted(*given: Any) -> Any:
        parts = parts_of(*given)
        ways[parts is not None] += 1
        return parts

    def noted_split(bucket: VersionBucket, size: int) -> list[VersionBucket]:
        splits["parts" if bucket.spill is None else "spill"] += 1
        assert size > bucket.most
        return split(bucket, size)

    monkeypatch.setattr(version_buckets, "_parts", noted)
    monkeypatch.setattr(VersionBucket, "split", noted_split)
    monkeypatch.setattr(LocalEngine, "read_small", lambda *_: None)
    for seed in range(rounds(8, 300)):
        monkeypatch.setattr(version_buckets, "_MORE", 2e-6 if seed % 2 else 2)
        play(story(random.Random(seed)))
    assert ways[True] > 4 and ways[False] > 4
    assert splits["parts"] > 4 and splits["spill"] > 4


def test_a_bucket_in_several_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ones have written their versions."""
    declare(tmp_path, "t", ["id"], lakemirror={"history": "scd2"})
    ids = list(range(64))
    put_at(tmp_path, "t", 1, {"id": ids, "v": ids})
    changed, left = write_versions.changed_versions, list[int]()

    def fails(*given: Any) -> Any:
        left.append(len(list((tmp_path / "Tables/t__history").glob("*.parquet"))))
        if left[-1]:
            raise OSError("broken")
        return changed(*given)

    monkeypatch.setattr(LocalEngine, "read_small", lambda *_: None)
    monkeypatch.setattr(version_buckets, "_MORE", 1e-6)
    with monkeypatch.context() as patch:
        patch.setattr(write_versions, "changed_versions", fails)
        assert MirroredDatabase(tmp_path, engine="local").sync().failed
    assert max(left) > 0
    assert not list((tmp_path / "Tables").glob("*/*.parquet"))
    assert not MirroredDatabase(tmp_path, engine="local").sync().failed
    assert held_versions(tmp_path, "t__history") == expected_versions(tmp_path, "t", ["id"], {"history": "scd2"})
