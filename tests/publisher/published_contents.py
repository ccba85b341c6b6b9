"""What a table folder holds, read as the contract says (sections 3 and 4), and what its changes fold to."""

from __future__ import annotations

import math
import re
import uuid
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

MARKER = "__rowMarker__"
NAME = re.compile(r"^\d{20}\.parquet$")


def change_files(folder: Path) -> dict[int, Path]:
    """Change files by number, also those that rest in `_ProcessedFiles`; no number may appear twice."""
    found: dict[int, Path] = {}
    for place in (folder, folder / "_ProcessedFiles"):
        if place.is_dir():
            for path in place.iterdir():
                if NAME.match(path.name):
                    assert int(path.stem) not in found, path
                    found[int(path.stem)] = path
    return dict(sorted(found.items()))


def others(folder: Path) -> set[str]:
    """Names of files that the engine looks at although they are no change files: there must be none."""
    return {path.name for path in folder.iterdir() if not NAME.match(path.name) and not path.name.startswith("_")}


def changes(folder: Path) -> list[tuple[int | None, dict[str, Any]]]:
    """Row markers (None without a marker column) and rows, in order of application. Numbers must be contiguous."""
    files = change_files(folder)
    assert list(files) == list(range(1, len(files) + 1))
    listed = []
    for path in files.values():
        for row in pq.read_table(path, partitioning=None).to_pylist():
            marker = row.pop(MARKER, None)
            listed.append((marker, row))
    return listed


def fold(listed: list[tuple[int | None, dict[str, Any]]], keys: list[str]) -> list[dict[str, Any]]:
    """The rows of the table after all changes (contract section 3), in no particular order."""
    rows: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for marker, row in listed:
        key = tuple(comparable(row.get(name)) for name in keys)
        if marker in (None, 0):
            rows.setdefault(key, []).append(row)
        elif marker in (1, 4):
            rows[key] = [row]
        elif marker == 2:
            rows.pop(key, None)
        else:
            raise AssertionError(marker)
    return [row for found in rows.values() for row in found]


def comparable(value: Any) -> Any:
    """NaN equals NaN; -0.0 equals 0.0 in Python already."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def retire(folder: Path, *, keep: int = 1) -> None:
    """Moves applied files aside as the engine does: all but the newest."""
    (folder / "_ProcessedFiles").mkdir(exist_ok=True)
    names = sorted(path for path in folder.iterdir() if NAME.match(path.name))
    for path in names[: len(names) - keep]:
        target = folder / "_ProcessedFiles" / path.name
        while target.exists():  # a number that came again
            target = target.with_name(f"{path.name}.{uuid.uuid4().int}")
        path.rename(target)
