"""What a backlog costs on both sides of the limit from which `auto` uses Spark: one batch, by `auto` and by the other.

load ─▶ change files that decode to the size asked for ─▶ `sync --engine auto` ─▶ the same again by the other engine

Sizes are in MiB of decoded rows. Every apply is a process of its own, so Spark's start counts. The batch is one commit:
its files compress well, and together they are smaller than the setting `batch_bytes`. `LAKEMIRROR_SPARK_FROM_BYTES`
moves the limit, on a machine that is too small for the default one.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import data
from benchmarks.mirror import Mirror, Point

_ROWS = 1_000_000  # of the table before the batch
_FILE = 256  # MiB decoded of one change file
_PAYLOAD = 400  # bytes of the text in a row
_ENGINES = ("local", "spark")


def ask(place: Path, sizes: Sequence[int]) -> Iterator[Point]:
    """Seconds of each size by each engine, and by the one that `auto` chose."""
    for size in sizes:
        files = _changes(place / "changes", size)
        seconds, chosen = _synced(place, files, "auto")
        yield Point("auto", size, [seconds])
        yield Point(chosen, size, [seconds])
        for other in set(_ENGINES) - {chosen}:
            yield Point(other, size, [_synced(place, files, other)[0]])
        shutil.rmtree(place / "changes")


def _synced(place: Path, files: Sequence[Path], engine: str) -> tuple[float, str]:
    """Seconds of one process that applies the files to a new copy of the table, and its engine."""
    mirror = Mirror(place / "db")
    mirror.put(*_load(place / "load"))
    mirror.apply()
    mirror.put(*files)
    words = [sys.executable, "-m", "lakemirror.cli", "sync", str(mirror.folder), "--engine", engine]
    begun = time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - begun
    used, commits = mirror.last_apply()
    if commits != 2:
        raise RuntimeError(f"the batch became {commits - 1} commits")
    shutil.rmtree(mirror.folder)
    return seconds, used


def _load(folder: Path) -> list[Path]:
    if not folder.exists():
        folder.mkdir(parents=True)
        pq.write_table(_rows(np.arange(_ROWS), _payload(_ROWS)), folder / "1.parquet", compression="zstd")
    return sorted(folder.iterdir())


def _changes(folder: Path, size: int) -> list[Path]:
    """Upserts of keys in no order, a part of them in the table. Texts are stored plainly: a dictionary would not count
    as decoded."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(17)
    rows = (_FILE << 20) // (_PAYLOAD + 24)
    files = max(1, size // _FILE)
    payload = _payload(rows)
    for number in range(1, files + 1):
        ids = random.integers(0, files * rows, rows)
        table = _rows(ids, payload).append_column(data.MARKER, pa.array(np.full(rows, data.UPSERT, np.int32)))
        pq.write_table(
            table, folder / f"{number:020}.parquet", compression="zstd", use_dictionary=False, row_group_size=1 << 18
        )
    return sorted(folder.iterdir())


def _rows(ids: np.ndarray, payload: pa.Array) -> pa.Table:
    return pa.table({"id": ids, "amount": (ids % 10_000) / 100, "payload": payload})


def _payload(rows: int) -> pa.Array:
    filler = "the same words in every row; " * (_PAYLOAD // 29)
    return pa.array([f"{number:010}{filler}" for number in range(rows)])


def decoded(files: Sequence[Path]) -> int:
    """Decoded bytes of all rows, as the choice of the engine counts them."""
    footers = [pq.read_metadata(file) for file in files]
    return sum(footer.row_group(group).total_byte_size for footer in footers for group in range(footer.num_row_groups))


__all__ = ["ask", "decoded"]
