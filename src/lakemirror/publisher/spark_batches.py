"""Batches of a Spark stream as change files, exactly once, by `foreachBatch`: for PySpark 3.5 and newer.

frame ─▶ mapInArrow: each partition one file without a number ─▶ publish_batch: all of them, once
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.zone import LANDING_ZONE
from lakemirror.landing_zone.zoneless import NTZ
from lakemirror.publisher.batches import Run, discard, publish_batch
from lakemirror.publisher.change_writer import MARKER_COLUMN
from lakemirror.publisher.declared_types import unsaid_zone
from lakemirror.publisher.landing import Landing
from lakemirror.publisher.landing_table import LandingTable
from lakemirror.publisher.sources.spark_values import arrow_ready, as_text
from lakemirror.publisher.table_writer import Prepared

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_OUTCOME = pa.schema(
    {"name": pa.string(), "rows": pa.int64(), "seen": pa.int64(), "stream": pa.string(), "refused": pa.string()}
)
_COLUMNS = "name string, rows bigint, seen bigint, stream string, refused string"
_OF_ERROR = ("code", "message", "hint", "table", "file", "row", "column")


def publish_each_batch(
    path: str, query: str, *, keys: str = "", mode: str | None = None, marker: str | None = None, zoneless: str = "",
    run: str = "",
) -> Callable[[DataFrame, int], None]:  # fmt: skip
    """A function for `foreachBatch` that publishes each batch of a stream exactly once.

    `path`: `DATABASE/TABLE` or the table folder. `query`: a name that no other stream into this table has; keep it as
    long as the checkpoint. `keys`, `mode`, `marker`, `zoneless`: as the options of the data source. `run`: another word
    than before says that a new checkpoint goes on under the same name: its batches are published, whatever their
    numbers. The function raises `stream-restarted` for a new checkpoint otherwise.
    """
    options = {"path": path, "keys": keys, "mode": mode or "", "marker": marker or "", "zoneless": zoneless}
    said: set[str] = set()

    def publish(frame: DataFrame, batch: int) -> None:
        target = Target.of(options, frame.columns)
        table = target.open()
        table.known()
        target.tell(frame.schema, said)

        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield pa.RecordBatch.from_pylist(_outcome(target, batches), _OUTCOME)

        with table.room():
            rows = arrow_ready(frame).mapInArrow(write, _COLUMNS)
            done = rows.collect()
            files = [Prepared(row["name"], row["rows"], row["seen"]) for row in done if not row["refused"]]
            if refused := next((row["refused"] for row in done if row["refused"]), None):
                discard(table, files)
                raise LakemirrorError(**json.loads(refused))
            stream = next((row["stream"] for row in done if row["stream"]), "") or _only_stream(frame)
            publish_batch(table, query, batch, files, Run(stream, run))

    return publish


def _outcome(target: Target, batches: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    """What one partition tells the driver: its file, or why it is refused; then the other files are deleted."""
    try:
        prepared = target.prepare(batches)
    except LakemirrorError as error:
        if error.retry:
            raise  # Spark runs the task again
        return [{"refused": json.dumps({name: getattr(error, name) for name in _OF_ERROR})}]
    return [] if prepared is None else [{**asdict(prepared), "stream": stream_id()}]


def stream_id() -> str:
    """Within a task of a stream's batch: the id that Spark keeps in the stream's checkpoint; empty if unknown."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return (context.getLocalProperty("sql.streaming.queryId") or "") if context is not None else ""


def _only_stream(frame: DataFrame) -> str:
    """The id of the one stream that runs in the session: with Connect, tasks do not know theirs."""
    with suppress(Exception):
        active = frame.sparkSession.streams.active
        return str(active[0].id) if len(active) == 1 else ""
    return ""


@dataclass(frozen=True)
class Target:
    """A table folder and how rows go there, from the options of a Spark writer. Small: it travels to executors."""

    db: str
    table: str
    schema: str
    keys: tuple[str, ...] | None
    mode: str | None
    marker: str | None
    zoneless: str = ""

    @classmethod
    def of(cls, options: Mapping[str, str], columns: Iterable[str] = ()) -> Target:
        """`path`: DB/TABLE, DB/SCHEMA.TABLE, or the table folder; options `keys`, `mode`, `marker`, `zoneless`."""
        given = {name.lower(): value for name, value in options.items()}
        if "path" not in given:
            raise LakemirrorError(
                "input-invalid", "there is no path", hint='Give database and table: .save("shop/orders")'
            )
        db, schema, table = _place(given["path"])
        keys = tuple(key.strip() for key in given["keys"].split(",")) if given.get("keys") else None
        marker = given.get("marker") or (MARKER_COLUMN if MARKER_COLUMN in columns else None)
        return cls(db, table, schema, keys, given.get("mode"), marker, given.get("zoneless", ""))

    def open(self, zoneless: str = "") -> LandingTable:
        return Landing(self.db).table(self.table, self.keys, self.schema or None, zoneless=zoneless or self.zoneless)

    def tell(self, schema: Any, said: set[str]) -> None:
        """Warns of the columns of a Spark schema whose times have no zone, unless it was said. Tasks cannot."""
        for field in schema:
            if field.dataType.typeName() == "timestamp_ntz" and not self.zoneless and field.name not in said:
                said.add(field.name)
                self.open().warn(unsaid_zone(field.name))

    def prepare(self, batches: Iterator[pa.RecordBatch]) -> Prepared | None:
        """Writes the rows of one partition as a file without a number."""
        texts = as_text(batch for batch in batches if batch.num_rows)
        first = next(texts, None)
        if first is None:
            return None
        reader = pa.RecordBatchReader.from_batches(first.schema, itertools.chain([first], texts))
        return self.open(self.zoneless or NTZ).prepare(reader, self.mode, marker=self.marker)


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


__all__ = ["Target", "publish_each_batch", "stream_id"]
