"""One table folder as a publisher reaches it: the only way by which this package touches a landing zone.

    written file ─▶ staged (local) ─▶ kept (reachable, without a number) ─▶ numbered (the engine sees it)

`local_folder` is such a folder on a local disk, `endpoint_folder` one behind the HTTPS endpoint of a service. Names are
relative to the table folder, with `/` between their parts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, Protocol

import pyarrow as pa

from lakemirror.failpoints import reach

TEMPORARY_PREFIX = "_publishing-"
DROPPED_PREFIX = f"{TEMPORARY_PREFIX}dropped-"
ABANDONED_SECONDS = 86_400.0
IS_TEMPORARY = re.compile(rf"{TEMPORARY_PREFIX}[0-9a-f]{{32}}(\.[A-Za-z0-9.]+)?").fullmatch
IS_DROPPED = re.compile(f"{DROPPED_PREFIX}[0-9a-f]{{32}}").fullmatch


class TableFolder(Protocol):
    """A table folder. Methods raise OSError (FileNotFoundError, FileExistsError where said) or LakemirrorError."""

    @property
    def path(self) -> Path:
        """The folder: absolute where it is local, else relative to its mirrored database."""

    def is_there(self) -> bool:
        """True where the folder exists."""

    def make(self) -> None:
        """Makes the folder and those above it; harmless where it exists."""

    def names(self, inner: str = "", first: str = "") -> list[str]:
        """Names directly in the folder, or in one inside it; from the name `first` on. Empty where there is none."""

    def has(self, name: str) -> bool:
        """True where a file has this name."""

    def open(self, name: str) -> BinaryIO:
        """The file, seekable; FileNotFoundError."""

    def content(self, name: str) -> pa.Buffer:
        """The whole file, mapped where that can be done; FileNotFoundError."""

    def room(self) -> AbstractContextManager[None]:
        """Inside, staged files have a place. A folder that is made for this and stays empty is removed at the end."""

    def staged(self, suffix: str = "tmp") -> Path:
        """A new name for a file in the making, on a local disk, for use inside `room`. Its owner deletes it."""

    def replace(self, staged: Path, name: str, *, new: bool = False) -> None:
        """Makes the complete staged file the one of this name. `new`: FileExistsError where there is one."""

    def keep(self, staged: Path) -> None:
        """Makes the complete staged file outlive this process, under `staged.name` and without a number."""

    def is_kept(self, name: str) -> bool:
        """True where a kept file of this name has no number yet."""

    def open_kept(self, name: str) -> BinaryIO:
        """A kept file that has no number yet, seekable; FileNotFoundError."""

    def forget(self, name: str) -> None:
        """Deletes a kept file; nothing where there is none."""

    def number(self, kept: str, name: str) -> None:
        """Gives a kept file the name of a change file, durably; it is not kept any more.

        FileExistsError where the name is taken, FileNotFoundError where the table folder is gone.
        """

    def delete(self, name: str) -> None:
        """Deletes a file; nothing where there is none."""

    def locked(self) -> AbstractContextManager[None]:
        """Keeps other publishers out as far as this kind of folder can; FileNotFoundError where it finds none."""

    def remember(self, number: int) -> None:
        """Notes the highest number ever taken, for when every numbered file is gone. Called under the lock."""

    def remembered(self) -> int:
        """The number noted last; 0 for none."""

    def drop(self, staged: Path | None = None) -> None:
        """Removes the folder: it leaves its place at once and completely. The staged file stays."""

    def sweep(self) -> None:
        """Deletes what publishers that crashed left: dropped folders, and kept files of more than a day."""


def write_whole(
    folder: TableFolder, name: str, content: bytes | Callable[[BinaryIO], None], *, new: bool = False
) -> None:
    """Makes the file of this name atomically, over an older one. `new`: FileExistsError where there is one."""
    staged = folder.staged()
    try:
        with staged.open("xb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content)
            file.flush()
            os.fsync(file.fileno())
        reach("publish.metadata-written")
        folder.replace(staged, name, new=new)
    finally:
        staged.unlink(missing_ok=True)
