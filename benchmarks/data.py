"""Seeded tables and change files: the same numbers give the same bytes.

load/*.parquet     rows without a marker, ids from 0
changes/*.parquet  changes with `__rowMarker__`, in file and row order; the last change of an id is what counts
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

MARKER = "__rowMarker__"
INSERT, UPDATE, DELETE, UPSERT = 0, 1, 2, 4

Keys = Callable[[np.random.Generator, int, int], np.ndarray]
"""Which known ids are changed: from how many there are, so many of them."""


def uniform(random: np.random.Generator, known: int, count: int) -> np.ndarray:
    """Any id, all alike: the worst that a table can meet."""
    return random.integers(0, known, count)


def zipf(random: np.random.Generator, known: int, count: int) -> np.ndarray:
    """Few ids often, most of them hardly ever (exponent 1.1), scattered over the table."""
    rank = random.zipf(1.1, count) % known
    return (rank * 2_654_435_761) % known


def recent(random: np.random.Generator, known: int, count: int) -> np.ndarray:
    """The newest twentieth alone, as orders and events are."""
    return random.integers(known - max(1, known // 20), known, count)


def hot(random: np.random.Generator, known: int, count: int) -> np.ndarray:
    """A thousand ids, again and again."""
    return random.integers(0, min(1000, known), count) * max(1, known // 1000) % known


def load(folder: Path, rows: int, files: int = 4, seed: int = 7) -> list[Path]:
    """The files of a first load, made where they are not there yet."""
    if not folder.exists():
        random = np.random.default_rng(seed)
        folder.mkdir(parents=True)
        for part, ids in enumerate(np.array_split(np.arange(rows, dtype=np.int64), files)):
            pq.write_table(table(ids, random), folder / f"{part + 1:020}.parquet")
    return sorted(folder.glob("*.parquet"))


def upserts(
    folder: Path,
    rows: int,
    files: int,
    changes: int,
    keys: Keys,
    *,
    new: float = 0.3,
    deletes: float = 0.1,
    seed: int = 8,
) -> None:
    """Change files on a table of so many rows: known ids by `keys`, of which some are deleted, and new ids."""
    random = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    newest = rows
    for number in range(1, files + 1):
        fresh = int(changes * new)
        known = changes - fresh
        ids = np.concatenate([keys(random, newest, known), np.arange(newest, newest + fresh)]).astype(np.int64)
        markers = np.full(changes, UPSERT, dtype=np.int32)
        markers[:known] = np.where(random.random(known) < deletes, DELETE, UPDATE)
        order = random.permutation(changes)
        newest += fresh
        _write(folder, number, ids[order], markers[order], random)


def mixed(folder: Path, rows: int, files: int, changes: int, seed: int = 9) -> None:
    """Six parts upserts, two deletes, two inserts, with chains on one key and keys that move, all within one file.

    An insert follows the delete of its key, so that "the last change counts" and the contract's net effect agree, and
    a peer that knows nothing of markers but "delete or not" can be right.
    """
    random = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    newest = rows
    for number in range(1, files + 1):
        fifth = changes // 5
        put = random.integers(0, newest, 3 * fifth)
        moved = random.choice(newest, fifth, replace=False)
        again = moved[: fifth // 2]  # delete and insert of one key
        to = np.arange(newest, newest + fifth - len(again))  # delete of one key, insert of another
        ids = np.concatenate([put, moved, again, to]).astype(np.int64)
        markers = np.repeat(np.array([UPSERT, DELETE, INSERT], dtype=np.int32), [len(put), fifth, fifth])
        newest += len(to)
        _write(folder, number, ids, markers, random)


def appends(folder: Path, files: int, changes: int, *, first: int = 0, wider_every: int = 0, seed: int = 10) -> None:
    """Files of new rows, marked as inserts; with `wider_every` each so many files bring one more column."""
    random = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    for number in range(1, files + 1):
        ids = np.arange(first, first + changes, dtype=np.int64)
        first += changes
        extra = {
            f"extra{i + 1}": random.integers(0, 1000, changes) for i in range((number - 1) // (wider_every or files))
        }
        _write(folder, number, ids, np.zeros(changes, dtype=np.int32), random, extra)


def table(ids: np.ndarray, random: np.random.Generator) -> pa.Table:
    """Rows with these ids; five columns."""
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


def _write(
    folder: Path, number: int, ids: np.ndarray, markers: np.ndarray, random: np.random.Generator,
    extra: dict[str, np.ndarray] | None = None,
) -> None:  # fmt: skip
    rows = table(ids, random)
    for name, values in (extra or {}).items():
        rows = rows.append_column(name, pa.array(values))
    pq.write_table(rows.append_column(MARKER, pa.array(markers)), folder / f"{number:020}.parquet")
