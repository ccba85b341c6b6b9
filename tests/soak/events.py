"""Warnings that are expected at the end of a soak: those about an event stay, whatever pass follows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from tests.landing import folder

from lakemirror import MirroredDatabase
from lakemirror.mirror.table_log import read_table_log

_PASSES = 3


def lost_events(database: Path, names: Iterable[str], sync: Callable[[], int]) -> list[str]:
    """Takes the marker from every table folder that it is known without; then which warnings a pass does not show."""
    marked = [name for name in names if _is_known(database, name)]
    for name in marked:
        (folder(database, name) / "_mirror.json").unlink()
    lost = []
    for number in range(_PASSES):
        sync()
        shown = {table.name: table.warnings for table in MirroredDatabase(database).status().tables}
        for name in marked:
            if "marker-lost" not in {warned.code for warned in shown.get(name, ())}:
                lost.append(f"{name}: marker-lost is not shown after {number + 1} passes")
    return lost


def _is_known(database: Path, name: str) -> bool:
    """True if the last applied file is in the table folder: without its marker it is still the same folder."""
    place = folder(database, name)
    log = read_table_log(str(database / "Tables" / name.replace(".", "/")))
    newest = log.manifest.file if log is not None and log.manifest is not None else ""
    return bool(newest) and (place / newest).exists() and (place / "_mirror.json").exists()
