"""Writes the manifest of a cut: the last file of several tables, which are together one consistent picture.

    locks of all tables ─▶ last numbers ─▶ manifest, under the next free number ─▶ locks free: later files

The manifest is complete after all files that it names, and before any later file of these tables.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.cut_manifests import CutManifest, cut_number, manifest_name
from lakemirror.publisher.change_writer import token_of
from lakemirror.publisher.folders.table_folder import TableFolder, write_whole
from lakemirror.publisher.sequence import Sequence


@dataclass(frozen=True)
class PublishedCut:
    """A cut as it was declared: its number, and the number of each table's last file, 0 for none."""

    number: int
    tables: Mapping[str, int]


def write_cut(
    folder: TableFolder, tables: Mapping[str, TableFolder], *, position: str = "", time: str = "", reread: int = 0
) -> PublishedCut:
    """Declares that the files of these tables, up to the last ones now, are one consistent picture.

    `folder`: of the manifests. `tables`: by `schema.table`. `position`, `time`: the source's; the time now if empty.
    `reread`: how many values may be newer. The caller publishes no file that belongs to it later; other publishers of
    ours wait for its end on the same machine. LakemirrorError `storage-unavailable`.
    """
    with contextlib.ExitStack() as held:
        last: dict[str, int] = {}
        tokens: dict[str, str] = {}
        for name, table in sorted(tables.items()):
            try:
                held.enter_context(table.locked())
            except (FileNotFoundError, NotADirectoryError):  # the table has no folder, so that it has no file
                last[name] = 0
                continue
            sequence = Sequence(table)
            last[name] = sequence.newest()
            found = sequence.find(last[name]) if last[name] else None
            if found is not None and (token := token_of(table, found)):
                tokens[name] = token
        now = time or datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        return PublishedCut(_numbered(folder, CutManifest(0, last, position, now, tokens, reread)), last)


def _numbered(folder: TableFolder, manifest: CutManifest) -> int:
    """Writes the manifest under the number after the highest; returns that number."""
    try:
        folder.make()
        with folder.room():
            number = max((cut_number(name) for name in folder.names()), default=0)
            while True:
                number += 1
                content = CutManifest(**{**vars(manifest), "cut": number}).to_json()
                try:
                    write_whole(folder, manifest_name(number), content.encode(), new=True)
                    return number
                except FileExistsError:
                    continue
    except OSError as error:
        raise LakemirrorError("storage-unavailable", f"{folder.path}: {error}") from error
