"""The net effect of changes (contract section 3), from their keys, markers and positions.

For each key, only the last change that is not an insert counts, and the inserts after it:

    keys + FILE, ROW, MARKER ─▶ fold ─▶ deletes: keys whose rows in the table are deleted
                                   └──▶ kept: the positions of the rows that are inserted
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from lakemirror.engines.row_work import FILE, MARKER, ROW
from lakemirror.keys.key_values import comparable, key_bucket, key_codes, whole_numbers
from lakemirror.landing_zone.row_markers import DELETE, INSERT


class Folded(NamedTuple):
    """A net effect. `deletes`: distinct keys, in the types of the input. `kept`: FILE and ROW of the inserted rows, in
    the order of the changes.
    """

    deletes: pa.Table
    kept: pa.Table


class Places(NamedTuple):
    """A net effect as positions in the changes (int64, from 0).

    `deletes`: one position for each deleted key. `kept`: positions of the inserted rows, ascending. `firsts`: of
    `kept`, the first one of each key that is also deleted; the change data feed shows it as an update.
    """

    deletes: np.ndarray
    kept: np.ndarray
    firsts: np.ndarray


def fold(changes: pa.Table) -> Folded:
    """The net effect of changes in order. Columns: the keys, then FILE, ROW, MARKER (0, 1, 2 or 4, never NULL).

    `changes` must hold all changes of each key. Different keys may be folded separately (`key_bucket`).
    """
    names = [name for name in changes.column_names if name not in (FILE, ROW, MARKER)]
    keys = changes.select(names)
    places = fold_places(keys, np.asarray(changes[MARKER].combine_chunks()))
    kept = changes.select([FILE, ROW]).take(whole_numbers(places.kept))
    return Folded(keys.take(whole_numbers(places.deletes)), kept)


def fold_places(keys: pa.Table, markers: np.ndarray, *, with_firsts: bool = False) -> Places:
    """The net effect as positions. `markers`: one for each row of `keys`. `firsts` is empty unless `with_firsts`."""
    is_change = markers != INSERT
    if not is_change.any():
        none = np.zeros(0, np.int64)
        return Places(none, np.arange(len(markers)), none)
    codes = key_codes(comparable(keys))
    places = np.arange(len(markers), dtype=np.int32 if len(markers) < 1 << 31 else np.int64)
    last = np.empty(
        int(codes.max()) + 1, places.dtype
    )  # each key's last change that is not an insert; -1: only inserts
    if is_change.all():
        last[codes] = places  # of several places of one key the last one stays
    else:
        last[codes] = -1
        last[codes[is_change]] = places[is_change]
    of_key = last[codes]
    kept = np.flatnonzero((places >= of_key) & (markers != DELETE))
    firsts = kept[:0]
    if with_firsts:
        replaced = kept[of_key[kept] >= 0]
        firsts = np.sort(replaced[np.unique(codes[replaced], return_index=True)[1]])
    return Places(np.flatnonzero(of_key == places), kept, firsts)


__all__ = ["Folded", "Places", "fold", "fold_places", "key_bucket"]
