"""Seeded tables and change files: the same numbers give the same bytes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

MARKER = "__rowMarker__"


@dataclass(frozen=True)
class Size:
    """How much a scenario has: rows of the table, change files, changes per file."""

    rows: int
    files: int
    changes: int
    clustered: bool = False  # keys near the newest, as real keys are; else anywhere


def make(folder: Path, size: Size, seed: int = 7) -> None:
    """Writes `load/*.parquet` (4 files, no marker) and `changes/*.parquet` (upserts, updates, deletes)."""
    random = np.random.default_rng(seed)
    (folder / "load").mkdir(parents=True)
    (folder / "changes").mkdir()
    for part, ids in enumerate(np.array_split(np.arange(size.rows, dtype=np.int64), 4)):
        pq.write_table(_rows(ids, random), folder / "load" / f"{part + 1:020}.parquet")
    newest = size.rows
    for number in range(1, size.files + 1):
        new = int(size.changes * 0.3)
        known = size.changes - new
        lowest = max(0, newest - size.rows // 50) if size.clustered else 0
        old = random.choice(np.arange(lowest, newest, dtype=np.int64), known, replace=known > newest - lowest)
        ids = np.concatenate([old, np.arange(newest, newest + new, dtype=np.int64)])
        markers = np.full(size.changes, 4, dtype=np.int32)
        markers[:known] = np.where(random.random(known) < 0.1, 2, 1)
        newest += new
        order = random.permutation(size.changes)
        table = _rows(ids[order], random).append_column(MARKER, pa.array(markers[order]))
        pq.write_table(table, folder / "changes" / f"{number:020}.parquet")


def _rows(ids: np.ndarray, random: np.random.Generator) -> pa.Table:
    count = len(ids)
    amounts = random.integers(0, 1_000_000, count)
    return pa.table(
        {
            "id": ids,
            "amount": amounts,
            "price": np.round(random.random(count) * 1000, 2),
            "name": pa.array([f"customer {a}" for a in amounts % 50_000]),
            "changed": pa.array(1_700_000_000_000_000 + amounts * 1_000_000, pa.timestamp("us", "UTC")),
        }
    )
