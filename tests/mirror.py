"""A Delta table without a log: an engine writes its files, and they are read back one by one. For tests of engines."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from lakemirror.delta.data_files import data_file
from lakemirror.delta.deletion_vectors import bitmap, write_vectors
from lakemirror.engines.kernels.live_rows import deleted_rows, live_rows
from lakemirror.engines.row_work import Action, ChangeUnit, Ordering, RowResult, RowWork, Target, TargetColumn
from lakemirror.errors import Bad, Rejected
from lakemirror.landing_zone.column_types import file_columns, table_type
from lakemirror.landing_zone.row_markers import UNCHANGED
from tests.model import canonical


@dataclass(frozen=True)
class Outcome(RowResult):
    """What an engine did, or why a change file cannot be applied."""

    error: Rejected | None = None


class Mirror:
    """A table that an engine writes and that is read back file by file."""

    def __init__(self, folder: Path, target: Target) -> None:
        self.folder, self.target = folder, target
        self.files: dict[str, Action] = {}
        self.feed: list[dict[str, Any]] = []
        folder.mkdir(exist_ok=True)

    def apply(
        self, engine: Any, files: list[ChangeUnit], default: int, *, append_only: bool = False, missing: str = "error",
        ordering: Ordering | None = None,
    ) -> Outcome:  # fmt: skip
        partial = any(column.name == UNCHANGED for file in files for column in file.columns)
        work = RowWork(
            self.target, tuple(files), append_only, default, tuple(self.files.values()), partial, missing == "null",
            ordering,
        )  # fmt: skip
        before = self.bag()
        try:
            result: RowResult = engine.run(work)
        except Bad as bad:
            return Outcome(error=bad.rejected)
        for path, rows in result.deleted.items():
            old = deleted_rows(self.files[path], self.target)
            gone = bitmap(rows) | BitMap64([] if old is None else old.tolist())
            (vector,) = write_vectors(self.folder, [gone])
            self.files[path] = {**self.files[path], "deletionVector": vector}
        for path in result.rewritten:
            del self.files[path]
        self.files |= {add["path"]: add for add in result.adds}
        if self.target.feed:
            self._check_feed(result, before)
        return Outcome(**vars(result))

    def _check_feed(self, result: RowResult, before: Counter[Any]) -> None:
        """The feed's rows make the table before into the table after."""
        after = self.bag()
        if not result.changes:
            assert not before - after, "rows went, and the feed is empty"
            return
        rows = [
            row | each["partitionValues"]
            for each in result.changes
            for row in pq.ParquetFile(data_file(self.folder, each["path"])).read().to_pylist()
        ]
        came, went = Counter[Any](), Counter[Any]()
        kinds: dict[Any, Counter[str]] = {}
        for row in rows:
            kind = row.pop("_change_type")
            values = tuple(canonical(row.get(column.name)) for column in self.target.columns)
            (came if kind in ("insert", "update_postimage") else went)[values] += 1
            key = tuple(canonical(row[name]) for name in self.target.key_columns)
            kinds.setdefault(key, Counter())[kind] += 1
        assert before - went + came == after and not went - before
        for found in kinds.values():
            assert found["update_postimage"] <= 1
            assert bool(found["update_postimage"]) == bool(found["update_preimage"])
            assert not (found["delete"] and found["update_preimage"])

    def bag(self) -> Counter[tuple[Any, ...]]:
        found = Counter[Any]()
        for add in self.files.values():
            for part in live_rows(add, self.target):
                for row in part.to_pylist():
                    found[tuple(canonical(row[column.name]) for column in self.target.columns)] += 1
        return found


def unit(folder: Path, number: int, rows: pa.Table, **options: Any) -> ChangeUnit:
    path = folder / f"{number:020}.parquet"
    pq.write_table(rows, path, **options)
    footer = pq.read_metadata(path)
    return ChangeUnit(str(path), path.name, number, tuple(file_columns(footer)), rows.num_rows, rows.nbytes)


def target_of(folder: Path, columns: dict[str, pa.DataType], keys: tuple[str, ...], **more: Any) -> Target:
    made = tuple(TargetColumn(name, name, str(table_type(kind))) for name, kind in columns.items())
    return Target(str(folder), made, key_columns=keys, **more)
