"""Many small pieces of one local file, read without a call for each.

Pieces that are close together are taken from a mapping of the file, far apart ones from calls of `pread`. A mapping is
used only where Linux can be asked to have its pages there before they are touched (`MADV_POPULATE_READ`, since 5.14):
a failing disk then gives an error, where touching a page that cannot be read would end the process. A file that another
program truncates in place at that moment still does (SIGBUS): lakemirror replaces its own files by renames.
"""

from __future__ import annotations

import mmap
import os
import sys
from itertools import repeat
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Numbers: TypeAlias = npt.NDArray[np.int64]

_GAP = 1 << 10  # bytes between two pieces that are read rather than left out: few, for they take memory
_A_PIECE = 64 << 10  # so many bytes are mapped in the time of one call of `pread`
_POPULATE_READ = 22


class TooShort(Exception):
    """The file ends before a piece does."""


def read_pieces(file: int, begins: Numbers, sizes: Numbers | int) -> tuple[npt.NDArray[np.uint8], Numbers]:
    """The bytes of these ranges of a file (ascending, apart), and where each begins. Errors: TooShort, OSError.

    The distance of two pieces from each other is kept, or shortened by whole gaps.
    """
    ends = begins + sizes
    mapped = _mapped(file, begins, ends) if len(begins) else None
    if mapped is not None:
        return mapped
    cuts = np.flatnonzero(begins[1:] - ends[:-1] > _GAP) + 1
    firsts, lasts = np.append(begins[:1], begins[cuts]), np.append(ends[cuts - 1], ends[-1:])
    lengths = lasts - firsts
    places = np.cumsum(lengths) - lengths
    pieces = map(os.pread, repeat(file), lengths.tolist(), firsts.tolist())
    data = np.frombuffer(b"".join(pieces), np.uint8)  # one `preadv` for each piece takes two times as long
    if len(data) != lengths.sum():
        raise TooShort
    runs = np.zeros(len(begins), np.int64)
    runs[cuts] = 1
    runs = np.cumsum(runs)
    return data, begins - firsts[runs] + places[runs]


def _mapped(file: int, begins: Numbers, ends: Numbers) -> tuple[npt.NDArray[np.uint8], Numbers] | None:
    """The same from a mapping; None if the pieces are too far apart, or not all pages can be had."""
    first, last = int(begins[0]), int(ends[-1])
    if last - first > len(begins) * _A_PIECE or sys.platform != "linux":
        return None
    page = first - first % mmap.ALLOCATIONGRANULARITY
    try:
        pages = mmap.mmap(file, last - page, prot=mmap.PROT_READ, offset=page)
        pages.madvise(_POPULATE_READ)
    except (OSError, ValueError):  # `pread` works where this does not, or says what is wrong
        return None
    data: Any = np.frombuffer(pages, np.uint8)
    return data[first - page :], begins - first
