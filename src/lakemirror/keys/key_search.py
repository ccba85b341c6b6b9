"""Finds keys in the open index files of many data files, with few calls for each file.

    keys ─▶ filter of each file ─▶ entries that may be theirs ─▶ all entries of all files compared at once

An entry holds the key, without the bits that its bucket says, and the row number (`key_format`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from lakemirror.keys.key_file import KeyFile, KeysOfLayout, Replaced
from lakemirror.keys.key_format import Damaged
from lakemirror.keys.key_layout import KeyLayout

Unusable: TypeAlias = Damaged | Replaced | OSError
"""Why an index file cannot be used."""


def rows_in(
    files: Iterable[KeyFile | None], wanted: Callable[[KeyLayout], KeysOfLayout]
) -> list[np.ndarray | Unusable | None]:
    """For each index file the row numbers (int64, ascending) of the rows with a wanted key, or why it cannot be used.

    None for None. `wanted` gives the keys in a layout. If a file's layout is not exact, its rows may also have other
    keys. No file is needed any more once the next one is asked for.
    """
    result: list[np.ndarray | Unusable | None] = []
    most: list[int] = []  # rows of each file
    near: dict[int, list[_Near]] = defaultdict(list)  # by the words of a key
    for index, file in enumerate(files):
        result.append(None)
        most.append(0 if file is None else file.rows)
        if file is None:
            continue
        result[index] = np.zeros(0, np.int64)
        keys = file.passing(wanted(file.layout))
        if len(keys):
            try:
                which, entries = file.entries(keys)
            except (Damaged, Replaced, OSError) as error:
                result[index] = error
            else:
                near[keys.shape[1]].append(_Near(index, file.shift, keys[which], entries))
    found = np.concatenate([np.zeros((0, 2), np.int64), *(_compared(each) for each in near.values())])
    for index, rows in enumerate(_by_file(found, len(result))):
        if len(rows):
            result[index] = rows if rows[-1] < most[index] else Damaged("a row number is out of bounds")
    return result


class _Near(NamedTuple):
    """Entries of one file, and for each of them the key that it may be the entry of. `shift`: as `KeyFile.shift`."""

    place: int
    shift: np.uint64
    keys: np.ndarray
    entries: list[bytes]


def _compared(near: Sequence[_Near]) -> np.ndarray:
    """The place of the file and the row number of each entry that is that of its key (int64, one row each)."""
    keys = np.concatenate([each.keys for each in near])
    counts = [len(each.keys) for each in near]
    entries = np.frombuffer(b"".join(entry for each in near for entry in each.entries), np.uint8)
    entries = entries.reshape(len(keys), 8 * keys.shape[1] + 1)
    shifts = np.repeat(np.array([each.shift for each in near], np.uint64), counts)
    places = np.repeat(np.array([each.place for each in near], np.int64), counts)
    first = np.ascontiguousarray(entries[:, :8]).view(np.uint64)[:, 0]
    others = np.ascontiguousarray(entries[:, 8:-1]).view(np.uint64).reshape(len(keys), keys.shape[1] - 1)
    stored = (np.uint64(1) << shifts) - np.uint64(1)  # the bits of a first word that an entry stores
    fits = ((first ^ keys[:, 0]) & stored == 0) & (others == keys[:, 1:]).all(axis=1)
    rows = ((first >> shifts) << np.uint64(8)) | entries[:, -1]
    return np.stack([places[fits], rows[fits].astype(np.int64)], axis=1)


def _by_file(found: np.ndarray, files: int) -> list[np.ndarray]:
    """The row numbers (int64, ascending, each once) of each file."""
    found = found[np.lexsort((found[:, 1], found[:, 0]))]
    first = np.ones(len(found), bool)
    np.any(found[1:] != found[:-1], axis=1, out=first[1:])
    found = found[first]
    ends = np.searchsorted(found[:, 0], np.arange(files), "right").tolist()
    rows = np.ascontiguousarray(found[:, 1])
    return [rows[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
