"""The net effect of changes (contract section 3), from their keys, markers and positions.

For each key, only the last change that is not an insert counts, and the inserts after it:

    keys, markers ─▶ fold_places ─▶ deletes: one change of each key whose rows in the table are deleted
                                └──▶ kept: the changes whose rows are inserted
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from lakemirror.keys.key_values import comparable, key_codes
from lakemirror.landing_zone.row_markers import DELETE, INSERT


class Places(NamedTuple):
    """A net effect as positions in the changes (int64, from 0).

    `deletes`: one position for each deleted key. `kept`: positions of the inserted rows, ascending. `firsts`: of
    `kept`, the first one of each key that is also deleted; the change data feed shows it as an update.
    """

    deletes: np.ndarray
    kept: np.ndarray
    firsts: np.ndarray


def fold_places(keys: pa.Table, markers: np.ndarray, *, with_firsts: bool = False) -> Places:
    """The net effect as positions. `markers`: one for each row of `keys`. `firsts` is empty unless `with_firsts`."""
    is_change = markers != INSERT
    if not is_change.any():
        none = np.zeros(0, np.int64)
        return Places(none, np.arange(len(markers)), none)
    codes = key_codes(comparable(keys))
    of_key = last_changes(codes, is_change)
    places = np.arange(len(markers), dtype=of_key.dtype)
    kept = np.flatnonzero((places >= of_key) & (markers != DELETE))
    firsts = kept[:0]
    if with_firsts:
        replaced = kept[of_key[kept] >= 0]
        firsts = np.sort(replaced[np.unique(codes[replaced], return_index=True)[1]])
    return Places(np.flatnonzero(of_key == places), kept, firsts)


def last_changes(codes: np.ndarray, is_change: np.ndarray) -> np.ndarray:
    """For each position the last one of its key that is not an insert; -1 if the key has only inserts. `codes`: of the
    keys."""
    places = np.arange(len(codes), dtype=np.int32 if len(codes) < 1 << 31 else np.int64)
    last = np.empty(int(codes.max(initial=-1)) + 1, places.dtype)
    if is_change.all():
        last[codes] = places  # of several places of one key the last one stays
    else:
        last[codes] = -1
        last[codes[is_change]] = places[is_change]
    of_key: np.ndarray = last[codes]
    return of_key
