"""A place of a store as tests look at it: by the names of `pathlib.Path`."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import Any

from lakemirror.storage import Place
from lakemirror.storage.place import served_files


class SeenInStore:
    """What is at a place of a store, by the names of `pathlib.Path` that the tests use. It has no links."""

    def __init__(self, folder: Place, path: str = "", own: Path | None = None) -> None:
        """`own`: what is `.lakemirror` below it, on a disk."""
        self._folder, self._path, self.own = folder, path, own
        self._files = served_files(folder)

    def __truediv__(self, below: str) -> Any:
        if self.own is not None and str(below).split("/")[0] == ".lakemirror":
            return self.own / str(below).partition("/")[2]
        return SeenInStore(self._folder, f"{self._path}/{below}".strip("/"), self.own)

    def __str__(self) -> str:
        return str(self._folder / self._path)

    def relative_to(self, above: SeenInStore) -> PurePosixPath:
        return PurePosixPath(self._path).relative_to(above._path)

    @property
    def name(self) -> str:
        return self._path.rpartition("/")[2]

    def exists(self) -> bool:
        return self._files.find(self._path) is not None

    def is_dir(self) -> bool:
        found = self._files.find(self._path)
        return found is not None and found.is_folder

    def is_file(self) -> bool:
        return self.exists() and not self.is_dir()

    def iterdir(self) -> list[SeenInStore]:
        return [self / name for name in self._files.listed(self._path).names]

    def rglob(self, _all: str) -> list[SeenInStore]:
        inner = self.iterdir()
        return [*inner, *(below for each in inner if each.is_dir() for below in each.rglob("*"))]

    def stat(self) -> os.stat_result:
        return (self._folder / self._path).stat()

    def read_bytes(self) -> bytes:
        return (self._folder / self._path).read_bytes()

    def write_bytes(self, data: bytes) -> None:
        (self._folder / self._path).write_bytes(data)

    def write_text(self, text: str) -> None:
        self.write_bytes(text.encode())

    def read_text(self) -> str:
        return self.read_bytes().decode()

    def rename(self, target: SeenInStore) -> None:
        target.write_bytes(self.read_bytes())
        self.unlink()

    def unlink(self, *, missing_ok: bool = False) -> None:
        (self._folder / self._path).unlink()

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:
        self._files.make_folder(self._path)

    def symlink_to(self, _target: object) -> None:
        """Nothing."""


__all__ = ["SeenInStore"]
