"""Many pieces of a file: the same bytes from a mapping and from calls, and an error where the file is too short."""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lakemirror.storage import many_pieces
from lakemirror.storage.many_pieces import TooShort, read_pieces

SIZE = 3 << 20
CONTENT = np.random.default_rng(5).integers(0, 256, SIZE, dtype=np.uint8)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "pieces"
    CONTENT.tofile(path)
    handle = os.open(path, os.O_RDWR)
    yield handle
    os.close(handle)


def pieces_of(file: int, begins: np.ndarray, sizes: np.ndarray) -> list[bytes]:
    data, at = read_pieces(file, begins, sizes)
    return [data[place : place + size].tobytes() for place, size in zip(at.tolist(), sizes.tolist(), strict=True)]


@pytest.mark.parametrize("count", [0, 1, 2, 30, 3_000])
@pytest.mark.parametrize("is_mapped", [True, False])
def test_each_piece_is_what_the_file_has_there(
    count: int, is_mapped: bool, file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_mapped:
        monkeypatch.setattr(many_pieces, "_A_PIECE", 0)
    rng = np.random.default_rng(count)
    begins = np.sort(rng.choice(SIZE // 64 - 1, count, replace=False)) * 64 + 7
    sizes = rng.integers(0, 64, count)
    assert pieces_of(file, begins, sizes) == [
        CONTENT[begin : begin + size].tobytes() for begin, size in zip(begins, sizes, strict=True)
    ]


def test_pieces_far_apart_are_not_mapped(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_pieces.mmap, "mmap", None)
    begins = np.array([0, SIZE - 8])
    assert pieces_of(file, begins, np.array([8, 8])) == [CONTENT[:8].tobytes(), CONTENT[-8:].tobytes()]


@pytest.mark.parametrize("is_mapped", [True, False])
def test_a_file_that_ends_too_early_is_an_error(is_mapped: bool, file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_mapped:
        monkeypatch.setattr(many_pieces, "_A_PIECE", 0)
    with pytest.raises(TooShort):
        read_pieces(file, np.array([SIZE - 100, SIZE - 4]), 8)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux is asked for a mapping")
def test_pages_that_go_while_they_are_mapped_do_not_end_the_process(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    mapped = mmap.mmap

    def shortened(*args: Any, **options: Any) -> mmap.mmap:
        pages = mapped(*args, **options)
        os.ftruncate(file, 4096)
        return pages

    monkeypatch.setattr(many_pieces.mmap, "mmap", shortened)
    with pytest.raises(TooShort):
        read_pieces(file, np.arange(0, SIZE, 4096), 8)


def test_a_system_that_cannot_have_pages_there_reads_them(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_pieces, "_POPULATE_READ", 9_999)
    begins = np.arange(0, SIZE, 4096)
    assert pieces_of(file, begins, np.full(len(begins), 8)) == [CONTENT[at : at + 8].tobytes() for at in begins]
