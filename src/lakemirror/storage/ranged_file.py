"""A file that is elsewhere, read by ranges of its bytes."""

from __future__ import annotations

import io
from abc import abstractmethod
from typing import Any


class RangedFile(io.RawIOBase):
    """A file of `size` bytes, which a subclass sets. Not for several threads at once."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0
        self._at = 0

    @abstractmethod
    def _read_at(self, begin: int, size: int) -> bytes:
        """These bytes, which are all there."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self.size - self._at)
        wanted = left if size is None or size < 0 else min(size, left)
        data = self._read_at(self._at, wanted)
        self._at += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        return self.read(-1)
