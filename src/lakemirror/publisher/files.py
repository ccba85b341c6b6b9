"""Files of other programs as rows to publish: Parquet, CSV, spreadsheets, JSON lines, Arrow IPC.

Text is read cautiously: an empty field is NULL and a quoted empty one is not, columns that were published before keep
their types, and JSON strings stay strings whatever they look like.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.errors import LakemirrorError
from lakemirror.publisher.arrow_input import Types, from_mappings
from lakemirror.publisher.text_rows import TextForm, read_csv
from lakemirror.publisher.workbook import read_workbook

if TYPE_CHECKING:
    from lakemirror.publisher.landing_table import LandingTable, Published

MODES = ("load", "insert", "update", "upsert", "delete", "snapshot")
FORMATS = ("parquet", "csv", "xlsx", "jsonl", "arrow")
STDIN = "-"
LINES = 20_000

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
    format: str | None = None,
    marker: str | None = None,
    text: TextForm | None = None,
) -> list[Published]:
    """Publishes each file as one change file, in order; returns those that were written.

    `sources`: paths, or `-` for standard input. `mode`: one of `MODES`; None upserts where there are keys, else
    inserts. A snapshot of several files is one content. `format`: one of `FORMATS`; None goes by the name, then by the
    first bytes. `marker`: the column that holds each row's marker, instead of a mode. `text`: how CSV is
    written. Errors beside those of `LandingTable`: `input-invalid` for a file that cannot be read.
    """
    readers = (
        read_file(source, format, columns=table.columns, before=table.types_before(), text=text) for source in sources
    )
    if mode == "snapshot" and marker is None:
        tables = [reader.read_all() for reader in readers]
        whole = pa.concat_tables(tables, promote_options="permissive") if len(tables) > 1 else tables[0]
        published = [table.publish_snapshot(whole)]
    else:
        published = [publish_rows(table, reader, mode, marker) for reader in readers]
    table.flush()
    return [each for each in published if each is not None]


def publish_rows(
    table: LandingTable, rows: pa.RecordBatchReader, mode: str | None = None, marker: str | None = None
) -> Published | None:
    """Publishes rows in a mode that is named, or with the markers in one of their columns."""
    if marker is not None:
        return table.changes(rows, marker=marker)
    mode = mode or ("upsert" if table.keys else "insert")
    if mode not in MODES:
        raise LakemirrorError("input-invalid", f"{mode!r} is no mode", hint=f"Modes are {', '.join(MODES)}.")
    publish = {
        "load": table.load,
        "insert": table.insert,
        "update": table.update,
        "upsert": table.upsert,
        "delete": table.delete,
        "snapshot": table.publish_snapshot,
    }[mode]
    return publish(rows)


def read_file(
    source: str | os.PathLike[str],
    format: str | None = None,
    *,
    columns: Types | None = None,
    before: Types | None = None,
    text: TextForm | None = None,
) -> pa.RecordBatchReader:
    """The rows of a file, or of standard input for `-`.

    `columns` and `before` are types of columns, as in `arrow_input.read_rows`; text is read accordingly.
    `input-invalid` for what cannot be read, `value-invalid` and `type-changed` for values that do not fit.
    """
    name = str(source)
    columns, before, text = columns or {}, before or {}, text or TextForm()
    if format is not None and format not in FORMATS:
        raise LakemirrorError("input-invalid", f"{format!r} is no format", hint=f"Formats are {', '.join(FORMATS)}.")
    with _named(name):
        stream = _open(name)
        known = format or _format_of(name) or _sniff(stream)
        if known == "parquet":
            reader = _read_parquet(stream)
        elif known == "arrow":
            reader = _read_arrow(stream)
        elif known == "csv":
            delimiter = text.delimiter or ("\t" if _is_tsv(name) else ",")
            with _closed_after(stream, name):
                reader = read_csv(stream, name, {**before, **columns}, text, delimiter)
        elif known == "xlsx":
            with _closed_after(stream, name):
                reader = read_workbook(_seekable(stream), name, {**before, **columns}, text.sheet)
        else:
            kept = {column: kind for column, kind in before.items() if column not in columns}
            reader = _read_json_lines(stream, kept, name)
    return pa.RecordBatchReader.from_batches(reader.schema, _batches(reader, name))


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    """Says which file it is that cannot be read."""
    try:
        yield
    except FileNotFoundError as error:
        raise LakemirrorError("input-invalid", f"{name}: no such file", file=name, hint="Check the path.") from error
    except (OSError, pa.ArrowException) as error:
        raise LakemirrorError("input-invalid", f"{name}: {error}", file=name) from error


def _batches(reader: pa.RecordBatchReader, name: str) -> Iterator[pa.RecordBatch]:
    with _named(name):
        yield from reader


def _open(name: str) -> IO[bytes]:
    if name == STDIN:
        given: Any = sys.stdin.buffer
        return given if hasattr(given, "peek") else io.BufferedReader(given)
    path = Path(name)
    if path.suffix in _COMPRESSED:
        return pa.input_stream(str(path), compression="detect")  # type: ignore[no-any-return]
    return path.open("rb")


@contextlib.contextmanager
def _closed_after(stream: IO[bytes], name: str) -> Iterator[None]:
    """Closes the file behind what is done with it, but not standard input."""
    try:
        yield
    finally:
        if name != STDIN:
            stream.close()


def _format_of(name: str) -> str | None:
    path = Path(name)
    suffix = Path(path.stem).suffix if path.suffix in _COMPRESSED else path.suffix
    return _SUFFIXES.get(suffix.lower())


def _is_tsv(name: str) -> bool:
    path = Path(name)
    return (Path(path.stem).suffix if path.suffix in _COMPRESSED else path.suffix).lower() == ".tsv"


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
    file = pq.ParquetFile(_seekable(stream))
    return pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches(batch_size=1 << 17))


def _read_arrow(stream: IO[bytes]) -> pa.RecordBatchReader:
    source = _seekable(stream)
    magic = source.read(6)
    source.seek(0)
    if magic != b"ARROW1":
        return pa.ipc.open_stream(source)
    file = pa.ipc.open_file(source)
    return pa.RecordBatchReader.from_batches(
        file.schema, (file.get_batch(number) for number in range(file.num_record_batches))
    )


def _read_json_lines(stream: IO[bytes], types: Types, name: str) -> pa.RecordBatchReader:
    """One object per line, or one array of objects."""
    rows = _objects(stream, name)
    tables = []
    while chunk := list(itertools.islice(rows, LINES)):
        tables.append(from_mappings(chunk, {}, types))
    if not tables:
        return pa.table({}).to_reader()
    try:
        return pa.concat_tables(tables, promote_options="permissive").to_reader()
    except pa.ArrowException as error:
        raise LakemirrorError("value-invalid", f"{name}: a column holds values of several kinds: {error}") from error


def _objects(stream: IO[bytes], name: str) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(_lines(stream), start=1):
        text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if not text.strip():
            continue
        try:
            found = json.loads(text if number > 1 or not text.lstrip().startswith(b"[") else text + stream.read())
        except (ValueError, RecursionError) as error:
            raise LakemirrorError("input-invalid", f"{name}: line {number}: {error}", file=name, row=number) from error
        for each in found if number == 1 and isinstance(found, list) else [found]:
            if not isinstance(each, dict):
                raise LakemirrorError("input-invalid", f"{name}: line {number} holds no JSON object", row=number)
            yield each


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    if isinstance(stream, pa.NativeFile):
        yield from stream.read().splitlines(keepends=True)
    else:
        yield from iter(stream.readline, b"")


def _seekable(stream: IO[bytes]) -> Any:
    return stream if stream.seekable() else pa.BufferReader(stream.read())


__all__ = ["FORMATS", "MODES", "publish_files", "publish_rows", "read_file"]
