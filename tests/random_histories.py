"""Random histories of a table with options for deletes, order and history, from the publisher to what readers find.

story ─▶ the publisher's API, with passes in between ─▶ Delta tables ─▶ DuckDB ─▶ equal to `tests/history_model.py`

A story is small, so that a failing one is shrunk to a few changes and printed.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
from hypothesis import strategies as st

from lakemirror import MirroredDatabase
from lakemirror.engines import units
from lakemirror.publisher import Landing, LandingTable
from lakemirror.storage import LocalStorage
from lakemirror.verify import verify_database
from lakemirror.verify.proof import Options
from tests.history_model import (
    APPLY_TIME,
    DELETE,
    DELETED,
    DELETED_AT,
    END_AT,
    START_AT,
    UPDATE,
    UPSERT,
    Change,
    ChangeFile,
    HistoryModel,
    PartialRowMissing,
    hashable,
)
from tests.table_rows import read_table

MARKER, SOURCE_TIME = "__rowMarker__", "__sourceTimestamp__"
OF_CHANGES = ("__operation", "__file", "__row", "__unchanged")
LONG_AGO = datetime(2020, 1, 1)  # times of sources and files: never the time of an apply
KEY_KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "whole": (pa.int64(), [1, 2, 3, None]),
    "text": (pa.string(), ["a", "b", "ä", "", None]),
    "float": (pa.float64(), [0.0, -0.0, float("nan"), 1.5, None]),
    "long text": (pa.string(), ["k" * 99 + each for each in ("", "a", "b", "ä")]),  # the bounds of a file cut them
    "decimal": (pa.decimal128(30, 2), [Decimal("-0.01"), Decimal("0.01"), Decimal(10**27) + Decimal("0.01"), None]),
    "bytes": (pa.binary(), [b"", b"\0", b"\0\0", b"\xff", None]),
    "flag": (pa.bool_(), [True, False, None]),
    "time": (pa.timestamp("us", "UTC"), [LONG_AGO, LONG_AGO + timedelta(microseconds=1), datetime(1, 1, 2), None]),
}
VALUE_KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "v": (pa.int32(), [1, 2, None]),
    "w": (pa.string(), ["p", "q", None]),
    "x": (pa.float64(), [0.0, -0.0, float("nan"), None]),
}
SEQUENCE_KINDS: dict[str, dict[str, tuple[pa.DataType, list[Any]]]] = {
    "number": {"n": (pa.int64(), [-(2**62), 1, 2, 3, 4, 5, 6, 2**62])},
    "time": {"n": (pa.timestamp("us", "UTC"), [LONG_AGO + timedelta(microseconds=each) for each in range(8)])},
    "day": {"n": (pa.date32(), [date(2020, 1, each) for each in range(1, 9)])},
    "last": {"n": (pa.date32(), [date(9999, 12, each) for each in (1, 29, 30, 31)])},
    "text": {"n": (pa.string(), ["", "Z", "a", "aa", "b", "z", "ä", "€"])},
    "decimal": {"n": (pa.decimal128(20, 2), [Decimal(each) / 4 for each in range(8)])},
    "list": {"n": (pa.date32(), [date(2020, 1, 1), date(2020, 1, 2)]), "m": (pa.int32(), [1, 2, 3, 4])},
}


def next_value(value: Any) -> Any:
    """The least value of a sequence that is higher; the value itself where there is none."""
    if value == date.max:
        return value
    if isinstance(value, str):
        return value + "\0"
    steps = {datetime: timedelta(microseconds=1), date: timedelta(days=1), Decimal: Decimal("0.01")}
    return value + steps.get(type(value), 1)


@dataclass(frozen=True)
class Story:
    """What happens to one table. `passes`: after which files, from 1, the mirror makes one; the last is always followed
    by one. `again`: before which files the table folder is made again, after a pass.
    """

    types: Mapping[str, pa.DataType]
    keys: tuple[str, ...]
    options: Mapping[str, Any]
    files: tuple[ChangeFile, ...]
    passes: frozenset[int] = frozenset()
    batch_files: int = 1000
    upsert_by_default: bool = False
    again: frozenset[int] = frozenset()
    null_if_missing: bool = False

    def model(self, files: Iterable[ChangeFile] | None = None) -> HistoryModel:
        made = HistoryModel(self.keys, self.options, self.upsert_by_default, self.null_if_missing)
        for number, file in enumerate(self.files if files is None else files, start=1):
            if number in self.again:
                made.made_again(next_value)
            made.apply(file)
        return made


@st.composite
def stories(
    draw: Any, deletes: str, sequence: str, history: Any, *, partial: bool = False, again: bool = False,
    missing: bool = False,
) -> Story:  # fmt: skip
    """Stories of tables with these options. `sequence`: one of SEQUENCE_KINDS, or empty for none. `partial`: files may
    have partial rows. `again`: the table folder may be made again. `missing`: partial rows may have no row."""
    kinds = [KEY_KINDS[each] for each in draw(st.lists(st.sampled_from(list(KEY_KINDS)), min_size=1, max_size=2))]
    keys = {f"k{number}": kind for number, kind in enumerate(kinds)}
    order = SEQUENCE_KINDS[sequence] if sequence else {}
    options: dict[str, Any] = {"deletes": deletes} if deletes != "hard" else {}
    if order:
        options["sequence"] = list(order) if len(order) > 1 else next(iter(order))
    if history:
        options["history"] = history
    values = {**keys, **VALUE_KINDS, **order}
    count = draw(st.integers(1, 4))
    listed = history if isinstance(history, list) else [history]
    tracked = [name for each in listed if isinstance(each, dict) for name in each.get("track", ())]
    anew = draw(st.sets(st.integers(2, count))) if again and count > 1 else set[int]()
    first, files = 1, []
    for number in range(1, count + 1):
        first = number if number in anew else first
        needed = (*order, *(tracked if number == first else ()))  # else it is refused
        file = draw(_files(number - first + 1, values, tuple(keys), needed, partial))
        files.append(replace(file, modified=file.modified + timedelta(days=first)))  # the last file tells folders apart
    story = Story(
        {name: kind for name, (kind, _) in values.items()}, tuple(keys), options, tuple(files),
        frozenset(draw(st.sets(st.integers(1, count)))), draw(st.sampled_from([1, 2, 1000])), draw(st.booleans()),
        frozenset(anew), missing,
    )  # fmt: skip
    return replace(story, files=_with_rows_for_partial_ones(story)) if partial and not missing else story


@st.composite
def _files(
    draw: Any, number: int, values: Mapping[str, tuple[Any, list[Any]]], keys: tuple[str, ...], order: tuple[str, ...],
    partial: bool,
) -> ChangeFile:  # fmt: skip
    has = {name for name in VALUE_KINDS if draw(st.integers(0, 3))}
    columns = tuple(name for name in values if name in (*keys, *order) or name in has)
    no_markers = draw(st.integers(0, 5)) == 0
    timed = draw(st.integers(0, 2)) == 0
    changes = []
    for _ in range(draw(st.integers(1, 6))):
        marker = None if no_markers else draw(st.sampled_from([4, 4, 1, 2, 0, None]))
        row = {name: draw(st.sampled_from(values[name][1])) for name in columns}
        names: tuple[str, ...] = ()
        if partial and marker in (UPDATE, UPSERT) and has:
            names = tuple(sorted(draw(st.sets(st.sampled_from(sorted(has))))))
        at = LONG_AGO + timedelta(seconds=draw(st.integers(0, 3))) if timed and draw(st.booleans()) else None
        changes.append(Change(marker, row, names, at))
    modified = LONG_AGO + timedelta(seconds=draw(st.integers(0, 3)))
    return ChangeFile(f"{number:020}.parquet", columns, tuple(changes), modified)


def _with_rows_for_partial_ones(story: Story) -> tuple[ChangeFile, ...]:
    """The files, where a partial row that finds no row is complete."""
    model = story.model(())
    files = []
    for file in story.files:
        changes = []
        for change in file.changes:
            try:
                model.apply(replace(file, changes=(change,)))
            except PartialRowMissing:
                change = replace(change, unchanged=())
                model.apply(replace(file, changes=(change,)))
            changes.append(change)
        files.append(replace(file, changes=tuple(changes)))
    return tuple(files)


def play(story: Story, *, spark: Any = None, builds: bool = False, own_cache: bool = False, **settings: Any) -> None:
    """Publishes the story, with passes in between, and compares every table with the model, and by `verify`. `builds`:
    the history tables are made again from their files, and compared once more. `own_cache`: in a cache
    folder of its own."""
    place = Path(tempfile.mkdtemp(prefix="lakemirror-history-"))
    try:
        database = place / "db"
        table = declared(database, story)
        begun = datetime.now(timezone.utc)
        for number, file in enumerate(story.files, start=1):
            if number in story.again:
                shutil.rmtree(database / "Files/LandingZone/t")
                table = declared(database, story)
            publish(table, story, file)
            few = -1 if number % 2 else units.ONE_THREAD_BYTES  # several threads, or one
            if number in story.passes or number + 1 in story.again or number == len(story.files):
                given = {"engine": "local", "durability": "process", "settle": 0, **settings}
                given |= {"partial_row_missing": "null"} if story.null_if_missing else {}
                given |= {"cache_dir": str(place / "cache")} if own_cache else {}
                with mock.patch.object(units, "ONE_THREAD_BYTES", few):
                    result = MirroredDatabase(database, spark=spark, batch_files=story.batch_files, **given).sync()
                for error in result.failed.values():
                    raise error
        compare(database, story, begun)
        if builds:
            MirroredDatabase(database, durability="process").build_history("t")
            compare(database, story, begun)
        report = verify_database(LocalStorage(database), (), Options(against_files=True, threads=1))
        expected = {"verify-not-compared", *(["verify-impossible"] if story.again else [])}
        assert not [each for each in report.findings if each.code not in expected], report.findings
    finally:
        shutil.rmtree(place)


def compare(database: Path, story: Story, begun: datetime) -> None:
    """AssertionError where a table does not hold what the model says. `begun`: before the first apply."""
    compare_with(database, "t", story.model(), (begun, datetime.now(timezone.utc)))


def compare_with(database: Path, table: str, model: HistoryModel, times: tuple[datetime, datetime]) -> None:
    """The same of a table of this name. `times`: between which all applies were."""
    extra = (DELETED, DELETED_AT) if model.deletes == "soft" else ()
    _check_equal(_bag(database, table, (*model.columns, *extra), times), model.current(), "the current table")
    if (history := model.history("changes")) is not None:
        name = history.get("name") or f"{table}__changes"
        found = _bag(database, name, (*model.history_columns, *OF_CHANGES), times, ("__applied_at",))
        _check_equal(found, model.changes(), name)
    if (history := model.history("scd2")) is not None:
        name = history.get("name") or f"{table}__history"
        _check_equal(_bag(database, name, (*model.history_columns, START_AT, END_AT), times), model.versions(), name)


def _check_equal(found: Counter[Any], wanted: Counter[Any], name: str) -> None:
    more, fewer = (repr(list(each.items())[:3]) for each in (found - wanted, wanted - found))
    assert found == wanted, f"{name} has {more} and lacks {fewer}"


def _bag(
    database: Path, table: str, columns: tuple[str, ...], times: tuple[datetime, datetime], timed: tuple[str, ...] = ()
) -> Counter[tuple[Any, ...]]:
    """The rows in these columns; there must be no others but `timed`, which are of an apply, between `times`."""
    found = read_table(database / "Tables" / table)
    assert sorted(found.column_names) == sorted((*columns, *timed)), table
    begun, ended = times
    for name in timed:
        assert all(begun <= at <= ended for at in found[name].to_pylist()), name
    rows = found.select(list(columns)).to_pylist()
    for row in rows:
        at = row.get(DELETED_AT)
        if at is not None and begun <= at <= ended:
            row[DELETED_AT] = APPLY_TIME
    return Counter(tuple(_plain(row[name]) for name in columns) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(timezone.utc).replace(tzinfo=None)
    return tuple(value) if isinstance(value, list) else hashable(value)


def declared(database: Path, story: Story) -> LandingTable:
    if story.upsert_by_default:
        folder = database / "Files/LandingZone/t"
        folder.mkdir(parents=True)
        (folder / "_metadata.json").write_text(json.dumps({"isUpsertDefaultRowMarker": True}))
    table = Landing(database).table("t", keys=list(story.keys))
    table.declare(**story.options)
    return table


def publish(table: LandingTable, story: Story, file: ChangeFile) -> None:
    """One change file, by the publisher's API, with the time that the story gives it."""
    arrays = {name: pa.array([each.row[name] for each in file.changes], story.types[name]) for name in file.columns}
    if any(each.at is not None for each in file.changes):
        arrays[SOURCE_TIME] = pa.array([each.at for each in file.changes], pa.timestamp("us", "UTC"))
    markers = [each.marker for each in file.changes]
    if all(marker is None for marker in markers):
        published: Any = table.load(pa.table(arrays))
    else:
        rows = pa.table({**arrays, MARKER: pa.array(markers, pa.int32())})
        names = [list(each.unchanged) for each in file.changes]
        published = table.changes(rows, unchanged=names if any(names) else None)
    assert published.path.name == file.name
    moment = int((file.modified - datetime(1970, 1, 1)) / timedelta(microseconds=1)) * 1000
    os.utime(published.path, ns=(moment, moment))


__all__ = ["DELETE", "SEQUENCE_KINDS", "Story", "compare", "compare_with", "declared", "play", "publish", "stories"]
