"""Bytes of an object that is read piece by piece: what is held, what is copied, what is asked for again."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pytest

from lakemirror.storage.object_cache import ObjectCache
from lakemirror.storage.object_file import ObjectFile
from lakemirror.storage.object_store import ObjectStore
from lakemirror.storage.place import read_pieces
from lakemirror.storage.storage import Entry

_MIB = 1 << 20
DATA = np.random.default_rng(1).bytes(40 * _MIB)
END = len(DATA) - (256 << 10)  # the last bytes are read first


class Memory:
    """A bucket with one object, which notes the ranges it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.cache = ObjectCache("s3://lake")

    def view(self, key: str, begin: int, size: int, tag: str = "") -> memoryview:
        self.asked.append((begin, size))
        return memoryview(DATA)[begin : begin + size]

    def range(self, key: str, begin: int, size: int, tag: str = "") -> bytes:
        return bytes(self.view(key, begin, size, tag))

    def uri(self, key: str) -> str:
        return key


def opened() -> tuple[ObjectFile, Memory]:
    memory = Memory()
    file = ObjectFile(cast(ObjectStore, memory), "shop/part.parquet", Entry("shop/part.parquet", len(DATA), 0, "tag"))
    memory.asked.clear()
    return file, memory


def test_small_pieces_are_one_request_and_large_ones_are_requests_of_their_own() -> None:
    file, memory = opened()
    file.hold([(4, _MIB), (_MIB, 3 * _MIB), (3 * _MIB, 20 * _MIB), (20 * _MIB, 21 * _MIB)])
    assert sorted(memory.asked) == [(4, 3 * _MIB - 4), (3 * _MIB, 17 * _MIB), (20 * _MIB, _MIB)]
    memory.asked.clear()
    for begin, size in ((4, 100), (3 * _MIB - 50, 100), (3 * _MIB, 17 * _MIB), (2 * _MIB, 19 * _MIB)):
        file.seek(begin)
        assert file.read(size) == DATA[begin : begin + size]
    assert memory.asked == []


@pytest.mark.parametrize(
    "pieces", [[(END - 100, len(DATA) - 8)], [(END - 100, END), (END, END + 50)], [(END, END + 9)]]
)
def test_a_piece_may_reach_into_the_end_that_is_there_already(pieces: Sequence[tuple[int, int]]) -> None:
    file, memory = opened()
    file.hold(pieces)
    assert sum(size for _, size in memory.asked) == max(0, END - pieces[0][0])
    memory.asked.clear()
    for begin, end in pieces:
        file.seek(begin)
        assert bytes(file.read_buffer(end - begin)) == DATA[begin:end]
    assert memory.asked == []


def test_pyarrow_reads_a_held_piece_without_a_copy() -> None:
    file, _ = opened()
    file.hold([(0, 2 * _MIB)])
    file.seek(10)
    assert isinstance(file.read_buffer(_MIB), memoryview)
    assert file.tell() == 10 + _MIB
    arrow = pa.PythonFile(file, mode="r")
    assert arrow.read_at(_MIB, 5) == DATA[5 : 5 + _MIB]
    assert arrow.read_at(3 * _MIB, len(DATA) - _MIB) == DATA[-_MIB:]  # beyond the end: what there is


@pytest.mark.parametrize("pieces", [[(-1, 5)], [(9, 5)], [(0, 70 * _MIB), (70 * _MIB, 90 * _MIB)]])
def test_pieces_that_a_false_footer_names_are_not_held(pieces: Sequence[tuple[int, int]]) -> None:
    """Then each read asks for its bytes, and what the object lacks is an error of the reader."""
    file, memory = opened()
    file.hold(pieces)
    assert all(begin >= 0 and size > 0 and begin + size <= len(DATA) for begin, size in memory.asked)
    file.seek(3)
    assert file.read(10) == DATA[3:13]


def test_pieces_are_one_request_each(monkeypatch: pytest.MonkeyPatch) -> None:
    file, memory = opened()
    monkeypatch.setattr(sys.modules[read_pieces.__module__], "opened", lambda *_, **__: file)
    pieces = [(4, 900), (_MIB, 3 * _MIB), (END - 10, END + 20)]
    into = bytearray(sum(end - begin for begin, end in pieces))
    read_pieces("s3://lake/shop/part.parquet", pieces, memoryview(into))
    assert bytes(into) == b"".join(DATA[begin:end] for begin, end in pieces)
    assert sorted(memory.asked) == [(4, 896), (_MIB, 2 * _MIB), (END - 10, 10)]


def test_pieces_of_a_file_that_is_shorter_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    into = bytearray(4)
    read_pieces(tmp_path / "a", [(0, 2), (3, 5)], memoryview(into))
    assert bytes(into) == b"1245"
    with pytest.raises(ValueError, match="ends at byte 5"):
        read_pieces(tmp_path / "a", [(3, 7)], memoryview(into))
