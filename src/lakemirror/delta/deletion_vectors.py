"""Deletes rows of data files by row number, and reads and writes the deletion vectors for it, without a JVM.

    add + row numbers ─▶ remove + add whose vector holds the old and the new row numbers
                      └▶ only remove, if no row is left

deletion_vector_<uuid>.bin:  version 1 │ size, bitmap, CRC-32 │ size, bitmap, CRC-32 │ …
bitmap:                      magic 1681511377 │ 64-bit Roaring bitmap of row numbers, portable form

Source: Delta protocol, "Deletion Vector Format", "Deletion Vectors".
"""

from __future__ import annotations

import base64
import contextlib
import struct
import time
import uuid
import zlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lakemirror.delta.data_files import attempt_id, data_file, removed
from lakemirror.delta.log import Action
from lakemirror.delta.roaring import are_in, row_numbers
from lakemirror.delta.statistics import record_count, with_loose_bounds
from lakemirror.storage.place import Place, place

if TYPE_CHECKING:
    from pyroaring import BitMap64

_MAGIC = struct.pack("<i", 1681511377)
_VERSION = b"\x01"
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"


@lru_cache(4096)
def vector_path(text: str) -> str:
    """The path of a vector's file, relative to the table's folder. `text`: `pathOrInlineDv` of storage type u."""
    prefix, encoded = text[:-20], text[-20:]
    name = f"deletion_vector_{uuid.UUID(bytes=_from_z85(encoded))}.bin"
    return f"{prefix}/{name}" if prefix else name


def bitmap(rows: pa.Array) -> BitMap64:
    """The bitmap of these row numbers. `rows`: int64 without NULLs. OverflowError if one is negative.

    A bitmap of 32-bit numbers is filled several times faster, and is all that the one of 64 bits has but its first
    12 bytes.
    """
    from pyroaring import BitMap, BitMap64  # not at the top: Spark's executors only read vectors, and may lack it

    numbers = np.asarray(rows)
    if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < 1 << 32:
        return BitMap64(numbers.tolist())
    low = array("I")
    low.frombytes(numbers.astype(f"u{low.itemsize}").tobytes())
    return BitMap64.deserialize(struct.pack("<QI", 1, 0) + BitMap(low).serialize())


class VectorReader:
    """Reads deletion vectors of a table. A context manager: it keeps the last file open, since one file holds many.

    Storage types of the Delta protocol: u (a file in the table's folder), p (a file anywhere, as a URI), i (in the
    descriptor itself). The methods raise ValueError for another storage type and for a damaged vector, and OSError if
    the file cannot be read.
    """

    def __init__(self, table: str | Place) -> None:
        self._table = table
        self._named = ""  # what the log calls the open file
        self._file: IO[bytes] | None = None

    def __enter__(self) -> VectorReader:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def read(self, vector: Mapping[str, Any]) -> BitMap64:
        """The rows that this deletion vector deletes. `vector`: the descriptor in a file's `add` action."""
        from pyroaring import BitMap64

        what, data = self._content(vector)
        found = BitMap64.deserialize(data)
        _check_count(what, len(found), vector)
        return found

    def row_numbers(self, vector: Mapping[str, Any]) -> np.ndarray:
        """The rows that this vector deletes, as int64 in ascending order. Needs numpy only."""
        what, data = self._content(vector)
        found = row_numbers(data)
        _check_count(what, len(found), vector)
        return found

    def deletes(self, vector: Mapping[str, Any], numbers: np.ndarray) -> np.ndarray:
        """For each of these rows (int64, ascending) whether the vector deletes it. Needs numpy only."""
        what, data = self._content(vector)
        found, count = are_in(data, numbers)
        _check_count(what, count, vector)
        return found

    def _content(self, vector: Mapping[str, Any]) -> tuple[str, bytes]:
        """The name of what holds the vector, for messages, and the bytes of its bitmap."""
        kind, text = vector["storageType"], vector["pathOrInlineDv"]
        if kind == "i":
            what, data = "the vector in the log", _from_z85(text)
            data = data[: vector["sizeInBytes"]]
        elif kind in ("u", "p"):
            what = vector_path(text) if kind == "u" else text
            if self._file is None or self._named != f"{kind}{text}":
                self.__exit__()
                self._file = None
                self._file = (place(self._table) / what if kind == "u" else data_file(self._table, text)).open("rb")
                self._named = f"{kind}{text}"
            data = _stored(self._file, what.rpartition("/")[2], vector)
        else:
            raise ValueError(f"unknown storage type {kind!r} of a deletion vector")
        if len(data) != vector["sizeInBytes"] or data[:4] != _MAGIC:
            raise ValueError(f"{what} does not hold this vector")
        return what, data[4:]


def read_row_numbers(table: str | Place, vector: Mapping[str, Any]) -> np.ndarray:
    """The rows that one vector deletes, as int64 in ascending order. Needs numpy only."""
    with VectorReader(table) as reader:
        return reader.row_numbers(vector)


def _stored(file: IO[bytes], name: str, vector: Mapping[str, Any]) -> bytes:
    """The bytes of a vector in a file, checked against the checksum that follows them."""
    try:
        file.seek(vector.get("offset") or 1)
        (size,) = struct.unpack(">i", file.read(4))
        if size != vector["sizeInBytes"]:
            raise ValueError(f"{name} does not hold this vector")
        data = file.read(size)
        (checksum,) = struct.unpack(">I", file.read(4))
    except struct.error as error:
        raise ValueError(f"{name} ends too early") from error
    if zlib.crc32(data) != checksum:
        raise ValueError(f"{name} holds a damaged vector")
    return data


def _check_count(what: str, found: int, vector: Mapping[str, Any]) -> None:
    if found != vector["cardinality"]:
        raise ValueError(f"{what} deletes {found} rows, but the log says {vector['cardinality']}")


def _from_z85(text: str) -> bytes:
    return base64.b85decode(text.translate(str.maketrans(_Z85, _B85)))


def write_vectors(table: str | Place, bitmaps: Sequence[BitMap64], version: int | None = None) -> list[dict[str, Any]]:
    """Writes bitmaps to one new file in the table's folder. Returns a descriptor of each, for an `add` action.

    `version`: of the table, the only one that may name the file; None: any (`data_files.py`).
    """
    encoded = base64.b85encode(attempt_id(version).bytes).decode().translate(str.maketrans(_B85, _Z85))
    vectors, content = [], bytearray(_VERSION)
    for rows in bitmaps:
        rows.run_optimize()
        data = _MAGIC + rows.serialize()
        vectors.append({
            "storageType": "u", "pathOrInlineDv": encoded, "offset": len(content),
            "sizeInBytes": len(data), "cardinality": len(rows),
        })  # fmt: skip
        content += struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    path = place(table) / vector_path(encoded)
    try:
        path.write_bytes(content)
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        raise
    return vectors


def delete_rows(
    table: str | Place, files: Mapping[str, Action], rows: Mapping[str, pa.Array], version: int | None = None
) -> list[Action]:
    """The actions that delete rows of data files. Writes all new deletion vectors into one file.

    `files`: `add` actions by any name. `rows`: row numbers within the file from 0 (int64 without NULLs), by the same
    names; rows that are already deleted are allowed. A file that loses no further row gets no action. The statistics
    keep every character, except that `tightBounds` becomes false. `version`: as for `write_vectors`.

    Errors: ValueError if an old vector cannot be read, a file does not state its number of rows, or a row number is
    too large; OSError if the vectors cannot be written.
    """
    changed = []
    with VectorReader(table) as vectors_of_table:
        for name, numbers in rows.items():
            add = files[name]
            gone = bitmap(numbers)
            old = add.get("deletionVector")
            if old:
                gone |= vectors_of_table.read(old)
            if len(gone) <= (old["cardinality"] if old else 0):
                continue
            count = record_count(add)
            if count is None:
                raise ValueError(f"the log does not say how many rows {add['path']} has")
            if gone.max() >= count:
                raise ValueError(f"row {gone.max()} of {add['path']} does not exist: the file has {count} rows")
            changed.append((add, gone, count))
    left = [gone for _, gone, count in changed if len(gone) < count]
    vectors = iter(write_vectors(table, left, version) if left else ())
    now = int(time.time() * 1000)
    actions: list[Action] = []
    for add, gone, count in changed:
        actions.append({"remove": removed(add, now, data_change=True)})
        if len(gone) < count:
            stats = with_loose_bounds(add["stats"])
            actions.append({"add": {**add, "dataChange": True, "stats": stats, "deletionVector": next(vectors)}})
    return actions


def remove_files(adds: Iterable[Action], now: int) -> list[Action]:
    """The `remove` actions that delete data files with all their rows. `now`: milliseconds since the epoch."""
    return [{"remove": removed(add, now, data_change=True)} for add in adds]
