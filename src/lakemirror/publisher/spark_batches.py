"""Batches of a Spark stream as change files, exactly once, by `foreachBatch`: for PySpark 3.5 and newer.

frame ─▶ mapInArrow: each partition one file without a number ─▶ publish_batch: all of them, once
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.zone import LANDING_ZONE
from lakemirror.publisher.batches import Prepared, publish_batch
from lakemirror.publisher.change_writer import MARKER_COLUMN
from lakemirror.publisher.landing import Landing
from lakemirror.publisher.landing_table import LandingTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def publish_each_batch(
    path: str, query: str, *, keys: str = "", mode: str | None = None, marker: str | None = None
) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that publishes each batch of a stream exactly once.

    `path`: `DATABASE/TABLE` or the table folder. `query`: a name that no other stream into this table has; keep it as
    long as the checkpoint. `keys`, `mode`, `marker`: as the options of the data source.
    """

    def publish(frame: DataFrame, batch: int) -> None:
        target = Target.of({"path": path, "keys": keys, "mode": mode or "", "marker": marker or ""}, frame.columns)
        target.open().opened()

        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            prepared = target.prepare(batches)
            found = [] if prepared is None else [{"name": prepared.name, "rows": prepared.rows}]
            yield pa.RecordBatch.from_pylist(found, pa.schema([("name", pa.string()), ("rows", pa.int64())]))

        rows = frame.mapInArrow(write, "name string, rows bigint").collect()
        publish_batch(target.open(), query, batch, [Prepared(row["name"], row["rows"]) for row in rows])

    return publish


@dataclass(frozen=True)
class Target:
    """A table folder and how rows go there, from the options of a Spark writer. Small: it travels to executors."""

    db: str
    table: str
    schema: str
    keys: tuple[str, ...] | None
    mode: str | None
    marker: str | None

    @classmethod
    def of(cls, options: Mapping[str, str], columns: Iterable[str] = ()) -> Target:
        """`path`: DB/TABLE, DB/SCHEMA.TABLE, or the table folder itself; options `keys`, `mode`, `marker`."""
        given = {name.lower(): value for name, value in options.items()}
        if "path" not in given:
            raise LakemirrorError("input-invalid", "there is no path", hint='Write: .save("shop/orders")')
        db, schema, table = _place(given["path"])
        keys = tuple(key.strip() for key in given["keys"].split(",")) if given.get("keys") else None
        marker = given.get("marker") or (MARKER_COLUMN if MARKER_COLUMN in columns else None)
        return cls(db, table, schema, keys, given.get("mode"), marker)

    def open(self) -> LandingTable:
        return Landing(self.db).table(self.table, self.keys, self.schema or None)

    def prepare(self, batches: Iterator[pa.RecordBatch]) -> Prepared | None:
        """Writes the rows of one partition as a file without a number."""
        first = next(batches, None)
        if first is None:
            return None
        reader = pa.RecordBatchReader.from_batches(first.schema, itertools.chain([first], batches))
        return self.open().prepare(reader, self.mode, marker=self.marker)


def _place(path: str) -> tuple[str, str, str]:
    """Database, schema and table of a path; `input-invalid` for a store that is no local folder."""
    parts = urlsplit(path)
    if parts.scheme and parts.scheme != "file":
        raise LakemirrorError(
            "not-supported", f"{path}: the publisher writes to local folders", hint="Give a local or mounted folder."
        )
    folder = Path(unquote(parts.path) if parts.scheme else path).absolute()
    before, zone, below = str(folder).partition(f"/{LANDING_ZONE}/")
    if zone:
        schema, _, table = below.rpartition("/")
        return before, schema.removesuffix(".schema"), table
    schema, _, table = folder.name.rpartition(".")
    return str(folder.parent), schema, table


__all__ = ["Target", "publish_each_batch"]
