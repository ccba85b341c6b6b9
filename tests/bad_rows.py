"""Random table folders in which some change files are bad, played from the publisher to what a user sees.

good files ─▶ some made bad, in some rows or as a whole ─▶ passes ─▶ each names the first bad file and a bad row of it,
what is before it is applied once, nothing of it is; the publisher corrects it (or it is quarantined) ─▶ the next one
"""

from __future__ import annotations

import copy
import csv
import io
import json
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror import MirroredDatabase
from lakemirror.storage import LocalStorage
from lakemirror.verify import verify_database
from lakemirror.verify.proof import Options
from tests.change_tables import MARKER, UNCHANGED
from tests.history_model import DELETE, INSERT, UPDATE, UPSERT, Change, ChangeFile, HistoryModel, PartialRowMissing
from tests.landing import declare, folder
from tests.random_histories import compare

TYPES = {"id": pa.int64(), "part": pa.string(), "v": pa.int64(), "s": pa.string(), "n": pa.int64()}
_NAMES = {pa.int64(): "Int64", pa.string(): "String"}
BEGIN = datetime(2026, 1, 1)
OPTIONS: list[dict[str, Any]] = [
    {}, {}, {"deletes": "soft"}, {"deletes": "ignore"}, {"history": "changes"}, {"history": "scd2"}, {"sequence": "n"},
    {"sequence": "n", "deletes": "soft"}, {"sequence": "n", "history": ["changes", "scd2"], "deletes": "soft"},
    {"sequence": "n", "history": {"mode": "scd2", "track": ["v"]}, "deletes": "ignore"},
]  # fmt: skip


@dataclass(frozen=True)
class BadFile:
    """What stands in the place of a good file. `says`: the errors that may be told, as code and row (from 1; None for
    the whole file). `raw`: its content, where rows cannot say it. `types`: of columns that have another one."""

    file: ChangeFile
    says: frozenset[tuple[str, int | None]]
    raw: bytes | None = None
    types: dict[str, pa.DataType] = field(default_factory=dict)


@dataclass
class Zone:
    """One table folder and what is published in it."""

    database: Path
    chance: random.Random
    name: str = "t"
    keys: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    is_text: bool = False
    model_: HistoryModel = field(default_factory=HistoryModel)
    good: list[ChangeFile] = field(default_factory=list)
    bad: dict[int, BadFile] = field(default_factory=dict)
    applied: int = 0
    skipped: set[int] = field(default_factory=set)

    def model(self) -> HistoryModel:
        """What the tables must hold now, as `compare` asks for it."""
        return self.model_


def zone(database: Path, chance: random.Random) -> Zone:
    """A folder with three to six files, of which some are bad, published."""
    made = Zone(database, chance, is_text=chance.random() < 0.4)
    made.keys = chance.choice([(), ("id",), ("id",), ("id", "part"), ("id", "part")])
    made.options = dict(chance.choice(OPTIONS)) if made.keys else {}
    made.model_ = HistoryModel(made.keys, made.options)
    declared: dict[str, Any] = {"lakemirror": made.options} if made.options else {}
    if made.is_text:
        declared |= {
            "fileFormat": "DelimitedText", "fileExtension": "csv",
            "fileFormatTypeProperties": {"rowSeparator": "\n", "escapeCharacter": '"'},
            "SchemaDefinition": {
                "Columns": [{"Name": name, "DataType": _NAMES[kind]} for name, kind in TYPES.items()]
            },
        }  # fmt: skip
    declare(database, made.name, list(made.keys), **declared)
    state = copy.deepcopy(made.model_)
    for number in range(1, chance.randint(3, 6) + 1):
        made.good.append(_good(made, state, number))
    places = range(len(made.good))
    chosen = chance.sample(places, chance.randint(1, min(3, len(places))))
    for place in chosen:
        made.bad[place] = _bad(made, made.good[place], may_be_first=0 in chosen)
    for place in places:
        publish(made, place)
    return made


def _good(made: Zone, state: HistoryModel, number: int) -> ChangeFile:
    chance, columns = made.chance, tuple(name for name in TYPES if name in made.keys or name in ("id", "v", "n"))
    columns += ("s",) if chance.random() < 0.7 else ()
    changes = []
    for _ in range(chance.randint(1, 6)):
        marker = chance.choice([INSERT, UPDATE, UPSERT, UPSERT, DELETE]) if made.keys else INSERT
        row: dict[str, Any] = {
            "id": chance.randint(1, 3), "part": chance.choice(["a", "b"]), "v": chance.choice([None, 1, 2, 3]),
            "s": chance.choice([None, "x", "y y", 'q"q', "l\nl"]), "n": chance.randint(1, 9),
        }  # fmt: skip
        row = {name: row[name] for name in columns}
        names: tuple[str, ...] = ()
        if marker in (UPDATE, UPSERT) and chance.random() < 0.4:
            names = tuple(name for name in ("s", "v") if name in columns and chance.random() < 0.6)
        change = Change(marker, row, names)
        file = ChangeFile(file_name(made, number), columns, (change,), BEGIN + timedelta(seconds=number))
        try:
            copy.deepcopy(state).apply(file)
        except PartialRowMissing:
            change = replace(change, unchanged=())
        state.apply(replace(file, changes=(change,)))
        changes.append(change)
    return ChangeFile(file_name(made, number), columns, tuple(changes), BEGIN + timedelta(seconds=number))


def file_name(made: Zone, number: int) -> str:
    return f"{number:020}.{'csv' if made.is_text else 'parquet'}"


def _bad(made: Zone, good: ChangeFile, *, may_be_first: bool) -> BadFile:
    """`may_be_first`: no good file may be before it, which says of what types columns are."""
    chance = made.chance
    whole: list[Callable[[ChangeFile], BadFile]] = [_misspelt] if not made.is_text else [_undeclared]
    whole += [] if made.is_text else [_garbage]
    whole += [] if made.is_text or may_be_first else [_typed]
    if chance.random() < 0.3:
        return chance.choice(whole)(good)
    changes, says = list(good.changes), set[tuple[str, int | None]]()
    kinds = ["marker"]
    kinds += ["value"] if made.is_text else []
    kinds += ["sequence"] if made.options.get("sequence") else []
    kinds += ["unknown column", "of a delete", "no row"] if made.keys else []
    one = chance.choice(kinds)
    for row in sorted(chance.sample(range(len(changes)), min(len(changes), chance.choice([1, 1, 2, 3])))):
        kind = one if chance.random() < 0.6 else chance.choice(kinds)
        changes[row], code = _made_bad(made, changes[row], kind)
        says.add((code, row + 1))
    first: dict[str, int | None] = {}
    for code, at in sorted(says):
        first.setdefault(code, at)
    return BadFile(replace(good, changes=tuple(changes)), frozenset(first.items()))


def _made_bad(made: Zone, change: Change, kind: str) -> tuple[Change, str]:
    """The change so that it is bad, and the code that says so."""
    if kind == "marker":
        return replace(change, marker=made.chance.choice([3, 7, -1]), unchanged=()), "row-marker-invalid"
    if kind == "unknown column":
        return replace(change, marker=UPSERT, unchanged=("nothing",)), "partial-row-invalid"
    if kind == "of a delete":
        return replace(change, marker=made.chance.choice([DELETE, INSERT]), unchanged=("v",)), "partial-row-invalid"
    if kind == "value":
        return replace(change, row={**change.row, "v": "fifty"}, unchanged=()), "value-invalid"
    if kind == "sequence":
        return replace(change, row={**change.row, "n": None}, unchanged=()), "sequence-null"
    row = {**change.row, "id": 900 + made.chance.randint(0, 1 << 30)}
    return replace(change, marker=UPSERT, row=row, unchanged=("v",)), "partial-row-missing"


def _garbage(good: ChangeFile) -> BadFile:
    return BadFile(good, frozenset([("file-unreadable", None)]), b"PAR1 not really")


def _typed(good: ChangeFile) -> BadFile:
    rows = tuple(replace(each, row={**each.row, "v": "text"}) for each in good.changes)
    file = replace(good, changes=rows)
    return BadFile(file, frozenset([("type-changed", None)]), types={"v": pa.string()})


def _undeclared(good: ChangeFile) -> BadFile:
    rows = tuple(replace(each, row={**each.row, "other": 1}) for each in good.changes)
    return BadFile(replace(good, columns=(*good.columns, "other"), changes=rows),
                   frozenset([("column-undeclared", None)]))  # fmt: skip


def _misspelt(good: ChangeFile) -> BadFile:
    rows = tuple(Change(None, {**each.row, "__rowmarker__": 1}) for each in good.changes)
    file = replace(good, columns=(*good.columns, "__rowmarker__"), changes=rows)
    return BadFile(file, frozenset([("row-marker-misspelt", None)]), types={"__rowmarker__": pa.int64()})


def publish(made: Zone, place: int) -> None:
    """Puts the file there, over what is in its place: the bad one while it is in `bad`."""
    bad = made.bad.get(place)
    file = bad.file if bad else made.good[place]
    if bad is not None and bad.raw is not None:
        content = bad.raw
    elif made.is_text:
        content = _text(file)
    else:
        content = _parquet(made, file, bad.types if bad else {})
    target = folder(made.database, made.name) / file.name
    temporary = target.with_name(f"_writing-{file.name}")
    temporary.write_bytes(content)
    moment = int((file.modified - datetime(1970, 1, 1)) / timedelta(microseconds=1)) * 1000
    os.utime(temporary, ns=(moment, moment))
    temporary.replace(target)


def _parquet(made: Zone, file: ChangeFile, types: dict[str, pa.DataType]) -> bytes:
    kinds = TYPES | types
    arrays = {name: pa.array([each.row[name] for each in file.changes], kinds[name]) for name in file.columns}
    if any(each.marker is not None for each in file.changes):
        arrays[MARKER] = pa.array([each.marker for each in file.changes], pa.int32())
    if any(each.unchanged for each in file.changes):
        arrays[UNCHANGED] = pa.array([list(each.unchanged) for each in file.changes], pa.list_(pa.string()))
    buffer = io.BytesIO()
    pq.write_table(pa.table(arrays), buffer, row_group_size=made.chance.choice([2, 1000]))
    return buffer.getvalue()


def _text(file: ChangeFile) -> bytes:
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow([*file.columns, MARKER, UNCHANGED])
    for each in file.changes:
        names = json.dumps(each.unchanged) if each.unchanged else ""
        lines.writerow([*(each.row[name] for name in file.columns), each.marker, names])
    return text.getvalue().encode()


def line_of(file: ChangeFile, row: int) -> int:
    """The line of a row in delimited text: values may have line breaks."""
    texts = [str(value) for each in file.changes[: row - 1] for value in each.row.values()]
    return row + 1 + sum(text.count("\n") for text in texts)


def expected(made: Zone) -> tuple[int, frozenset[tuple[str, int | None]]] | None:
    """Applies what can be applied to the model. The place of the first bad file, and what may be said of it."""
    for place in range(made.applied, len(made.good)):
        if place in made.skipped:
            made.applied = place + 1
            continue
        if place in made.bad:
            return place, made.bad[place].says
        after = copy.deepcopy(made.model_)
        try:
            after.apply(made.good[place])
        except PartialRowMissing as missing:
            return place, frozenset([("partial-row-missing", int(str(missing).rpartition(" ")[2]) + 1)])
        made.model_, made.applied = after, place + 1
    return None


def play(made: Zone, *, spark: Any = None, quarantine: bool = False, **settings: Any) -> int:
    """Passes until all is applied, each held against the model and the error that it must tell. Returns how many told
    one."""
    told, begun = 0, datetime.now(timezone.utc)
    given: dict[str, Any] = {"engine": "local", "durability": "process", "settle": 0, "maintenance": False, **settings}
    given |= {"on_bad_file": "quarantine"} if quarantine else {}
    for _ in range(4 * len(made.good)):
        result = MirroredDatabase(made.database, spark=spark, **given).sync()
        bad = expected(made)
        while bad is not None and quarantine:
            made.skipped.add(bad[0])
            aside = folder(made.database, made.name) / "_QuarantinedFiles"
            assert list(aside.rglob(f"{made.good[bad[0]].name}*")), (bad, "it is set aside")
            bad = expected(made)
        if made.model_.events:
            compare(made.database, made, begun)  # type: ignore[arg-type]
        _check_told(made, result.failed.get(made.name), bad)
        if bad is None:
            break
        told += 1
        _correct(made, bad[0])
    else:
        raise AssertionError("it does not end")
    findings = verify_database(
        LocalStorage(made.database), (), Options(against_files=not quarantine, threads=1)
    ).findings
    assert not [each for each in findings if each.code != "verify-not-compared"], findings
    return told


def _check_told(made: Zone, error: Any, bad: tuple[int, frozenset[tuple[str, int | None]]] | None) -> None:
    shown = json.loads((made.database / "Files/Monitoring/tables.json").read_text())["tables"]
    (state,) = [each for each in shown if each["normalizedTableName"] == made.name]
    if bad is None:
        assert error is None and not state["errorCode"], (error, state)
        return
    place, says = bad
    file = made.bad[place].file if place in made.bad else made.good[place]
    assert error is not None, ("nothing is told", bad)
    allowed = {(code, line_of(file, row) if row and code == "value-invalid" else row) for code, row in says}
    assert error.file == f"Files/LandingZone/{made.name}/{file.name}", (error.file, error, bad)
    assert (error.code, error.row) in allowed, (error, error.row, allowed)
    assert state["status"] == "Failed" and state["errorCode"] == error.code and file.name in state["errorMessage"]


def _correct(made: Zone, place: int) -> None:
    """The publisher puts another file in the place: mostly a good one."""
    if place in made.bad and made.chance.random() < 0.2:
        made.bad[place] = _bad(made, made.good[place], may_be_first=True)
    else:
        made.bad.pop(place, None)
        made.good[place] = _completed(made, made.good[place])
    publish(made, place)


def _completed(made: Zone, file: ChangeFile) -> ChangeFile:
    """The file, where a partial row that finds no row is complete."""
    state, changes = copy.deepcopy(made.model_), []
    for change in file.changes:
        one = replace(file, changes=(change,))
        try:
            copy.deepcopy(state).apply(one)
        except PartialRowMissing:
            one = replace(file, changes=(replace(change, unchanged=()),))
        state.apply(one)
        changes.append(one.changes[0])
    return replace(file, changes=tuple(changes))


__all__: Sequence[str] = ["Zone", "play", "zone"]
