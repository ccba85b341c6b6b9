"""Files of other programs as rows to publish: Parquet, CSV, spreadsheets, JSON lines, Arrow IPC.

Text is read cautiously: an empty field is NULL and a quoted empty one is not, columns that were published before keep
their types, and a column gets a type only if its values give back each text (`text_types`).
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.zoneless import NTZ
from lakemirror.passwords import without_passwords
from lakemirror.publisher.declared_types import TypeWarning, frames_to_user, unsaid_zone
from lakemirror.publisher.plain_names import plain_name, renamed
from lakemirror.publisher.sources.csv_rows import read_csv
from lakemirror.publisher.sources.file_options import FileOptions
from lakemirror.publisher.sources.json_rows import read_json_lines
from lakemirror.publisher.sources.text_types import Choice, KnownTypes
from lakemirror.publisher.sources.workbook import read_workbook

if TYPE_CHECKING:
    from lakemirror.publisher.landing_table import LandingTable, Published

MODES = ("load", "insert", "update", "upsert", "delete", "snapshot")
STDIN = "-"

_SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".xlsx": "xlsx",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
}
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")


def publish_files(
    table: LandingTable,
    sources: Iterable[str | os.PathLike[str]],
    mode: str | None = None,
    *,
    marker: str | None = None,
    options: FileOptions | None = None,
    tell: Callable[[Choice], None] | None = None,
) -> list[Published]:
    """Publishes each file as one change file, in order; returns those that were written.

    `sources`: paths, or `-` for standard input. `mode`: one of `MODES`; None upserts where there are keys, else
    inserts. A snapshot of several files is one content. `marker`: the column that holds each row's marker, instead of
    a mode. `options`: how the files are read. `tell` is called with the type of each column of text. Errors beside
    those of `LandingTable`: `input-invalid` for a file that cannot be read.
    """
    if mode == "snapshot" and marker is None:
        published = [table.publish_snapshot(_one_content(table, list(sources), options, tell))]
    else:
        published = [
            publish_rows(table, read_file(source, known_types(table), options, tell), mode, marker)
            for source in sources
        ]
    table.flush()
    return [each for each in published if each is not None]


def known_types(table: LandingTable) -> KnownTypes:
    """The types of the table's columns that are not guessed."""
    return KnownTypes(table.columns, table.types_before(), table.keys, table.zoneless)


def _one_content(
    table: LandingTable,
    sources: list[str | os.PathLike[str]],
    options: FileOptions | None,
    tell: Callable[[Choice], None] | None,
) -> pa.RecordBatchReader | pa.Table:
    """The rows of all files; those of later ones in the types of earlier ones."""
    known, tables = known_types(table), []
    for source in sources:
        reader = read_file(source, known, options, tell)
        if len(sources) == 1:
            return reader
        tables.append(reader.read_all())
        known = known.after(reader.schema)
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise LakemirrorError(
            "type-changed", f"{table.name}: the files hold columns of different types: {error}",
            hint="Publish them in the same types, or one after the other.",
        ) from error  # fmt: skip


def publish_rows(
    table: LandingTable, rows: pa.RecordBatchReader, mode: str | None = None, marker: str | None = None
) -> Published | None:
    """Publishes rows in a mode that is named, or with the markers in one of their columns."""
    if marker is not None:
        return table.changes(rows, marker=marker)
    publish = {
        "load": table.load,
        "insert": table.insert,
        "update": table.update,
        "upsert": table.upsert,
        "delete": table.delete,
        "snapshot": table.publish_snapshot,
    }[table.mode(mode, MODES)]
    return publish(rows)


def read_file(
    source: str | os.PathLike[str],
    known: KnownTypes | None = None,
    options: FileOptions | None = None,
    tell: Callable[[Choice], None] | None = None,
) -> pa.RecordBatchReader:
    """The rows of a file, or of standard input for `-`.

    `known`: types of columns that are named or were published before. All other columns of CSV, JSON lines and
    spreadsheets get a type from their content, as `text_types` says; `tell` is called with each column's type. Warns
    (TypeWarning) of names that the file lacks, of columns that `options.plain_names` renames, whose types are found by
    the new names, and of times without a zone where nobody said what they mean. `input-invalid` for what cannot be
    read, `value-invalid` and `type-changed` for values that do not fit, `columns-ambiguous` and `column-name-invalid`
    for the names.
    """
    name = str(source)
    options, tell = options or FileOptions(), tell or (lambda choice: None)
    known = replace(known or KnownTypes(), published=plain_name if options.plain_names else str)
    with _named(name), contextlib.ExitStack() as opened:
        stream = _open(name)
        if name != STDIN:
            opened.enter_context(stream)
        kind = options.format or _SUFFIXES.get(_suffix(name)) or _sniff(stream)
        stream = _seekable(stream)
        if kind == "parquet":
            reader = _read_parquet(stream)
        elif kind == "arrow":
            reader = _read_arrow(stream)
        elif kind == "csv":
            reader = read_csv(stream, name, known, options.delimited("\t" if _suffix(name) == ".tsv" else ","), tell)
        elif kind == "xlsx":
            reader = read_workbook(stream, name, known, options.sheet, tell)
        else:
            reader = read_json_lines(stream, name, known, tell)
        if options.plain_names:
            reader, changed = renamed(reader)
            for old, new in changed.items():
                warnings.warn(f"column {old!r} is published as {new}", TypeWarning, 2)
        there = {column.lower() for column in reader.schema.names}
        for column in known.named:
            if column.lower() not in there:
                warnings.warn(f"{name} has no column {column!r}, whose type is named", TypeWarning, 2)
        said = known.zoneless not in ("", NTZ)
        batches = _batches(reader, name, opened.pop_all(), {} if said else known.zones.met)
        return pa.RecordBatchReader.from_batches(reader.schema, batches)


def missing_file(name: str) -> LakemirrorError:
    """The error for a file that is not there. It shows no password, in case that the name is a database's URL."""
    shown = without_passwords(name, name)
    hint = "Give a database by --from-sql." if "://" in name else "Check the path."
    return LakemirrorError("input-invalid", f"{shown}: no such file", file=shown, hint=hint)


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    """Says which file it is that cannot be read."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise LakemirrorError("input-invalid", f"{name}: {error}", file=name) from error


def _batches(
    reader: pa.RecordBatchReader, name: str, opened: contextlib.ExitStack, unsaid: Iterable[str]
) -> Iterator[pa.RecordBatch]:
    """The rows, then a warning for each column that is `unsaid` by then."""
    with _named(name), opened:
        yield from reader
    for column in unsaid:
        warnings.warn(unsaid_zone(column), TypeWarning, frames_to_user())


def _open(name: str) -> IO[bytes]:
    if name == STDIN:
        given: Any = sys.stdin.buffer
        return given if hasattr(given, "peek") else io.BufferedReader(given)
    path = Path(name)
    if not path.exists():
        raise missing_file(name)
    if path.suffix in _COMPRESSED:
        return pa.input_stream(str(path), compression="detect")  # type: ignore[no-any-return]
    return path.open("rb")


def _suffix(name: str) -> str:
    """The suffix that tells of the content, without that of a compression."""
    path = Path(name)
    return (Path(path.stem).suffix if path.suffix in _COMPRESSED else path.suffix).lower()


def _sniff(stream: Any) -> str:
    """The format by the first bytes."""
    first = stream.peek(8)[:8] if hasattr(stream, "peek") else b""
    if first.startswith(b"PAR1"):
        return "parquet"
    if first.startswith(b"PK\x03\x04"):
        return "xlsx"
    if first.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return "arrow"
    return "jsonl" if first.removeprefix(b"\xef\xbb\xbf").lstrip().startswith((b"{", b"[")) else "csv"


def _read_parquet(stream: IO[bytes]) -> pa.RecordBatchReader:
    file = pq.ParquetFile(stream)
    return pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches(batch_size=1 << 17))


def _read_arrow(stream: IO[bytes]) -> pa.RecordBatchReader:
    magic = stream.read(6)
    stream.seek(0)
    if magic != b"ARROW1":
        return pa.ipc.open_stream(stream)
    file = pa.ipc.open_file(stream)
    return pa.RecordBatchReader.from_batches(
        file.schema, (file.get_batch(number) for number in range(file.num_record_batches))
    )


def _seekable(stream: IO[bytes]) -> Any:
    """The stream, or its content in a temporary file where it cannot be read twice."""
    if stream.seekable():
        return stream
    kept = tempfile.TemporaryFile()  # noqa: SIM115 closed with the last reference
    shutil.copyfileobj(stream, kept, 1 << 20)
    kept.seek(0)
    return kept
