"""The net effect of changes (contract section 3), from their keys, markers and places alone.

For one key only the last marker other than 0 matters, with the inserts after it:

    keys + FILE, ROW, MARKER ─▶ fold ─▶ deletes: keys whose rows in the table go
                                   └──▶ kept: the places of the rows that come
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakemirror.engines.kernels.key_values import comparable, key_bucket, key_codes, whole_numbers
from lakemirror.engines.row_work import FILE, MARKER, ROW
from lakemirror.landing_zone.row_markers import DELETE, INSERT


@dataclass(frozen=True)
class Folded:
    """A net effect. `deletes`: keys, none twice, in the types they came in. `kept`: FILE and ROW of the rows that are
    inserted, in the order of the changes.
    """

    deletes: pa.Table
    kept: pa.Table


@dataclass(frozen=True)
class Places:
    """A net effect as places in the changes (int64, from 0). `deletes`: one place for each key that is deleted.
    `kept`: places of the rows that are inserted, ascending. `firsts`: of those the first one of each key that is also
    deleted: in the change data feed it is the update of the row that was there.
    """

    deletes: np.ndarray
    kept: np.ndarray
    firsts: np.ndarray


def fold(changes: pa.Table) -> Folded:
    """The net effect of changes in their order. Columns: the keys, then FILE, ROW, MARKER (0, 1, 2 or 4, no NULL).

    All changes of a key must be there. Changes with different keys may be folded apart (`key_bucket`).
    """
    names = [name for name in changes.column_names if name not in (FILE, ROW, MARKER)]
    keys = changes.select(names)
    places = fold_places(keys, np.asarray(changes[MARKER].combine_chunks()))
    kept = changes.select([FILE, ROW]).take(whole_numbers(places.kept))
    return Folded(keys.take(whole_numbers(places.deletes)), kept)


def fold_places(keys: pa.Table, markers: np.ndarray, *, with_firsts: bool = False) -> Places:
    """The same as places. `markers`: one a row of `keys`. `firsts` is empty unless it is asked for."""
    is_change = markers != INSERT
    if not is_change.any():
        none = np.zeros(0, np.int64)
        return Places(none, np.arange(len(markers)), none)
    codes = key_codes(comparable(keys))
    places = np.arange(len(markers), dtype=np.int32 if len(markers) < 1 << 31 else np.int64)
    last = np.empty(int(codes.max()) + 1, places.dtype)  # the place of each key's last change; -1 where it has none
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
