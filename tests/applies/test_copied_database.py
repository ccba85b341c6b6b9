"""A database that was copied with its landing zone: files have new times, and that is nothing to report."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.landing import MARKER, declare, folder, put

from lakemirror import MirroredDatabase


def warnings(database: Path) -> list[str]:
    """The codes of the table's warnings after a sync, which must not fail."""
    mirror = MirroredDatabase(database, maintenance=False, engine="local")
    assert not mirror.sync().failed
    (table,) = mirror.status().tables
    return [warned.code for warned in table.warnings]


def rewrite(path: Path, more: bytes = b"") -> None:
    """The file is published again: the same bytes, or more of them, later."""
    path.write_bytes(path.read_bytes() + more)
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 1_000_000))


def change(value: str) -> dict[str, Any]:
    return {"id": [1], "v": [value], MARKER: pa.array([4], pa.int32())}


def test_a_copy_goes_on_quietly_and_sees_what_is_published_again(tmp_path: Path) -> None:
    shop, copy = tmp_path / "shop", tmp_path / "copy"
    declare(shop, "t", ["id"])
    for number in (1, 2):
        put(shop, "t", number, change(str(number)))
    assert warnings(shop) == []
    shutil.copytree(shop, copy, copy_function=shutil.copyfile)
    assert warnings(copy) == [], "no file was published again"
    rewrite(folder(copy, "t") / f"{2:020}.parquet", b"more")
    assert warnings(copy) == ["already-applied"], "another size is another file"
    put(copy, "t", 3, change("3"))
    assert warnings(copy) == ["already-applied"], "an event: it stays for a day"
    rewrite(folder(copy, "t") / f"{3:020}.parquet")
    assert warnings(copy) == ["already-applied"] * 2, "after an apply, the times are the copy's own"
    rewrite(folder(shop, "t") / f"{2:020}.parquet")
    assert warnings(shop) == ["already-applied"]
