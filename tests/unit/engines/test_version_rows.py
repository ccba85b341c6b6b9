"""Versions of real rows against the plain model: NULLs, NaN, composite keys, partial rows, all kinds of sequences.

The table is in memory: an apply gets the versions that it would read, and all earlier events as remembered ones.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.history_model import DELETE, UPSERT, Change, ChangeFile, HistoryModel, PartialRowMissing, hashable
from tests.rounds import rounds

from lakemirror.engines.kernels.version_rows import Changed, fold_versions
from lakemirror.engines.row_work import Target, TargetColumn, Versioning
from lakemirror.engines.versions import changed_versions
from lakemirror.landing_zone.reserved_columns import END_AT, START_AT
from lakemirror.landing_zone.table_options import IGNORE

KEYS = ("k", "l")
KINDS = {"k": "bigint", "l": "string", "v": "double", "w": "string", "s": "bigint", "t": "string"}
TYPES = {"k": pa.int64(), "l": pa.string(), "v": pa.float64(), "w": pa.string(), "s": pa.int64(), "t": pa.string()}
DAY = datetime(2026, 1, 1, tzinfo=timezone.utc)


def target_for(sequence: tuple[str, ...], *, feed: bool = False) -> Target:
    bound = "timestamp"
    if len(sequence) == 1:
        bound = KINDS[sequence[0]]
    elif sequence:
        fields = [
            {"name": n, "type": {"bigint": "long"}.get(KINDS[n], KINDS[n]), "nullable": True, "metadata": {}}
            for n in sequence
        ]
        bound = json.dumps({"type": "struct", "fields": fields})
    columns = [TargetColumn(name, name, kind) for name, kind in KINDS.items()]
    return Target("", (*columns, *(TargetColumn(n, n, bound) for n in (START_AT, END_AT))), key_columns=KEYS, feed=feed)


class Table:
    def __init__(self, options: dict[str, Any]) -> None:
        sequence = options.get("sequence", ())
        sequence = (sequence,) if isinstance(sequence, str) else tuple(sequence)
        self.versioning = Versioning(
            tuple(options["history"].get("track", ())), sequence, options.get("deletes", "hard")
        )  # fmt: skip
        self.target = target_for(sequence)
        self.versions: list[dict[str, Any]] = []
        self.events: list[Change] = []

    def apply(self, file: ChangeFile) -> None:
        sequence = self.versioning.sequence

        def key(row: Any) -> Any:
            return row["k"], row["l"]

        def order(row: Any) -> Any:
            return tuple(row[name] for name in sequence)

        def bound(value: Any) -> Any:
            return tuple(value.values()) if isinstance(value, dict) else (value,)

        keys = {key(change.row) for change in file.changes}
        known = [each for each in self.versions if key(each) in keys]
        remembered = []
        if sequence:
            first = {k: min(order(c.row) for c in file.changes if key(c.row) == k) for k in keys}
            known = [each for each in known if each[END_AT] is None or bound(each[END_AT]) >= first[key(each)]]
            for each in known:
                first[key(each)] = min(first[key(each)], bound(each[START_AT]))
            remembered = [c for c in self.events if key(c.row) in keys and order(c.row) >= first[key(c.row)]]
        found = fold_versions(
            self.target, self.versioning, self.table(known), self.changed(file.changes, file.modified),
            self.changed(remembered, file.modified) if sequence else None,
        )  # fmt: skip
        for number in sorted(found.removed, reverse=True):
            self.versions.remove(known[number])
        new = [*found.open.to_pylist(), *found.closed.to_pylist()]
        assert [row[END_AT] is None for row in new] == [True] * found.open.num_rows + [False] * found.closed.num_rows
        self.versions += new
        self.events += [c for c in file.changes if self.versioning.deletes != IGNORE or c.marker != DELETE]

    def table(self, rows: list[dict[str, Any]]) -> pa.Table:
        from lakemirror.engines.kernels.data_rows import stored_arrow_type

        kinds = {each.name: stored_arrow_type(each) for each in self.target.columns}
        return pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()})

    def changed(self, changes: Any, modified: datetime) -> Changed:
        rows = pa.table({name: pa.array([c.row.get(name) for c in changes], kind) for name, kind in TYPES.items()})
        names = pa.array([json.dumps(list(c.unchanged)) if c.unchanged else None for c in changes], pa.string())
        moment = (modified - datetime(1970, 1, 1)) // timedelta(microseconds=1)
        times = np.full(len(changes), moment)
        return Changed(rows, np.array([c.marker for c in changes], np.int8), names, times)

    def bag(self) -> Counter[tuple[Any, ...]]:
        def plain(value: Any) -> Any:
            return (value - DAY) // timedelta(microseconds=1) if isinstance(value, datetime) else hashable(value)

        return Counter(tuple(plain(row[name]) for name in (*KINDS, START_AT, END_AT)) for row in self.versions)


def files_of(rng: random.Random, *, distinct: bool, partial: bool) -> list[ChangeFile]:
    """Some change files. With `distinct`, no two changes have one sequence."""
    count = rng.randint(1, 25)
    sequences = rng.sample(range(100), count) if distinct else [rng.randint(0, 12) for _ in range(count)]
    changes = []
    for number in sequences:
        row = {
            "k": rng.choice([None, 1]), "l": rng.choice([None, "a"]),
            "v": rng.choice([None, 1.0, float("nan"), -0.0, 0.0]), "w": rng.choice([None, "x", "y"]),
            "s": number // 4, "t": "abcd"[number % 4],
        }  # fmt: skip
        marker = rng.choice([UPSERT, UPSERT, UPSERT, DELETE])
        unchanged = tuple(rng.sample(["v", "w"], rng.randint(0, 2))) if partial and marker != DELETE else ()
        changes.append(Change(marker, row | dict.fromkeys(unchanged), unchanged))
    files, begin = [], 0
    while begin < count:
        end = begin + rng.randint(1, 6)
        moment = DAY.replace(tzinfo=None) + timedelta(microseconds=rng.choice([begin, 10]))
        files.append(ChangeFile(f"{len(files)}", tuple(KINDS), tuple(changes[begin:end]), moment))
        begin = end
    return files


def expected(options: dict[str, Any], files: list[ChangeFile]) -> Counter[tuple[Any, ...]]:
    model = HistoryModel(KEYS, options)
    for file in files:
        model.apply(file)
    day = DAY.replace(tzinfo=None)
    return Counter(
        tuple((value - day) // timedelta(microseconds=1) if isinstance(value, datetime) else value for value in row)
        for row in model.versions().elements()
    )


SEQUENCES: list[dict[str, Any]] = [{}, {"sequence": "s"}, {"sequence": ["s", "t"]}]


@pytest.mark.parametrize("track", [(), ("w",)], ids=["all", "w"])
@pytest.mark.parametrize("deletes", ["hard", "ignore"])
@pytest.mark.parametrize("given", SEQUENCES, ids=["files", "s", "s,t"])
def test_versions_are_those_of_the_model(given: dict[str, Any], deletes: str, track: tuple[str, ...]) -> None:
    options = {**given, "deletes": deletes, "history": {"mode": "scd2", "track": track}}
    for seed in range(rounds(10, 25)):
        files = files_of(random.Random(seed), distinct=False, partial=False)
        table = Table(options)
        for file in files:
            table.apply(file)
        assert table.bag() == expected(options, files), f"seed {seed}"


@pytest.mark.parametrize("given", SEQUENCES, ids=["files", "s", "s,t"])
def test_partial_rows_take_the_values_of_the_event_before(given: dict[str, Any]) -> None:
    options = {**given, "history": {"mode": "scd2"}}
    compared = 0
    for seed in range(200):
        files = files_of(random.Random(seed), distinct=False, partial=True)
        files.sort(key=lambda file: file.changes[0].row["s"])
        try:
            whole = expected(options, [_in_order(files, bool(given))])
        except PartialRowMissing:
            continue
        table = Table(options)
        table.apply(_in_order(files, bool(given)))
        assert table.bag() == whole, f"seed {seed}"
        compared += 1
    assert compared > 5


def _in_order(files: list[ChangeFile], sequenced: bool) -> ChangeFile:
    changes = [change for file in files for change in file.changes]
    if sequenced:
        changes.sort(key=lambda change: (change.row["s"], change.row["t"]))
    return ChangeFile("0", tuple(KINDS), tuple(changes), files[0].modified)


@pytest.mark.parametrize("seed", range(20))
def test_the_order_of_arrival_makes_no_difference(seed: int) -> None:
    rng = random.Random(seed)
    options: dict[str, Any] = {"sequence": ["s", "t"], "history": {"mode": "scd2"}}
    files = files_of(rng, distinct=True, partial=False)
    whole = expected(options, files)
    for _ in range(3):
        rng.shuffle(files)
        table = Table(options)
        for file in files:
            table.apply(file)
        assert table.bag() == whole, f"seed {seed}"


def test_a_version_that_replaces_one_is_an_update_for_the_change_feed() -> None:
    table = Table({"sequence": "s", "history": {"mode": "scd2", "track": ["w"]}})
    table.target = target_for(("s",), feed=True)
    row = {"k": 1, "l": "a", "v": 1.0, "w": "x", "s": 1, "t": None}
    table.apply(ChangeFile("1", tuple(KINDS), (Change(UPSERT, row),)))
    known = table.table(table.versions)
    changes = [Change(UPSERT, row | {"s": 2, "v": 2.0}), Change(UPSERT, row | {"s": 3, "w": "y"})]
    found = fold_versions(table.target, table.versioning, known, table.changed(changes, DAY.replace(tzinfo=None)))
    assert found.removed.tolist() == [0] and found.replaced.tolist() == [True]
    assert found.open["w"].to_pylist() == ["y"] and found.closed["v"].to_pylist() == [2.0]
    assert found.replacing.tolist() == [False, True]


def test_the_ends_of_files_with_open_versions_alone_are_not_read() -> None:
    target, asked = target_for(("s",)), list[tuple[list[str], bool]]()
    row = pa.table(
        {n: pa.array([1 if k == pa.int64() else None], k) for n, k in {**TYPES, START_AT: pa.int64()}.items()}
    )

    def look(read: Target, files: Any, keys: pa.Table) -> list[Any]:
        asked.append(([file["path"] for file in files], END_AT in [each.name for each in read.columns]))
        return [(0, np.array([7]), row)] if files[0]["path"] == "open" else []

    files = [
        {"path": path, "stats": json.dumps({"numRecords": 2, "nullCount": {END_AT: nulls}})}
        for path, nulls in (("closed", 0), ("mixed", 1), ("open", 2))
    ]
    rows = pa.table(
        {name: pa.array([3 if name == "s" else row[name][0].as_py()], kind) for name, kind in TYPES.items()}
    )
    changes = Changed(rows, np.array([DELETE], np.int8))
    found = changed_versions(target, Versioning((), ("s",)), files, changes, look)
    assert asked == [(["open"], False), (["mixed"], True)]
    assert found.deleted[2].tolist() == [7]
    assert found.rows.closed[END_AT].to_pylist() == [3] and found.rows.closed[START_AT].to_pylist() == [1]
