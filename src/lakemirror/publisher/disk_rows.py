"""Rows that may exceed memory: a table in memory while they are few, else a memory-mapped file."""

from __future__ import annotations

import contextlib
import pickle
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

IN_MEMORY_BYTES = 64 << 20


class DiskRows:
    """Gathers rows of one schema. The file is `path`, whose folder must exist, and has no name once it is read."""

    def __init__(self, schema: pa.Schema, path: Path) -> None:
        self._schema = schema
        self._path = path
        self._gathered: list[pa.RecordBatch] = []
        self._bytes = 0
        self._writer: pa.RecordBatchFileWriter | None = None

    def __enter__(self) -> DiskRows:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(pa.ArrowException, OSError):
            if self._writer is not None:
                self._writer.close()
        self._path.unlink(missing_ok=True)

    def add(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Takes rows; those beyond 64 MiB go to the file."""
        self._gathered += rows.to_batches() if isinstance(rows, pa.Table) else [rows]
        self._bytes += rows.nbytes
        if self._bytes > IN_MEMORY_BYTES:
            self._write()

    def table(self) -> pa.Table:
        """All rows; to be called once, at the end."""
        if self._writer is None:
            return pa.Table.from_batches(self._gathered, self._schema)
        self._write()
        self._writer.close()
        mapped = pa.memory_map(str(self._path))
        self._path.unlink()  # the mapping keeps the content
        return pa.ipc.open_file(mapped).read_all()

    def _write(self) -> None:
        if self._writer is None:
            self._writer = pa.ipc.new_file(str(self._path), self._schema)
        for batch in self._gathered:
            self._writer.write_batch(batch)
        self._gathered, self._bytes = [], 0


class DiskParts:
    """Gathers parts of an input to read them again; those beyond 64 MiB are in a temporary file without a name."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(1)  # noqa: SIM115 made with the first byte, closed with the last use
        weakref.finalize(self, self._file.close)
        self._on_disk = 0
        self._parts: list[Any] = []
        self._bytes = 0

    def add(self, part: Any, size: int) -> None:
        """Takes a part, made of Python values or Arrow batches, of about so many bytes."""
        self._parts.append(part)
        self._bytes += size
        if self._bytes > IN_MEMORY_BYTES:
            for each in self._parts:
                pickle.dump(each, self._file, pickle.HIGHEST_PROTOCOL)
            self._on_disk += len(self._parts)
            self._parts, self._bytes = [], 0

    def __iter__(self) -> Iterator[Any]:
        """The parts, in their order."""
        self._file.seek(0)
        for _ in range(self._on_disk):
            yield pickle.load(self._file)
        yield from self._parts
