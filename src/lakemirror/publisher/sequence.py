"""The numbers of one table folder: which comes next, and how one file takes it (contract section 4).

A file is written completely under another name and gets its number in one step, which fails where the number is taken.
So nobody ever sees a part of a file, and no number is taken twice. Publishers of ours also hold a lock from counting to
numbering where the folder has one; without it a publisher that was stopped in between for long could take a number that
was meanwhile published, applied and moved away by the engine.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.zone import MARKER, PROCESSED
from lakemirror.publisher.folders.table_folder import TableFolder

RESTING = (PROCESSED, "_FilesReadyToDelete", "_QuarantinedFiles")


class Sequence:
    """The number sequence of one table folder. `extension` without its dot."""

    def __init__(self, folder: TableFolder, extension: str = "parquet") -> None:
        self.folder = folder
        self.extension = extension
        self._pattern = re.compile(rf"^(\d{{20}})\.{re.escape(extension)}$")

    def name(self, number: int) -> str:
        return f"{number:020d}.{self.extension}"

    def newest(self) -> int:
        """The highest number that was ever taken, as far as the folder tells; 0 for none.

        The table folder is listed before the folders where applied files rest, because files move that way. With no
        file left at all, the engine's marker tells whether the table lives on: then the last number taken counts,
        as the folder remembers it. Without the marker the engine awaits number 1, and so does this.
        """
        names = self.folder.names()
        highest = max(self._numbers(names), default=0)
        inner = set(names)
        for resting in RESTING:
            if resting in inner:
                found = self.folder.names(resting, self.name(highest))
                highest = max(highest, max(self._numbers(found), default=0))
        if highest == 0 and MARKER in inner:
            return self.folder.remembered()
        return highest

    def present(self) -> list[int]:
        """The numbers of the files that are still there, in the table folder or where applied files rest; ascending."""
        names = self.folder.names()
        inner = [name for resting in RESTING if resting in names for name in self.folder.names(resting)]
        return sorted({*self._numbers([*names, *inner])})

    def find(self, number: int) -> str | None:
        """The name of the file with this number, in the table folder or where applied files rest; None for none."""
        name = self.name(number)
        for place in (name, *(f"{resting}/{name}" for resting in RESTING)):
            if self.folder.has(place):
                return place
        # it may have moved from the first place to the second between the two looks
        moved = f"{PROCESSED}/{name}"
        return moved if self.folder.has(moved) else None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps every other publisher of ours out of this folder. `publish-conflict` where the folder is gone."""
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(self.folder.locked())
            except FileNotFoundError as error:
                raise self._gone() from error
            yield

    def take(self, kept: str, number: int | None = None, renewed: Callable[[int], str] | None = None) -> int:
        """Publishes a kept file under the next number, or under the given one; the caller holds the lock.

        `renewed` is called with the newest number before each try, and gives the name of the file to publish instead.
        `publish-conflict` where the given number is taken or the folder was deleted meanwhile.
        """
        while True:
            newest = self.newest()
            chosen = newest + 1 if number is None else number
            if number is not None and self.find(number) is not None:
                raise LakemirrorError("publish-conflict", f"{self.folder.path.name}: number {number} is taken already")
            if renewed is not None:
                kept = renewed(newest)
            try:
                self.folder.number(kept, self.name(chosen))
                break
            except FileExistsError:
                continue  # a publisher that knows no lock was faster: count again
            except FileNotFoundError as error:
                raise self._gone() from error
        self.folder.remember(max(chosen, self.folder.remembered()))
        return chosen

    def _numbers(self, names: list[str]) -> Iterator[int]:
        for name in names:
            match = self._pattern.match(name)
            if match:
                yield int(match[1])

    def _gone(self) -> LakemirrorError:
        return LakemirrorError("publish-conflict", f"{self.folder.path.name}: the table folder was deleted meanwhile")
