"""Keeps keys that do not fit into memory on the disk, in buckets. Rows with equal keys are in the same bucket.

rows ─▶ key_bucket ─▶ one Arrow stream per bucket, rows in the order of arrival ─▶ read one bucket at a time
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa

from lakemirror.keys.key_values import key_bucket, order_of, whole_numbers

MOST_BUCKETS = 256
"""Each bucket is an open file; a process may often open 1024 files, and needs others too."""


class Spill:
    """A temporary folder with one file per bucket. A context manager: leaving it removes the folder.

    `folder`: the parent of the temporary folder. `keys`: the columns that decide the bucket. `rows`: the number of
    added rows. Not safe for several threads.
    """

    def __init__(self, folder: Path, buckets: int, keys: Sequence[str]) -> None:
        self.buckets = buckets
        self.rows = 0
        self._keys = list(keys)
        self.folder = Path(tempfile.mkdtemp(prefix="fold-", dir=folder))
        self._writers: dict[int, pa.RecordBatchStreamWriter] = {}
        self._schema: pa.Schema | None = None

    def __enter__(self) -> Spill:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def add(self, rows: pa.Table) -> None:
        """Appends rows. All rows must have the same schema."""
        if not rows.num_rows:
            return
        self._schema = rows.schema
        self.rows += rows.num_rows
        bucket = key_bucket(rows.select(self._keys), self.buckets)
        order = order_of(bucket)
        ordered = rows.take(whole_numbers(order)).combine_chunks()
        begins = np.flatnonzero(np.diff(bucket[order], prepend=-1))
        for begin, end in zip(begins, [*begins[1:], len(order)], strict=True):
            self._writer(int(bucket[order[begin]]), rows.schema).write_table(ordered.slice(begin, end - begin))

    def read(self, bucket: int) -> pa.Table | None:
        """The rows of a bucket in the order of arrival; None if it is empty. After it nothing can be added."""
        parts = list(self.parts(bucket))
        return pa.concat_tables(parts) if parts else None

    def parts(self, bucket: int) -> Iterator[pa.Table]:
        """The rows of a bucket, those of each `add` by themselves."""
        self.close()
        path = self.folder / f"{bucket}.arrows"
        if self._schema is not None and path.exists():
            with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
                for batch in stream:
                    yield pa.Table.from_batches([batch])

    def close(self) -> None:
        """Closes the buckets' files; nothing can be added after it. Only one spill at a time may have files open."""
        for writer in self._writers.values():
            writer.close()
        self._writers = {}

    def _writer(self, bucket: int, schema: pa.Schema) -> pa.RecordBatchStreamWriter:
        if bucket not in self._writers:
            self._writers[bucket] = pa.ipc.new_stream(str(self.folder / f"{bucket}.arrows"), schema)
        return self._writers[bucket]
