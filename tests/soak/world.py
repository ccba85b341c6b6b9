"""The publishers of a soak: they write files and remember them, so that the model knows what the tables must hold."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.history_model import Change as ChangeRow
from tests.history_model import ChangeFile, HistoryModel
from tests.landing import folder
from tests.model import ModelTable
from tests.soak.kinds import Change, Kind

from lakemirror.landing_zone.reserved_columns import UNCHANGED

PARTS = ("part=0", "part=1", "part=2", "part=3")


@dataclass
class Published:
    """What was published of one table since its folder was made, in order: columns and changes by number."""

    kind: Kind
    files: dict[tuple[str, int], tuple[list[str], list[Change]]] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    grown: int = 0
    data: dict[tuple[str, int], bytes] = field(default_factory=dict)
    gone: bool = False
    bad: set[tuple[str, int]] = field(default_factory=set)

    def history(self) -> HistoryModel:
        """All tables of a table with history, as the contract wants them."""
        made = HistoryModel(self.kind.keys, self.kind.declared["lakemirror"], null_if_missing=True)
        for (_, number), (columns, changes) in sorted(self.files.items()):
            its = tuple(ChangeRow(marker, row, tuple(sorted(row.get(UNCHANGED, ())))) for marker, row in changes)
            made.apply(ChangeFile(f"{number:020}.parquet", tuple(columns), its))
        return made

    def model(self) -> ModelTable:
        """The table as the contract wants it."""
        declared = self.kind.declared
        made = ModelTable(self.kind.keys, bool(declared.get("isUpsertDefaultRowMarker")))
        for columns, changes in (self.files[place] for place in sorted(self.files)):
            made.apply(columns, changes, [row.get(UNCHANGED, ()) for _, row in changes])
        return made


class World:
    """A landing zone with all publishers. A full disk stops a publisher, never confuses it: it tries again later."""

    def __init__(self, database: Path, kinds: list[Kind], chance: random.Random) -> None:
        self.database = database
        self._chance = chance
        self.tables = {kind.name: Published(kind) for kind in kinds}
        for kind in kinds:
            self._declare(kind)

    def publish(self, name: str, *, bad: bool = False, slow: bool = False, shifted: float = 0.0) -> int:
        """One more file; how many changes. `bad`: its content is not readable. `slow`: it is written in two halves.
        `shifted`: seconds that its time is off. OSError where the disk is full: then nothing was published."""
        table, kind = self.tables[name], self.tables[name].kind
        if table.gone:
            self._declare(kind)
            table.gone = False
        part = self._chance.randrange(len(PARTS)) if kind.declared.get("isPartitionEnabled") else None
        where = "" if part is None else PARTS[part]
        number = table.numbers.get(where, 0) + 1
        changes = kind.changes(self._chance, self._chance.choice([1, 3, 20, 60]), table.grown, part, number)
        data = b"PAR1 is not all that a file needs" if bad else kind.contents(changes, table.grown)
        if bad and kind.extension == "csv":
            data = b"id,v,__rowMarker__\r\nnot a number,x,0\r\n"
        place = folder(self.database, name) / where
        place.mkdir(parents=True, exist_ok=True)
        target = place / f"{number:020}.{kind.extension}"
        events = "fileDetectionStrategy" in kind.declared
        if events:
            target = place / f"{uuid.UUID(int=self._chance.getrandbits(128)).hex}.parquet"
        self._write(target, data, slow=slow, shifted=shifted, moment=1_600_000_000 + number if events else 0)
        table.numbers[where] = number
        table.files[where, number] = (list(kind.columns(table.grown)), changes)
        table.data[where, number] = data
        if bad:
            table.bad.add((where, number))
            table.files[where, number] = ([], [])
        return len(changes)

    def repair(self, name: str) -> bool:
        """Puts a good file in place of a bad one, under the same name; where it was set aside, there."""
        table = self.tables[name]
        for where, number in sorted(table.bad):
            part = PARTS.index(where) if where else None
            changes = table.kind.changes(self._chance, 3, table.grown, part)
            target = folder(self.database, name) / where / f"{number:020}.{table.kind.extension}"
            aside = folder(self.database, name) / "_QuarantinedFiles" / where / target.name
            data = table.kind.contents(changes, table.grown)
            self._write(aside if aside.exists() else target, data)
            table.files[where, number] = (list(table.kind.columns(table.grown)), changes)
            table.data[where, number] = data
            table.bad.discard((where, number))
            return True
        return False

    def grow(self, name: str) -> None:
        """Files of the table have one more column from now on."""
        self.tables[name].grown = min(6, self.tables[name].grown + 1)

    def recreate(self, name: str) -> None:
        """The folder is deleted, and made again at once with its first file."""
        place = folder(self.database, name)
        away = place.with_name(f"_gone-{uuid.UUID(int=self._chance.getrandbits(128)).hex}")
        place.rename(away)
        shutil.rmtree(away, ignore_errors=True)
        kind = self.tables[name].kind
        self.tables[name] = Published(kind)
        self._declare(kind)
        self.publish(name)

    def drop(self, name: str) -> bool:
        """The table folder is deleted; False where there is none. A later publish makes it again."""
        place = folder(self.database, name)
        if not place.exists():
            return False
        away = place.with_name(f"_gone-{uuid.UUID(int=self._chance.getrandbits(128)).hex}")
        place.rename(away)
        shutil.rmtree(away, ignore_errors=True)
        self.tables[name] = Published(self.tables[name].kind, gone=True)
        return True

    def be_away(self, name: str, seconds: float) -> float:
        """The table folder is somewhere else for a moment; how long in truth. OSError where it was made again."""
        place = folder(self.database, name)
        away = self.database / f"away-{uuid.UUID(int=self._chance.getrandbits(128)).hex}"
        begun = time.monotonic()
        place.rename(away)
        time.sleep(seconds)
        away.rename(place)
        return time.monotonic() - begun

    def correct_set_aside(self, name: str) -> int:
        """Files that an engine set aside become what was published, for a replay; how many."""
        home, table, found = folder(self.database, name), self.tables[name], 0
        for path in sorted((home / "_QuarantinedFiles").rglob(f"*.{table.kind.extension}")):
            below = path.relative_to(home / "_QuarantinedFiles")
            where = "" if str(below.parent) == "." else str(below.parent)
            data = table.data.get((where, int(below.stem)))
            if data is not None:
                self._write(path, data)
                found += 1
                for other in (home / below, home / "_ProcessedFiles" / below):  # one copy is enough
                    other.unlink(missing_ok=True)
        return found

    def write_model(self, name: str, path: Path) -> int:
        """The rows that the table must hold as a Parquet file; how many."""
        table = self.tables[name]
        model = table.model()
        columns = table.kind.columns(table.grown)
        arrays = {
            column: pa.array([row.get(column) for row in model.rows], columns[column]) for column in model.columns
        }
        pq.write_table(pa.table(arrays), path)
        return len(model.rows)

    def _declare(self, kind: Kind) -> None:
        place = folder(self.database, kind.name)
        place.mkdir(parents=True, exist_ok=True)
        content: dict[str, Any] = {"keyColumns": list(kind.keys), **kind.declared}
        temporary = place / "_metadata.json.tmp"
        temporary.write_text(json.dumps(content))
        temporary.replace(place / "_metadata.json")

    def _write(self, target: Path, data: bytes, *, slow: bool = False, shifted: float = 0.0, moment: int = 0) -> None:
        temporary = target.with_name(f"_writing-{target.name}")
        with _or_nothing(temporary):
            temporary.write_bytes(data)
            if moment or shifted:
                then = moment or time.time() + shifted
                os.utime(temporary, (then, then))
            if slow and not moment:
                temporary.write_bytes(data[: len(data) // 2])
                temporary.rename(target)
                time.sleep(0.1)
                target.write_bytes(data)
            else:
                temporary.replace(target)


@contextlib.contextmanager
def _or_nothing(temporary: Path) -> Iterator[None]:
    try:
        yield
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
