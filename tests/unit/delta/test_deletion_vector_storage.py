"""Deletion vectors of every storage type (Delta protocol, "Deletion Vectors")."""

from __future__ import annotations

import base64
from pathlib import Path

import pyarrow as pa
import pytest
from pyroaring import BitMap64
from tests.vectors import read_vector

from lakemirror.delta.deletion_vectors import _B85, _MAGIC, _Z85, bitmap, vector_path, write_vectors

ROWS = bitmap(pa.array([3, 4, 7, 11, 18, 29], pa.int64()))


def test_a_vector_beside_the_table_and_one_anywhere(tmp_path: Path) -> None:
    (vector,) = write_vectors(tmp_path, [ROWS.copy()])
    assert read_vector(tmp_path, vector) == ROWS
    path = tmp_path / vector_path(vector["pathOrInlineDv"])
    elsewhere = {**vector, "storageType": "p", "pathOrInlineDv": path.as_uri()}
    assert read_vector("/nowhere", elsewhere) == ROWS
    with pytest.raises(ValueError, match="but the log says 5"):
        read_vector(tmp_path, {**vector, "cardinality": 5})
    with pytest.raises(ValueError, match="storage type"):
        read_vector(tmp_path, {**vector, "storageType": "x"})
    data = bytearray(path.read_bytes())
    data[-6] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="damaged"):
        read_vector(tmp_path, vector)


@pytest.mark.parametrize(
    "rows", [[], [0], [5, 3, 3], [*range(9), 1 << 31], [(1 << 32) - 1], [1 << 32], [2, 1 << 40]], ids=str
)
def test_the_bitmap_of_row_numbers(rows: list[int]) -> None:
    """Of 32 bits or more, in any order, also twice: what the library makes of them one by one."""
    assert bitmap(pa.array(rows, pa.int64())).serialize() == BitMap64(rows).serialize()


def test_a_negative_row_number() -> None:
    with pytest.raises(OverflowError):
        bitmap(pa.array([1, -1], pa.int64()))


def test_a_vector_in_the_log() -> None:
    data = _MAGIC + ROWS.serialize()
    padded = data + bytes(-len(data) % 4)
    text = base64.b85encode(padded).decode().translate(str.maketrans(_B85, _Z85))
    vector = {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(data), "cardinality": len(ROWS)}
    assert read_vector("/nowhere", vector) == ROWS
    with pytest.raises(ValueError, match="does not hold this vector"):
        read_vector("/nowhere", {**vector, "sizeInBytes": len(data) + 9})


def test_a_vector_that_delta_wrote_into_the_log() -> None:
    vector = {
        "storageType": "i", "sizeInBytes": 44, "cardinality": 6,
        "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
    }  # fmt: skip
    assert list(read_vector("/nowhere", vector)) == [3, 4, 7, 11, 18, 29]
