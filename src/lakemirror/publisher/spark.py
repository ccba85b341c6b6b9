"""Spark as a publisher and as a reader of change files: the data source `lakemirror`, for PySpark 4.0 and newer.

    df.write.format("lakemirror")           each partition one file, published when all are written
    df.writeStream.format("lakemirror")     each batch exactly once (`batches`)
    spark.readStream.format("lakemirror")   the change rows of a table folder, with file, row and marker

Import this module only where PySpark 4.0 or newer is installed. `spark_batches.publish_each_batch` does the same as
`writeStream` by `foreachBatch`, also with PySpark 3.5.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.column_types import arrow_type, table_type
from lakemirror.landing_zone.delimited import read_columns
from lakemirror.landing_zone.metadata import SEQUENTIAL, TableMetadata, parse_metadata
from lakemirror.landing_zone.zone import METADATA
from lakemirror.landing_zone.zoneless import NTZ
from lakemirror.publisher.batches import Run, abandon, discard, publish_batch, publish_prepared
from lakemirror.publisher.change_writer import MARKER_COLUMN
from lakemirror.publisher.declared_types import ColumnTypes
from lakemirror.publisher.folders.local_folder import LocalFolder, remove_empty
from lakemirror.publisher.folders.table_folder import TableFolder
from lakemirror.publisher.sequence import Sequence as Numbers
from lakemirror.publisher.snapshot_state import fingerprint
from lakemirror.publisher.sources.spark_values import unsupported, year_months
from lakemirror.publisher.spark_batches import Target, stream_id
from lakemirror.publisher.table_writer import Prepared

try:
    from pyspark.sql import datasource as ds
except ImportError as missing:  # PySpark 3.5
    raise ImportError(
        "lakemirror.publisher.spark needs PySpark 4.0 or newer; with 3.5 use lakemirror.publisher.spark_batches"
    ) from missing

FILE, ROW = "__file__", "__row__"
_ROWS = 10_000


def register(spark: SparkSession) -> None:
    """Makes the format `lakemirror` known to a session."""
    spark.dataSource.register(LakemirrorSource)


class LakemirrorSource(ds.DataSource):
    """The format `lakemirror`: a table folder of a landing zone."""

    @classmethod
    def name(cls) -> str:
        return "lakemirror"

    def schema(self) -> Any:
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(_Changes.of(self.options).schema)

    def reader(self, schema: Any) -> _Reader:
        return _Reader(_Changes.of(self.options))

    def streamReader(self, schema: Any) -> _StreamReader:
        return _StreamReader(_Changes.of(self.options))

    def writer(self, schema: Any, overwrite: bool) -> _Writer:
        if overwrite:
            raise LakemirrorError(
                "not-supported",
                "a landing zone takes changes, and mode overwrite replaces a table",
                hint='Use mode("append"), or recreate the table: Landing(db).table(name).recreate()',
            )
        return _Writer(self._target(schema), schema)

    def streamWriter(self, schema: Any, overwrite: bool) -> _StreamWriter:
        target = self._target(schema)
        given = {name.lower(): value for name, value in self.options.items()}
        query = given.get("queryid") or _spelled(given.get("checkpointlocation", ""))
        if not query:
            raise LakemirrorError(
                "input-invalid",
                "batches are published exactly once only where their query is known",
                hint='Add .option("checkpointLocation", …) to the stream, or .option("queryId", …).',
            )
        return _StreamWriter(target, schema, query, given.get("run", ""))

    def _target(self, schema: Any) -> Target:
        """Where rows go. Declares the keys, and refuses others, and types that Spark cannot hand over."""
        target = Target.of(self.options, schema.names)
        if columns := year_months(schema):
            raise unsupported(next(iter(columns)))
        target.open().known()
        target.tell(schema, set())
        return target


@dataclass
class _Message(ds.WriterCommitMessage):
    """One partition's file, None where the partition has no rows; and the id of the stream that it is of."""

    prepared: Prepared | None
    stream: str = ""


class _Files:
    """What writers of batches and of streams have in common: a file for each partition."""

    def __init__(self, target: Target, schema: Any) -> None:
        self.target = target
        self._schema = schema
        self._absent = LocalFolder(target.open().folder).absent() if target.is_local else []

    def write(self, iterator: Iterator[Any]) -> _Message:
        return _Message(self.target.prepare(_record_batches(iterator, self._schema)), stream_id())

    def _prepared(self, messages: Sequence[Any]) -> list[Prepared]:
        return [message.prepared for message in messages if message is not None and message.prepared is not None]

    def _leave(self) -> None:
        """Removes the table folder if it was made for files that are discarded."""
        remove_empty(self._absent)


class _Writer(_Files, getattr(ds, "DataSourceArrowWriter", ds.DataSourceWriter)):  # type: ignore[misc]
    def commit(self, messages: Sequence[Any]) -> None:
        publish_prepared(self.target.open(), self._prepared(messages))

    def abort(self, messages: Sequence[Any]) -> None:
        discard(self.target.open(), self._prepared(messages))
        self._leave()


class _StreamWriter(_Files, getattr(ds, "DataSourceStreamArrowWriter", ds.DataSourceStreamWriter)):  # type: ignore[misc]
    def __init__(self, target: Target, schema: Any, query: str, word: str) -> None:
        super().__init__(target, schema)
        self._query = query
        self._word = word

    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        stream = next((each.stream for each in messages if each is not None and each.stream), "")
        run = Run(stream or _id_in(self._query), self._word)
        publish_batch(self.target.open(), self._query, batchId, self._prepared(messages), run)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:
        abandon(self.target.open(), self._query, self._prepared(messages))
        self._leave()


@dataclass(frozen=True)
class _Changes:
    """The change files of one table folder, as rows of one schema. Small: it travels to executors."""

    target: Target
    metadata: TableMetadata
    schema: pa.Schema

    @classmethod
    def of(cls, options: Mapping[str, str]) -> _Changes:
        target = Target.of(options)
        table = target.open()
        metadata = _metadata(table.place)
        if metadata.file_detection_strategy != SEQUENTIAL or metadata.partitioned:
            raise LakemirrorError(
                "not-supported", f"{table.name}: only folders whose files are numbered in one sequence can be read"
            )
        changes = cls(target, metadata, pa.schema([]))
        numbers = changes.numbers()
        fields: dict[str, pa.Field] = {}
        for number in changes.present(numbers):
            for field in changes.columns(numbers, number):
                kind = arrow_type(table_type(field.type) or "string")
                fields.setdefault(field.name.lower(), pa.field(field.name, kind))
        fields.pop(MARKER_COLUMN.lower(), None)
        helpers = [pa.field(MARKER_COLUMN, pa.int32()), pa.field(FILE, pa.string()), pa.field(ROW, pa.int64())]
        return cls(target, metadata, pa.schema([*fields.values(), *helpers]))

    def numbers(self, *, in_task: bool = False) -> Numbers:
        return Numbers(self.target.open(in_task=in_task).place, self.metadata.file_extension)

    def present(self, numbers: Numbers) -> list[int]:
        """The numbers of files that are still there, without those behind a gap."""
        kept = numbers.present()
        gap = next((place for place in range(1, len(kept)) if kept[place] != kept[place - 1] + 1), len(kept))
        return kept[:gap]

    def columns(self, numbers: Numbers, number: int) -> pa.Schema:
        return next((batch.schema for batch in self._reader(numbers, number)), pa.schema([]))

    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        """Within a task: the rows of one file in the schema; columns that the file lacks are NULL."""
        row, numbers = 0, self.numbers(in_task=True)
        for batch in self._reader(numbers, number):
            given = {name.lower(): batch.column(place) for place, name in enumerate(batch.schema.names)}
            count = batch.num_rows
            given[FILE] = pa.repeat(pa.scalar(numbers.name(number)), count)
            given[ROW] = pa.array(range(row, row + count), pa.int64())
            arrays = [
                given[field.name.lower()].cast(field.type)
                if field.name.lower() in given
                else pa.nulls(count, field.type)
                for field in self.schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)
            row += count

    def _reader(self, numbers: Numbers, number: int) -> Iterator[pa.RecordBatch]:
        name = numbers.find(number)
        if name is None:
            raise LakemirrorError(
                "file-unreadable",
                f"{numbers.name(number)} is gone: applied files are kept for some days",
                hint="Start the stream with a new checkpoint; it begins at the oldest file that is there.",
            )
        with numbers.folder.open(name) as source:
            if self.metadata.delimited is not None:
                file = name.rpartition("/")[2]
                yield from read_columns(source, file=file, metadata=self.metadata, undeclared="string")
                return
            yield from self._parquet_reader(pq.ParquetFile(source))

    def _parquet_reader(self, file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
        batches = file.iter_batches(batch_size=_ROWS)
        empty = file.schema_arrow.empty_table().to_batches() or [pa.RecordBatch.from_pylist([], file.schema_arrow)]
        reader = pa.RecordBatchReader.from_batches(file.schema_arrow, itertools.chain(empty, batches))
        yield from ColumnTypes(self.target.table, NTZ).conform(reader)


def _metadata(folder: TableFolder) -> TableMetadata:
    try:
        with folder.open(METADATA) as file:
            return parse_metadata(file.read(), METADATA)
    except FileNotFoundError:
        return TableMetadata()


@dataclass
class _File(ds.InputPartition):
    number: int


class _Reader(ds.DataSourceReader):
    def __init__(self, changes: _Changes) -> None:
        self._changes = changes

    def partitions(self) -> Sequence[_File]:
        return [_File(number) for number in self._changes.present(self._changes.numbers())]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return self._changes.read(partition.number) if partition is not None else iter(())


class _StreamReader(ds.DataSourceStreamReader):
    """Offsets are numbers of files: those up to it were read. `end` tells that file from one of a recreated folder."""

    def __init__(self, changes: _Changes) -> None:
        self._changes = changes
        self._last: dict[str, Any] = {}

    def initialOffset(self) -> dict[str, Any]:
        present = self._changes.present(self._changes.numbers())
        return {"number": present[0] - 1 if present else 0, "end": ""}

    def latestOffset(self, *_: Any) -> dict[str, Any]:
        numbers = self._changes.numbers()
        before = self._last or self.initialOffset()
        latest = before["number"]
        while numbers.find(latest + 1) is not None:
            latest += 1
        if latest == before["number"] and before["end"] and numbers.find(latest) is None:
            self._check(numbers, before)
        if latest != before["number"] or not self._last:
            self._last = {"number": latest, "end": fingerprint(numbers.folder, numbers.find(latest))}
        return self._last

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[_File]:
        """The files after `start`. `file-unreadable` where the folder was recreated since."""
        self._check(self._changes.numbers(), start, end["number"])
        return [_File(number) for number in range(start["number"] + 1, end["number"] + 1)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return self._changes.read(partition.number)

    def _check(self, numbers: Numbers, read: dict[str, Any], latest: int | None = None) -> None:
        """`file-unreadable` where the files up to `read` are not those of this folder, or it has no more so many."""
        number, end = read["number"], read.get("end", "")
        there = max(numbers.present(), default=number) if latest is None else latest
        now = fingerprint(numbers.folder, numbers.find(number)) if end else ""
        if there < number or (now and now != end):
            raise LakemirrorError(
                "file-unreadable",
                f"{self._changes.target.table}: the table folder was recreated: {numbers.name(number)} is not the file "
                "that this stream has read",
                hint="Start the stream with a new checkpoint; it begins at the oldest file that is there.",
            )


def _spelled(checkpoint: str) -> str:
    """A local folder by its absolute path, another place as it is given."""
    parts = urlsplit(checkpoint)
    if not checkpoint or parts.scheme not in ("", "file"):
        return checkpoint
    return str(Path(unquote(parts.path) if parts.scheme else checkpoint).absolute())


def _id_in(checkpoint: str) -> str:
    """The id that Spark keeps in a local checkpoint; empty where it cannot be read."""
    try:
        return str(json.loads((Path(checkpoint) / "metadata").read_text("utf-8"))["id"])
    except (OSError, ValueError, KeyError):
        return ""


def _record_batches(iterator: Iterator[Any], schema: Any) -> Iterator[pa.RecordBatch]:
    """Arrow batches as they are; rows, which PySpark 4.0 gives, as batches."""
    first = next(iterator, None)
    if first is None:
        return
    rest = itertools.chain([first], iterator)
    if isinstance(first, pa.RecordBatch):
        yield from rest
        return
    from pyspark.sql.pandas.types import to_arrow_schema

    arrow = to_arrow_schema(schema)
    while chunk := list(itertools.islice(rest, _ROWS)):
        yield from pa.Table.from_pylist([row.asDict(recursive=True) for row in chunk], arrow).to_batches()
