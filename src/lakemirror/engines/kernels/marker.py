"""Reads the row markers of decoded rows as numbers (contract section 3)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.engines.kernels.json_text import plain
from lakemirror.landing_zone.row_markers import DELETE, INSERT, UPDATE, UPSERT, marker_number

_KNOWN = (INSERT, UPDATE, DELETE, UPSERT)
_NO_MARKER = 3  # the only number from 0 to 4 that is not a marker
_SHOWN = 100  # characters of a wrong marker in a message


def read_markers(
    values: pa.Array | None, rows: int, default: int
) -> tuple[npt.NDArray[np.int8], tuple[int, str] | None]:
    """The marker of each row as int8, and the position and value of the first invalid one (None: all are valid).

    `values`: integers, strings or NULLs, also dictionary-encoded; None for a file without markers. NULL means
    `default`. Ignore the markers after an invalid one.
    """
    if values is None or pa.types.is_null(values.type):
        return np.full(rows, default, np.int8), None
    marker = _known_numbers(values)
    if marker is not None:
        return marker, None
    encoded = plain(values).dictionary_encode()
    known = encoded.dictionary.to_pylist()
    numbers = [_number(value) for value in known]
    if not known:
        return np.full(rows, default, np.int8), None
    places = np.asarray(pc.fill_null(encoded.indices, len(known)))
    marker = np.array([-1 if each is None else each for each in numbers] + [default], np.int8)[places]
    wrong = np.flatnonzero(marker < 0)
    if not len(wrong):
        return marker, None
    first = int(wrong[0])
    return marker, (first, _shown(known[int(places[first])]))


def _known_numbers(values: pa.Array) -> npt.NDArray[np.int8] | None:
    """The markers, if all values are valid integers, which is the common and fast case; else None."""
    if not pa.types.is_integer(values.type) or values.null_count or not len(values):
        return None
    numbers = np.asarray(values)
    if numbers.min() < min(_KNOWN):
        return None
    highest = numbers.max()
    if highest > max(_KNOWN) or (highest >= _NO_MARKER and (numbers == _NO_MARKER).any()):
        return None
    return numbers.astype(np.int8)


def _number(value: object) -> int | None:
    """The marker of a value; None if it is not a marker."""
    if isinstance(value, str):
        value = marker_number(value)
    return value if isinstance(value, int) and value in _KNOWN else None


def _shown(value: object) -> str:
    """An invalid marker for a message: printable and short."""
    text = str(value).strip(" ")
    return "".join(char if " " <= char <= "~" and char not in "<>" else "?" for char in text)[:_SHOWN]
