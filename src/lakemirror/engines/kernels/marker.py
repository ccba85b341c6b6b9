"""Row markers of decoded rows as numbers (contract section 3)."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.engines.kernels.json_text import plain
from lakemirror.landing_zone.row_markers import DELETE, INSERT, UPDATE, UPSERT

_KNOWN = (INSERT, UPDATE, DELETE, UPSERT)
_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
_BLANK = "".join(map(chr, range(33)))  # what may stand around a number
_SHOWN = 100  # characters of a wrong marker in a message


def read_markers(
    values: pa.Array | None, rows: int, default: int
) -> tuple[npt.NDArray[np.int8], tuple[int, str] | None]:
    """The marker of each row as int8, and the first one that is none: its place and the value.

    `values`: integers, strings or NULLs, also as dictionary; None for a file without markers. NULL stands for
    `default`. Behind a wrong one the markers mean nothing.
    """
    if values is None or pa.types.is_null(values.type):
        return np.full(rows, default, np.int8), None
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


def _number(value: object) -> int | None:
    """The marker that a value says; None where it says none."""
    if isinstance(value, str):
        text = value.strip(_BLANK)
        value = int(text) if _WHOLE.fullmatch(text) else None
    return value if isinstance(value, int) and value in _KNOWN else None


def _shown(value: object) -> str:
    """A wrong marker for a message: printable, and not long."""
    text = str(value).strip(" ")
    return "".join(char if " " <= char <= "~" and char not in "<>" else "?" for char in text)[:_SHOWN]
