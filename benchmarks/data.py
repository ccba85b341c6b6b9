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

_NAMES = pa.array([f"customer {number}" for number in range(50_000)])

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


def load(folder: Path, rows: int, files: int = 4, seed: int = 7, *, as_uuids: bool = False) -> list[Path]:
    """The files of a first load, made where they are not there yet. `as_uuids`: ids as `uuids` gives them."""
    if not folder.exists():
        random = np.random.default_rng(seed)
        folder.mkdir(parents=True)
        for part, ids in enumerate(np.array_split(np.arange(rows, dtype=np.int64), files)):
            rows_of_file = _with_uuids(table(ids, random)) if as_uuids else table(ids, random)
            pq.write_table(rows_of_file, folder / f"{part + 1:020}.parquet")
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
    as_uuids: bool = False,
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
        _write(folder, number, ids[order], markers[order], random, as_uuids=as_uuids)


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


def uuids(ids: np.ndarray) -> pa.Array:
    """For each id a UUID as text, in no order; its last twelve digits are the id in decimal."""
    with np.errstate(over="ignore"):
        mixed_up = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed_up ^= mixed_up >> np.uint64(29)
        mixed_up *= np.uint64(0xBF58476D1CE4E5B9)
        mixed_up ^= mixed_up >> np.uint64(32)
    text = np.full((len(ids), 36), ord("-"), np.uint8)
    hexadecimal = np.frombuffer(b"0123456789abcdef", np.uint8)
    for place, digit in enumerate(each for each in range(23) if each not in (8, 13, 18)):
        text[:, digit] = hexadecimal[((mixed_up >> np.uint64(60 - 4 * (place % 16))) & np.uint64(15)).astype(np.intp)]
    left = ids.astype(np.int64)
    for digit in range(35, 23, -1):
        text[:, digit] = ord("0") + left % 10
        left = left // 10
    offsets = np.arange(0, 36 * len(ids) + 1, 36, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(ids), [None, pa.py_buffer(offsets), pa.py_buffer(text)])


def table(ids: np.ndarray, random: np.random.Generator) -> pa.Table:
    """Rows with these ids; five columns."""
    count = len(ids)
    amounts = random.integers(0, 1_000_000, count)
    return pa.table(
        {
            "id": ids,
            "amount": amounts,
            "price": np.round(random.random(count) * 1000, 2),
            "name": _NAMES.take(pa.array(amounts % len(_NAMES))),
            "changed": pa.array(1_700_000_000_000_000 + amounts * 1_000_000, pa.timestamp("us", "UTC")),
        }
    )


def _with_uuids(rows: pa.Table) -> pa.Table:
    return rows.set_column(0, "id", uuids(rows["id"].to_numpy()))


def _write(
    folder: Path, number: int, ids: np.ndarray, markers: np.ndarray, random: np.random.Generator,
    extra: dict[str, np.ndarray] | None = None, *, as_uuids: bool = False,
) -> None:  # fmt: skip
    rows = _with_uuids(table(ids, random)) if as_uuids else table(ids, random)
    for name, values in (extra or {}).items():
        rows = rows.append_column(name, pa.array(values))
    pq.write_table(rows.append_column(MARKER, pa.array(markers)), folder / f"{number:020}.parquet")
