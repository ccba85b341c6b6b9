"""What is staged of one database, in the store too: another machine goes on with the uploads of one that is gone.

    create ─▶ up-<id>/journal   append ─▶ up-<id>/part-<order><position>   block ─▶ blocks/<path>/<order>/<id>

Each is there before the answer. Published or given up, they are deleted before the answer, too, and nothing that comes
later to the same path: it is in another folder. Without a place in a store nothing is done here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

from lakemirror.service.storage.uploads import BLOCK, BLOCKS, DATA, JOURNAL, UPLOAD, Part, Upload, forget_staged
from lakemirror.storage import Place
from lakemirror.storage.durable import put_over, put_table
from lakemirror.storage.place import files_below, storage_of
from lakemirror.storage.served_files import now_ns

_PART = re.compile("part-([0-9a-f]{16})([0-9a-f]{16})")
_BLOCK = re.compile(f"blocks/({BLOCKS.pattern})/([0-9a-f]{{16}})/({BLOCK.pattern})")
_COPY = re.compile(f"{UPLOAD.pattern}/({JOURNAL}|{_PART.pattern})|{_BLOCK.pattern}")
_PIECE = 4 << 20


class StagedCopies:
    """The copies of one staging folder. Safe for threads. Errors: LakemirrorError; then the request is not answered."""

    def __init__(self, place: Place | None, staging: Path) -> None:
        self._place, self._staging = place, staging
        self._doomed: deque[str] = deque()
        self._of_blocks: dict[str, list[str]] = {}  # the folders with the copies of a path's blocks; the last one grows
        self._ordered = threading.Lock()
        self._last = 0  # order: what comes later has a larger one, whatever the clocks of machines say

    def keep(self, upload: Upload, part: Part | None = None) -> None:
        """Puts what another machine needs to go on with an upload: that it is there, and a part that is written."""
        if self._place is None:
            return
        folder = upload.folder
        with suppress(FileNotFoundError):  # discarded meanwhile
            if not upload.is_copied:
                with (folder / JOURNAL).open("rb") as journal:
                    put_over(self._place / folder.name / JOURNAL, journal.readline(), durable=True)
                upload.is_copied = True
            if part is not None and part.length:
                name = f"{folder.name}/part-{self._next_order():016x}{part.position:016x}"
                self._put(name, folder / part.file, part.position if part.file == DATA else 0, part.length)

    def folder_for_block(self, folder: Path) -> str:
        """The folder for the copy of a block that comes to this folder. Call it under the lock of `forget`."""
        if self._place is None:
            return ""
        names = self._of_blocks.setdefault(folder.name, [])
        if not names:
            names.append(f"blocks/{folder.name}/{self._next_order():016x}")
        return names[-1]

    def keep_block(self, block: Path, folder: str) -> None:
        """Puts a block into a folder of copies."""
        if self._place is not None:
            with suppress(FileNotFoundError):  # dropped meanwhile
                self._put(f"{folder}/{block.name}", block, 0, block.stat().st_size)

    def forget(self, folder: Path) -> None:
        """Has the copies of an upload, or of a path's blocks, deleted by the next `settle`. Sends no request."""
        if self._place is not None:
            name = str(folder.relative_to(self._staging))
            self._doomed += self._of_blocks.pop(folder.name, []) if name.startswith("blocks/") else [name]

    def settle(self) -> None:
        """Deletes what is to be forgotten. Call it without a lock, before the answer."""
        while self._doomed:
            with suppress(IndexError):  # another thread has it
                name = self._doomed.popleft()
                try:
                    storage_of(self._place or self._staging).delete(name)
                except BaseException:
                    self._doomed.append(name)
                    raise

    def restore(self) -> None:
        """Makes the staging folder what the copies are. Call it before anything is staged."""
        if self._place is None:
            return
        forget_staged(self._staging)
        parts: dict[Path, list[Part]] = {}
        for path in sorted(path for path, _ in files_below(self._place, lambda _: True) if _COPY.fullmatch(path)):
            target = self._staging / path
            if block := _BLOCK.fullmatch(path):
                target = self._staging / "blocks" / block[1] / block[3]
                self._last = max(self._last, int(block[2], 16))
                if (name := path.rpartition("/")[0]) not in self._of_blocks.setdefault(block[1], []):
                    self._of_blocks[block[1]].append(name)
            target.parent.mkdir(parents=True, exist_ok=True)
            with (self._place / path).open("rb") as source, target.open("wb") as file:
                shutil.copyfileobj(source, file, _PIECE)
                length = file.tell()
            if found := _PART.fullmatch(target.name):
                self._last = max(self._last, int(found[1], 16))
                parts.setdefault(target.parent, []).append(Part(int(found[2], 16), length, target.name))
            elif target.name == JOURNAL:
                parts.setdefault(target.parent, [])
        for folder, those in parts.items():
            with suppress(FileNotFoundError):  # parts that came behind the end of their upload
                _write_journal(folder, sorted(those, key=lambda part: part.file))

    def remove_old(self, before: float) -> None:
        """Deletes the copies of uploads and blocks to which nothing has come since a time (Unix seconds)."""
        if self._place is None:
            return
        newest: dict[str, float] = {}
        for path, modified in files_below(self._place, lambda _: True):
            if _COPY.fullmatch(path):
                folder = path.rpartition("/")[0]
                newest[folder] = max(modified, newest.get(folder, 0.0))
        for folder, modified in newest.items():
            if modified < before:
                storage_of(self._place).delete(folder)

    def _next_order(self) -> int:
        with self._ordered:
            self._last = max(self._last + 1, now_ns())
            return self._last

    def _put(self, name: str, source: Path, offset: int, length: int) -> None:
        assert self._place is not None

        def write(sink: Any) -> None:
            at = offset
            while at < offset + length:
                data = os.pread(file.fileno(), min(_PIECE, offset + length - at), at)
                if not data:
                    raise EOFError(f"{source} ends at byte {at}")
                at += sink.write(data)

        with source.open("rb") as file:
            put_table(self._place / name, write, durable=True)


def _write_journal(folder: Path, parts: list[Part]) -> None:
    """Of what is there the first line alone counts: what came after it is said by the parts."""
    with (folder / JOURNAL).open(encoding="utf-8") as journal:
        first = journal.readline()
    lines = [json.dumps([part.position, part.length, part.file]) + "\n" for part in parts]
    (folder / DATA).touch()
    (folder / JOURNAL).write_text("".join([first, *lines]), encoding="utf-8")
