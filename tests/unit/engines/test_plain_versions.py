"""Keys with one change that comes in order: their versions are those that the fold of any keys makes."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.history_model import DELETE, UPSERT, hashable
from tests.rounds import rounds

from lakemirror.engines.kernels.plain_versions import plain_keys, versions_after
from lakemirror.engines.kernels.version_rows import Changed, VersionRows, fold_versions
from lakemirror.engines.row_work import Target, TargetColumn, Versioning
from lakemirror.engines.versions import changed_versions
from lakemirror.landing_zone.reserved_columns import END_AT, START_AT

COLUMNS = {"k": "string", "v": "double", "w": "string", "s": "bigint", "t": "date"}
TYPES = {"k": pa.string(), "v": pa.float64(), "w": pa.string(), "s": pa.int64(), "t": pa.date32()}
FIELDS = [
    {"name": "s", "type": "long", "nullable": True, "metadata": {}},
    {"name": "t", "type": "date", "nullable": True, "metadata": {}},
]
SEQUENCES: dict[tuple[str, ...], tuple[str, pa.DataType]] = {
    (): ("timestamp", pa.timestamp("us", "UTC")),
    ("s",): ("bigint", pa.int64()),
    ("t",): ("date", pa.date32()),
    ("s", "t"): (json.dumps({"type": "struct", "fields": FIELDS}), pa.struct([("s", pa.int64()), ("t", pa.date32())])),
}


def random_rows(rng: random.Random, sequence: tuple[str, ...], *, wrong: bool = False) -> tuple[pa.Table, Changed]:
    """Versions of some keys, and changes: most of them one a key, in order. `wrong`: versions as no table has them:
    two open ones of a key, equal neighbours, sequences outside of the interval."""
    kind = SEQUENCES[sequence][1]

    def order(time: int) -> dict[str, int]:
        return {"s": time // 4, "t": time % 4 if len(sequence) > 1 else time // 4}

    def bound(time: int | None) -> Any:
        return None if time is None else order(time) if len(sequence) > 1 else time // 4 if sequence else time

    def values() -> dict[str, Any]:
        return {"v": rng.choice([None, 1.0, float("nan"), -0.0, 0.0]), "w": rng.choice([None, "x"])}

    versions: list[dict[str, Any]] = []
    changes: list[tuple[dict[str, Any], int, str | None, int]] = []
    for key in [None, *"abcdefgh"]:
        times = sorted(rng.sample(range(4, 60, 4), rng.choice([0, 1, 1, 1, 2, 3])))
        if not wrong:  # neighbours differ
            times = [time for place, time in enumerate(times) if not place or (time - times[place - 1]) % 8]
        ends = [None] * len(times[1:]) if wrong and rng.random() < 0.1 else times[1:]
        for start, end in zip(times, [*ends, rng.choice([None, None, None, 60])], strict=bool(times)):
            if rng.random() < 0.9:
                last = start + rng.choice([0, 0, 0, 0, 2, *([8, -8] if wrong else [])])
                its = values() if wrong else {**values(), "w": [None, "x"][start // 4 % 2]}
                versions.append({"k": key, **its, **order(last), START_AT: bound(start), END_AT: bound(end)})
        for _ in range(rng.choice([0, 1, 1, 1, 1, 2])):
            time = rng.choice([rng.randint(0, 64), (times or [9])[-1] + rng.randint(-1, 2), 64])
            mine = [row for row in versions if row["k"] == key]
            row = {"k": key, **values(), **order(time)}
            if mine and rng.random() < 0.4:
                row |= {name: mine[-1][name] for name in rng.choice([["w"], ["v", "w"], ["v", "w", "s", "t"]])}
            marker = rng.choice([UPSERT, UPSERT, UPSERT, DELETE])
            names = '["v"]' if marker != DELETE and rng.random() < 0.1 else None
            changes.append((row, marker, names, time))
    if rng.random() < 0.1:
        changes = [(row, DELETE, None, time) for row, *_, time in changes]
    rng.shuffle(versions)
    rng.shuffle(changes)
    kinds = TYPES | {START_AT: kind, END_AT: kind}
    columns = {name: pa.array([row[name] for row in versions], its) for name, its in kinds.items()}
    rows = pa.table({name: pa.array([row[name] for row, *_ in changes], its) for name, its in TYPES.items()})
    return pa.table(columns), Changed(
        rows, np.array([each[1] for each in changes], np.int8),
        pa.array([each[2] for each in changes], pa.string()) if rng.random() < 0.5 else None,
        np.array([each[3] for each in changes], np.int64),
    )  # fmt: skip


def content(found: VersionRows) -> tuple[Any, ...]:
    """What is removed and written, without its order."""
    return (
        Counter((int(number), bool(its)) for number, its in zip(found.removed, found.replaced, strict=True)),
        new_rows(found), found.open.schema, found.closed.schema,
        found.open[END_AT].null_count == found.open.num_rows, found.closed[END_AT].null_count,
    )  # fmt: skip


def new_rows(found: VersionRows) -> Counter[Any]:
    new = [*found.open.to_pylist(), *found.closed.to_pylist()]
    return Counter((*map(_plain, row.items()), bool(its)) for row, its in zip(new, found.replacing, strict=True))


def _plain(item: tuple[str, Any]) -> Any:
    name, value = item
    return name, tuple(value.items()) if isinstance(value, dict) else hashable(value)


def target_for(sequence: tuple[str, ...]) -> Target:
    kind = SEQUENCES[sequence][0]
    columns = (*COLUMNS.items(), (START_AT, kind), (END_AT, kind))
    return Target("", tuple(TargetColumn(n, n, k) for n, k in columns), key_columns=("k",), feed=True)


@pytest.mark.parametrize("track", [(), ("w",), ("w", "gone")], ids=["all", "w", "w and one that is gone"])
@pytest.mark.parametrize("deletes", ["hard", "soft", "ignore"])
@pytest.mark.parametrize("sequence", list(SEQUENCES), ids=["files", "s", "t", "s,t"])
def test_versions_are_those_of_the_fold(sequence: tuple[str, ...], deletes: str, track: tuple[str, ...]) -> None:
    target, plain, others = target_for(sequence), 0, 0
    for seed in range(rounds(20, 500)):
        rng = random.Random(seed)
        known, changes = random_rows(rng, sequence, wrong=True)
        since = tuple(str(rng.randint(0, 10)) for _ in sequence) if rng.random() < 0.3 else ()
        versioning = Versioning(track, sequence, deletes, since=since)
        remembered = None
        if sequence and rng.random() < 0.5:
            earlier = random_rows(rng, sequence)[1]
            remembered = earlier.chosen(np.flatnonzero([rng.random() < 0.5 for _ in earlier.markers]))._replace(
                names=None
            )
        times = None if changes.times is None else changes.times.copy()
        found = versions_after(target, versioning, known, changes, remembered)
        assert times is None or (times == changes.times).all(), "other tables read them, too"
        expected = fold_versions(target, versioning, known, changes, remembered)
        assert content(found) == content(expected), f"seed {seed}"
        keys = plain_keys(target, versioning, known, changes, remembered)
        plain += len(keys.versions) + len(keys.news)
        others += int(keys.others.sum())
    assert plain > 20 and others > 20


@pytest.mark.parametrize("deletes", ["hard", "ignore"])
@pytest.mark.parametrize("sequence", list(SEQUENCES), ids=["files", "s", "t", "s,t"])
def test_closed_versions_are_read_for_the_keys_that_need_them(sequence: tuple[str, ...], deletes: str) -> None:
    target, versioning = target_for(sequence), Versioning((), sequence, deletes)
    skipped = 0
    for seed in range(rounds(25, 500)):
        versions, changes = random_rows(random.Random(seed), sequence)
        open_ones, closed = (
            versions.filter(pc.is_null(versions[END_AT]) if yes else pc.is_valid(versions[END_AT]))
            for yes in (True, False)
        )
        rows_of, asked = {"open": open_ones, "closed": closed}, list[int]()

        def look(its: Target, files: Any, keys: pa.Table, rows_of: Any = rows_of, asked: Any = asked) -> list[Any]:
            found = []
            for number, file in enumerate(files):
                rows = rows_of[file["path"]]
                hits = np.flatnonzero(pc.is_in(rows["k"], keys["k"].combine_chunks()))
                asked.append(keys.num_rows)
                if len(hits):
                    found.append((number, hits, rows.take(hits).select([each.name for each in its.columns])))
            return found

        files = [
            {"path": path, "stats": json.dumps({"numRecords": 2, "nullCount": {END_AT: nulls}})}
            for path, nulls in (("open", 2), ("closed", 0))
        ]
        if len(sequence) > 1:
            files = [
                file | {"stats": file["stats"].replace(END_AT + '": ', END_AT + '": {"s": ') + "}"} for file in files
            ]
        found = changed_versions(target, versioning, files, changes, look)
        known = pa.concat_tables([open_ones, closed])
        expected = fold_versions(target, versioning, known, changes)
        assert all((np.diff(rows) > 0).all() for rows in found.deleted.values())
        gone = [number for file, rows in found.deleted.items() for number in rows + file * open_ones.num_rows]
        assert sorted(gone) == sorted(expected.removed.tolist()), f"seed {seed}"
        assert new_rows(found.rows) == new_rows(expected), f"seed {seed}"
        skipped += asked[0] > sum(asked[1:])
    assert skipped > 10
