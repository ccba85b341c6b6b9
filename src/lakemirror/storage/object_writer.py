"""A new object that is written piece by piece: pyarrow writes Parquet files to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakemirror.storage.object_store import ObjectStore

_PART = 8 << 20  # bytes of a part of an upload
_PARTS_AT_ONCE = 2


class ObjectWriter:
    """An object that is being written. `write`, `close`, `abort`; for one thread."""

    mode = "wb"

    def __init__(self, store: ObjectStore, key: str) -> None:
        import obstore

        self._owner, self._key = store, key
        self._size = 0
        self.closed = False
        with store._coded("put", key):
            self._inner = obstore.open_writer(store._store, key, buffer_size=_PART, max_concurrency=_PARTS_AT_ONCE)

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        with self._owner._coded("put", self._key):
            self._owner.requests["put"] -= 1
            self._inner.write(bytes(data))
        before, self._size = self._size, self._size + size
        self._owner.requests["put"] += self._size // _PART - before // _PART
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
        with self._owner._coded("put", self._key):
            self._owner.requests["put"] -= 1
            self._inner.close()
        self._owner.cache.remember(self._key, self._size, "")

    def abort(self) -> None:
        """Gives the object up. Parts that are in the store stay until the bucket's rule for them removes them."""
        self.closed = True
        del self._inner

    def __enter__(self) -> ObjectWriter:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close() if kind is None else self.abort()


__all__ = ["ObjectWriter"]
