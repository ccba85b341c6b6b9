"""A new object that is written piece by piece: pyarrow writes Parquet files to it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

PART = 8 << 20  # bytes of a part of an upload


class ObjectWriter:
    """An object that is being written. `write`, `close`, `abort`; for one thread."""

    mode = "wb"

    def __init__(
        self,
        inner: Any,
        *,
        coded: Callable[[], AbstractContextManager[None]],
        parts_put: Callable[[int], None],
        completed: Callable[[int], object],
    ) -> None:
        """`inner`: obstore's writer. `coded`: a block around each call of it, in which errors get their code.

        `parts_put` gets the number of parts that a call has sent, `completed` the size of the complete object.
        """
        self._inner, self._coded, self._parts_put, self._completed = inner, coded, parts_put, completed
        self._size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        if self.closed:
            raise ValueError("the object is complete, or was given up")
        size = memoryview(data).nbytes
        with self._coded():
            self._inner.write(bytes(data))
        before, self._size = self._size, self._size + size
        self._parts_put(self._size // PART - before // PART)
        return size

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Nothing: what is written is in the store once the writer is closed."""

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        """Completes the object."""
        if self.closed:
            return
        self.closed = True
        with self._coded():
            self._inner.close()
        self._completed(self._size)

    def abort(self) -> None:
        """Gives the object up. Parts that are in the store stay until the bucket's rule for them removes them."""
        self.closed = True
        del self._inner

    def __enter__(self) -> ObjectWriter:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close() if kind is None else self.abort()
