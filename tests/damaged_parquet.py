"""Damaged Parquet files, once: what makes each, where it is noticed, and what is said of it.

`tests/unit` tests each where it is decided, `tests/applies/test_damaged_files.py` that each arrives in all that a user
sees.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from tests import parquet_footer as change

ROWS = pa.table({"id": [1, 2, 3], "l": [[1, 2], None, []], "s": ["a", None, "c"]})
FLAT = pa.table({"id": list(range(40)), "v": [str(number) for number in range(40)]})


def written(rows: pa.Table = ROWS, **options: Any) -> bytes:
    """A file of these rows."""
    buffer = io.BytesIO()
    pq.write_table(rows, buffer, **options)
    return buffer.getvalue()


@dataclass(frozen=True)
class Damage:
    """A damaged file. `seen`: by whom it is noticed; a file that may still be written is damaged when it stays so.

    `says`: a part of the message. `like`: rows of a good file of the same columns.
    """

    data: bytes
    seen: Literal["unfinished", "footer", "pages"]
    says: str
    like: pa.Table
    code: str = "file-unreadable"


_FOOTERS: dict[str, tuple[Callable[[change.Node], Any], str]] = {
    "no rows in all": (lambda f: change.put(f, change.FILE_ROWS, 0), "0 rows, and its row groups say 3"),
    "negative rows": (lambda f: change.put(f, change.FILE_ROWS, -3), "says -3 rows"),
    "more rows": (lambda f: change.put(f, change.FILE_ROWS, 4), "4 rows, and its row groups say 3"),
    "negative group": (lambda f: change.put(change.group(f), change.GROUP_ROWS, -3), "row group 0 says -3 rows"),
    "smaller group": (lambda f: change.put(change.group(f), change.GROUP_ROWS, 2), "says 2 rows, and 3 values of"),
    "fewer values": (lambda f: change.put(change.meta(f), change.VALUES, 2), "3 rows, and 2 values of column 'id'"),
    "fewer values than rows in lists": (lambda f: change.put(change.meta(f, 1), change.VALUES, 2), "and 2 values of"),
    "no rows anywhere": (lambda f: change.with_rows(f, 0), "says 0 rows, and its pages hold 3 values"),
    "no row group": (lambda f: (change.put(f, change.FILE_ROWS, 0), change.put(f, change.GROUPS, (12, []))),
                     "names no row group"),
    "a column less": (lambda f: change.group(f)[change.GROUP_COLUMNS][1][1].pop(), "has 2 columns where the schema"),
    "outside": (lambda f: change.put(change.meta(f), change.DATA_PAGE, 10**9), "is in bytes"),
    "too long": (lambda f: change.put(change.meta(f), change.COMPRESSED, 10**9), "is in bytes"),
    "negative size": (lambda f: change.put(change.meta(f), change.COMPRESSED, -1), "has -1 bytes"),
    "negative place": (lambda f: change.put(change.meta(f), change.DATA_PAGE, -5), "is in bytes"),
    "codec LZO": (lambda f: change.put(change.meta(f), change.CODEC, 3), "codec LZO, which cannot be read"),
    "codec 99": (lambda f: change.put(change.meta(f), change.CODEC, 99), "codec 99, which cannot be read"),
    "encoding 77": (lambda f: change.put(change.meta(f), change.ENCODINGS, (5, [77])), "encoded by 77"),
    "another file": (lambda f: change.chunk(f).update({1: (8, b"../../secret")}), "is in another file"),
    "encrypted column": (lambda f: change.chunk(f).update({8: (12, {1: (12, {})})}), "has column 'id' encrypted"),
    "encrypted": (lambda f: f.update({8: (12, {1: (12, {})})}), "it is encrypted"),
    "other type": (lambda f: change.put(change.meta(f), 1, 1), "in another type than the schema's"),
    "NULLs": (lambda f: change.put(change.meta(f)[change.STATISTICS][1], change.NULLS, -1), "says -1 NULLs"),
    "levels": (lambda f: change.put(change.meta(f), 16, {2: (9, (6, [])), 3: (9, (6, [1]))}), "counts 1 definition"),
    "optional in another type": (lambda f: f[2][1][1][5].update({3: (6, 1)}), "counts 2 definition levels"),
    "length of numbers": (lambda f: change.put(change.meta(f), 16, {1: (6, 5)}), "how long the texts of column 'id'"),
    "short bound": (lambda f: change.put(change.meta(f)[change.STATISTICS][1], 6, b"\1"), "bounds of column 'id'"),
}  # fmt: skip

_PAGES: dict[str, dict[str, Any]] = {
    "": {}, " of version 2": {"data_page_version": "2.0"}, " without dictionaries": {"use_dictionary": False},
}  # fmt: skip


def _damages() -> dict[str, Damage]:
    whole, counted = written(), written(write_statistics=False)
    flat = written(FLAT, compression="none", use_dictionary=False)
    found = {
        name: Damage(change.with_footer(counted if name == "no rows anywhere" else whole, lie), "footer", says, ROWS)
        for name, (lie, says) in _FOOTERS.items()
    }
    found["an encrypted file"] = Damage(whole[:-4] + b"PARE", "footer", "it is encrypted", ROWS)
    begun = {"magic alone": b"PAR1", "no Parquet": b"PAR1 half", "a byte less": whole[:-1], "a part": whole[:100],
             "a footer longer than the file": b"x" * 50 + b"\xff\xff\xff\x7fPAR1"}  # fmt: skip
    found |= {name: Damage(data, "unfinished", "", ROWS) for name, data in begun.items()}
    for rows in (1, 39, 41, 80):
        for kind, options in _PAGES.items():
            data = written(FLAT, write_statistics=False, **options)
            lied = change.with_footer(data, lambda footer, rows=rows: change.with_rows(footer, rows))  # type: ignore[misc]
            found[f"{rows} rows for 40 in pages{kind}"] = Damage(lied, "pages", f"row group 0 has {rows} rows", FLAT)
    found["page headers"] = Damage(flat[:4] + b"\xff" * 36 + flat[40:], "pages", "", FLAT)
    return found


DAMAGES = _damages()
