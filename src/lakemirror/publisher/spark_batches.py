"""Batches of a Spark stream as change files, exactly once, by `foreachBatch`: for PySpark 3.5 and newer.

frame ─▶ mapInArrow: each partition one file without a number ─▶ publish_batch: all of them, once
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
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
OPTIONS = ("keys", "mode", "marker", "zoneless", "credential", "ca")
_OF_ERROR = ("code", "message", "hint", "table", "file", "row", "column")


def publish_each_batch(
    path: str, query: str, *, run: str = "", **options: str | None
) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that publishes each batch of a stream exactly once.

    `path`: `DATABASE/TABLE` or the table folder; the database is a folder, or an address as `Landing` takes it.
    `query`: a name that no other stream into this table has; keep it as long as the checkpoint. `options`: those of the
    data source: `keys`, `mode`, `marker`, `zoneless`, `credential`, `ca`. `run`: another word than before says that a
    new checkpoint goes on under the same name: its batches are published, whatever their numbers. The function raises
    `stream-restarted` for a new checkpoint otherwise.
    """
    if unknown := sorted(options.keys() - set(OPTIONS)):
        raise TypeError(f"publish_each_batch() got an unexpected keyword argument {unknown[0]!r}")
    given = {name: value for name, value in options.items() if value}
    said: set[str] = set()

    def publish(frame: DataFrame, batch: int) -> None:
        target = Target.of({"path": path, **given}, frame.columns)
        table = target.open()
        table.known()
        target.tell(frame.schema, said)
        of_session = _stream_of_session(frame, query, batch)

        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield pa.RecordBatch.from_pylist(_outcome(target, batches), _OUTCOME)

        with table.room():
            rows = arrow_ready(frame).mapInArrow(write, _COLUMNS)
            done = rows.collect()
            files = [Prepared(row["name"], row["rows"], row["seen"]) for row in done if not row["refused"]]
            if refused := next((row["refused"] for row in done if row["refused"]), None):
                discard(table, files)
                raise LakemirrorError(**json.loads(refused))
            stream = next((row["stream"] for row in done if row["stream"]), of_session)
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


def _stream_of_session(frame: DataFrame, query: str, batch: int) -> str:
    """The id of the session's stream of this name, or of its only stream: with Connect, tasks do not know theirs.

    Empty if unknown, and without Connect. `input-invalid` for batch 0 of one among several streams: nobody could tell
    it from the batch 0 of another checkpoint.
    """
    if not type(frame).__module__.startswith("pyspark.sql.connect"):
        return ""
    active = frame.sparkSession.streams.active
    of_name = [stream for stream in active if stream.name == query]
    if not of_name and len(active) > 1 and batch == 0:
        raise LakemirrorError(
            "input-invalid",
            f"{query}: several streams run in this session of Spark Connect, and Spark does not tell which one this is",
            hint=f"Give the stream the same name: .queryName({query!r}).",
        )
    alone = of_name or active
    return str(alone[0].id) if len(alone) == 1 else ""


@dataclass(frozen=True)
class Target:
    """A table folder and how rows go there, from the options of a Spark writer. Small: it travels to executors.

    `credential`: a JSON file on the driver and on the executors: the credential of a service, or the options of an
    object store. Only the file's name travels: secrets do not appear in a plan or on a page of Spark's. `ca`: for a
    service, as `Landing` takes it.
    """

    db: str
    table: str
    schema: str
    keys: tuple[str, ...] | None
    mode: str | None
    marker: str | None
    zoneless: str = ""
    credential: str = ""
    ca: str = ""

    @classmethod
    def of(cls, options: Mapping[str, str], columns: Iterable[str] = ()) -> Target:
        """`path`: DB/TABLE, DB/SCHEMA.TABLE, or the table folder; and `OPTIONS`."""
        given = {name.lower(): value for name, value in options.items()}
        if "path" not in given:
            raise LakemirrorError(
                "input-invalid", "there is no path", hint='Give database and table: .save("shop/orders")'
            )
        db, schema, table = _place(given["path"])
        keys = tuple(key.strip() for key in given["keys"].split(",")) if given.get("keys") else None
        marker = given.get("marker") or (MARKER_COLUMN if MARKER_COLUMN in columns else None)
        others = (given.get(name, "") for name in ("zoneless", "credential", "ca"))
        return cls(db, table, schema, keys, given.get("mode"), marker, *others)

    @property
    def is_local(self) -> bool:
        return "://" not in self.db

    def open(self, zoneless: str = "", *, in_task: bool = False) -> LandingTable:
        """`in_task`: options of the object store that another task gave this process do not count."""
        landing = self._at_service() if self.db.startswith(("https://", "http://")) else self._landing(in_task)
        return landing.table(self.table, self.keys, self.schema or None, zoneless=zoneless or self.zoneless)

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
        return self.open(self.zoneless or NTZ, in_task=True).prepare(reader, self.mode, marker=self.marker)

    def _landing(self, in_task: bool) -> Landing:
        if self.is_local or not (self.credential or in_task):
            return Landing(self.db)
        return Landing(self.db, storage_options=store_options(self.credential) if self.credential else {})

    def _at_service(self) -> Landing:
        """One for each process, which has one token; another one once the credential is another file."""
        changed = Path(self.credential).stat().st_mtime_ns if Path(self.credential).is_file() else 0
        return _service(self.db, self.credential or None, self.ca or None, changed)


@lru_cache(maxsize=8)
def _service(db: str, credential: str | None, ca: str | None, _: int) -> Landing:
    return Landing(db, credential, ca=ca)


def store_options(credential: str) -> dict[str, str]:
    """The options of an object store that a JSON file holds. `credential-invalid`."""
    try:
        return {str(name): str(value) for name, value in json.loads(Path(credential).read_bytes()).items()}
    except (OSError, ValueError, AttributeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no JSON object"
        raise LakemirrorError(
            "credential-invalid",
            f"the file {credential} with options of the store cannot be read: {reason}",
            hint="Give the same file to the driver and to all executors.",
        ) from error


def _place(path: str) -> tuple[str, str, str]:
    """Database, schema and table of a path or an address; `input-invalid`, `not-supported`."""
    parts = urlsplit(path)
    is_address = "://" in path and parts.scheme != "file"
    if parts.scheme and parts.scheme != "file" and not is_address:
        raise LakemirrorError(
            "not-supported",
            f"{path}: the publisher writes to local folders, object stores and services",
            hint="Give a local or mounted folder, s3://, az:// or gs://, or https://host/workspace/database.",
        )
    whole = path.rstrip("/") if is_address else str(Path(unquote(parts.path) if parts.scheme else path).absolute())
    db, zone, below = whole.partition(f"/{LANDING_ZONE}/")
    if zone:
        schema, _, table = below.rpartition("/")
        schema = schema.removesuffix(".schema")
    else:
        db, _, below = whole.rpartition("/")
        schema, _, table = below.rpartition(".")
    if is_address and "://" not in db:
        raise LakemirrorError("input-invalid", f"{path} names no table", hint="Give the database's address and /TABLE.")
    if parts.scheme in ("https", "http"):
        return db, unquote(schema), unquote(table)
    return db or "/", schema, table
