"""One bucket: a few verbs, with the rules that make every store safe to commit to.

    create(key, data)    only if absent; an answer that says nothing: the object is read back and compared
    replace(key, data)   only over what this process put there last
    put, read, head, range, entries, delete, copy, writer

Requests that may be repeated are repeated by obstore, with growing pauses, up to 20 seconds. What then still fails has
a code (`store_failures.py`).
"""

from __future__ import annotations

import contextlib
import random
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from lakemirror.errors import LakemirrorError, SetupError
from lakemirror.storage.disk_cache import DiskCache
from lakemirror.storage.object_cache import ObjectCache
from lakemirror.storage.object_writer import PART, ObjectWriter
from lakemirror.storage.storage import Entry
from lakemirror.storage.store_failures import missing, store_failure

_CREATE_TRIES = 6
_LONGEST_PAUSE = 3.0  # seconds
_PARTS_AT_ONCE = 2
_IN_PARTS = 16 << 20  # bytes from which on an object is put in parts
_LARGEST_COPY = 5 << 30  # bytes; of S3


class ObjectStore:
    """A bucket. `root`: its address, `s3://lake`. For several threads.

    Every verb raises FileNotFoundError or LakemirrorError and nothing else.
    """

    def __init__(self, root: str, store: Any, disk: DiskCache | None = None) -> None:
        """`disk`: keeps what an engine that starts asks for."""
        self.root = root
        self.requests: Counter[str] = Counter()
        self.cache = ObjectCache(root, disk)
        self._store = store

    def head(self, key: str) -> Entry | None:
        """The object, or None."""
        import obstore

        try:
            with self._coded("head", key):
                return _entry(obstore.head(self._store, key))
        except FileNotFoundError:
            return None

    def read(self, key: str, listed: Entry | None = None) -> bytes:
        """The complete object; FileNotFoundError. `listed`: as a listing showed it, then it may come from memory."""
        import obstore

        if listed is not None and (kept := self.cache.content(key, listed.tag)) is not None:
            return kept
        with self._coded("get", key):
            found = obstore.get(self._store, key)
            data = bytes(found.bytes())
            self.cache.keep(key, _tag(found.meta), data, lasting=listed is not None)
        return data

    def read_same(self, key: str, listed: Entry) -> bytes:
        """The complete object that a listing showed, perhaps from memory; FileNotFoundError where it is another."""
        if (kept := self.cache.content(key, listed.tag)) is not None:
            return kept
        data = self.range(key, 0, listed.size, listed.tag)
        self.cache.keep(key, listed.tag, data)
        return data

    def tail(self, key: str, size: int) -> tuple[Entry, bytes]:
        """The object and its last `size` bytes, by one request where the store can; FileNotFoundError."""
        import obstore

        with self._coded("get", key):
            if self.root.startswith(("az:", "abfs")):  # no range from the end there
                entry = _entry(obstore.head(self._store, key))
                self.requests["get"] += 1
                begin = max(0, entry.size - size)
                data = obstore.get_range(self._store, key, start=begin, end=entry.size) if entry.size else b""
                return entry, bytes(data)
            try:
                found = obstore.get(self._store, key, options={"range": {"suffix": size}})
                return _entry(found.meta), bytes(found.bytes())
            except Exception as error:
                if "416" not in str(error):
                    raise
                return _entry(obstore.head(self._store, key)), b""  # an empty object has no last bytes

    def range(self, key: str, begin: int, size: int, tag: str = "") -> bytes:
        """Bytes of the object; `tag`: its ETag, and FileNotFoundError where it is another object by now."""
        return bytes(self.view(key, begin, size, tag))

    def view(self, key: str, begin: int, size: int, tag: str = "") -> memoryview:
        """The same as `range`, in the memory that the request has filled: nothing is copied."""
        import obstore
        from obstore.exceptions import PreconditionError

        if not size:
            return memoryview(b"")
        with self._coded("get", key):
            options: dict[str, Any] = {"range": (begin, begin + size)}
            if tag:
                options["if_match"] = f'"{tag}"'
            try:
                return memoryview(obstore.get(self._store, key, options=options).bytes())  # type: ignore[arg-type]
            except PreconditionError as error:
                self.cache.forget([key])
                raise missing(self.uri(key)) from error

    def put(self, key: str, data: bytes) -> Entry:
        """Puts the complete object, over an older one."""
        import obstore

        with self._coded("put", key):
            found = obstore.put(self._store, key, data, use_multipart=len(data) > _IN_PARTS)
        return self._written(key, data, found)

    def create(self, key: str, data: bytes) -> Entry | None:
        """Puts the object only if none is there; None where one is.

        A time-out, a reset, or an answer "already there" may hide that this request was carried out. Then the object
        is read back: with this content it is ours. The condition is sent again only where the object is not there,
        which is safe, since a first request that arrives late makes the second one fail, and it is read back again.
        So the content must be one that nobody else writes.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        for attempt in range(_CREATE_TRIES):
            self.requests["put"] += 1
            try:
                found = obstore.put(self._store, key, data, mode="create", use_multipart=False)
                return self._written(key, data, found, is_new=True)
            except (AlreadyExistsError, PreconditionError):
                with contextlib.suppress(FileNotFoundError):
                    return self._ours(key, data)
            except (BaseError, OSError, ValueError) as error:
                failure = store_failure("put", self.root, key, error)
                if not isinstance(failure, LakemirrorError) or failure.code != "storage-unavailable":
                    raise failure from None
                with contextlib.suppress(FileNotFoundError, LakemirrorError):
                    return self._ours(key, data)
                if attempt == _CREATE_TRIES - 1:
                    raise failure from None
            time.sleep(min(_LONGEST_PAUSE, 0.1 * 2**attempt) * random.uniform(0.5, 1.0))
        raise LakemirrorError("storage-unavailable", f"{self.uri(key)} appears and disappears", file=self.uri(key))

    def put_new(self, key: str, data: bytes) -> bool:
        """Puts the object only if none is there; True where this call did.

        False may also mean that a first try was carried out and its answer lost: the caller compares.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        with self._coded("put", key):
            try:
                obstore.put(self._store, key, data, mode="create", use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return False
            return True

    def replace(self, key: str, data: bytes) -> bool:
        """Puts the object over the one that this process put there last; False where another one is there, or none.

        One request. False also where the store has no such condition: the caller looks and puts.
        """
        before = self.cache.own(key)
        if before is None or not before.tag:
            return False
        return self._put_over(key, data, before.tag, self.cache.generation(key)) is not None

    def put_over(self, key: str, data: bytes, tag: str) -> Entry | None:
        """Puts the object over the one with this ETag; None where another one is there, or none.

        Two requests on Google Cloud Storage. None also where the store has no such condition.
        """
        import obstore

        generation = ""
        if self.root.startswith("gs:"):
            with contextlib.suppress(FileNotFoundError), self._coded("head", key):
                found = obstore.head(self._store, key)
                generation = str(found.get("version") or "") if _tag(found) == tag else ""
            if not generation:
                return None
        return self._put_over(key, data, tag, generation)

    def _put_over(self, key: str, data: bytes, tag: str, generation: str) -> Entry | None:
        import obstore
        from obstore.exceptions import (
            AlreadyExistsError,
            BaseError,
            NotFoundError,
            NotSupportedError,
            PreconditionError,
        )

        over: Any = {"version": generation} if generation else {}  # Google compares generations, others compare ETags
        over["e_tag"] = f'"{tag}"'
        self.requests["put"] += 1
        try:
            found = obstore.put(self._store, key, data, mode=over, use_multipart=False)
        except (AlreadyExistsError, PreconditionError, NotFoundError, FileNotFoundError, NotSupportedError):
            self.cache.forget([key])
            return None
        except (BaseError, OSError, ValueError) as error:
            self.cache.forget([key])
            if "status code: 501" in str(error):
                return None
            raise store_failure("put", self.root, key, error) from None
        return self._written(key, data, found)

    def entries(self, prefix: str, after: str = "") -> Iterator[Entry]:
        """The objects whose keys begin with `prefix` (ends in a slash, or is empty), by key, beginning behind `after`.

        1,000 a request. Objects that stand for a folder are left out. `listing-damaged` for a key that cannot be read.
        """
        import obstore

        with self._coded("list", prefix):
            self.requests["list"] -= 1  # each page counts
            for page in obstore.list(self._store, prefix or None, offset=after or None, chunk_size=1000):
                self.requests["list"] += 1
                yield from (_entry(found) for found in page if not _is_folder_object(found))
            self.requests["list"] += 1 if not self.requests["list"] else 0

    def folders(self, prefix: str) -> tuple[Sequence[str], Sequence[Entry]]:
        """What is directly in a folder: folders and objects, by their keys."""
        import obstore

        with self._coded("list", prefix):
            found = obstore.list_with_delimiter(self._store, prefix or None)
            objects = [_entry(each) for each in found["objects"] if not _is_folder_object(each)]
            return [str(each) for each in found["common_prefixes"]], objects

    def delete(self, keys: Sequence[str]) -> None:
        """Deletes objects; nothing where one is not there. 1,000 a request, on Google Cloud Storage one."""
        import obstore

        for begin in range(0, len(keys), 1000):
            some = list(keys[begin : begin + 1000])
            self.cache.forget(some)
            try:
                with self._coded("delete", some[0]):
                    obstore.delete(self._store, some if len(some) > 1 else some[0])
            except FileNotFoundError:
                for key in some if len(some) > 1 else ():  # Google's: the first that is not there ended it
                    with contextlib.suppress(FileNotFoundError), self._coded("delete", key):
                        obstore.delete(self._store, key)

    def copy(self, source: str, target: str, size: int = 0) -> None:
        """Copies an object within the store, over an older one; FileNotFoundError.

        `size`: of the object, where it is known. S3 copies at most 5 GiB; a larger object is read and written again.
        """
        import obstore

        if self.is_too_large_to_copy(size):
            self._copy_through(source, target, size)
            return
        with self._coded("copy", source):
            obstore.copy(self._store, source, target)

    def renew(self, key: str) -> None:
        """Sets the object's time to now; FileNotFoundError. It is read and written again: S3 refuses to copy an object
        onto itself.
        """
        entry = self.head(key)
        if entry is None:
            raise missing(self.uri(key))
        self._copy_through(key, key, entry.size)
        self.cache.forget([key])

    def copy_new(self, source: str, target: str) -> bool:
        """Copies an object within the store only if none is at the target; False where one is. FileNotFoundError.

        False may also mean that a first try was carried out and its answer lost: the caller compares.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        with self._coded("copy", source):
            try:
                obstore.copy(self._store, source, target, overwrite=False)
            except (AlreadyExistsError, PreconditionError):
                return False
            return True

    def is_too_large_to_copy(self, size: int) -> bool:
        """True where the store itself does not copy an object of so many bytes."""
        return size > _LARGEST_COPY and self.root.startswith("s3:")

    def writer(self, key: str) -> ObjectWriter:
        """A new object, written in parts in bounded memory. It is there once the writer is closed."""
        import obstore

        def count(parts: int) -> None:
            self.requests["put"] += parts

        with self._coded("put", key):
            inner = obstore.open_writer(self._store, key, buffer_size=PART, max_concurrency=_PARTS_AT_ONCE)
        return ObjectWriter(
            inner,
            coded=partial(self._coded, "put", key, requests=0),
            parts_put=count,
            completed=lambda size: self.cache.remember(key, size, ""),
        )

    def uri(self, key: str) -> str:
        return f"{self.root}/{key}" if key else self.root

    def probe(self, prefix: str) -> None:
        """`store-unsafe` where the store ignores the condition "only if absent". Three requests."""
        key = f"{prefix}probe-{uuid.uuid4().hex}"
        try:
            first = self.create(key, b"first " + key.encode())
            second = self.create(key, b"second " + key.encode())
        finally:
            with contextlib.suppress(LakemirrorError):
                self.delete([key])
        if first is None or second is not None:
            raise SetupError(
                "store-unsafe", f"{self.root} ignores the condition of a put: two writers would both make one version"
            )

    def _copy_through(self, source: str, target: str, size: int) -> None:
        entry = self.head(source)
        if entry is None or entry.size != size:
            raise missing(self.uri(source))
        with self.writer(target) as written:
            for begin in range(0, size, _IN_PARTS):
                written.write(self.view(source, begin, min(_IN_PARTS, size - begin), entry.tag))

    def _ours(self, key: str, data: bytes) -> Entry | None:
        """The object where it has this content, None where it has another; FileNotFoundError."""
        import obstore

        with self._coded("get", key):
            found = obstore.get(self._store, key)
            if found.meta["size"] != len(data) or bytes(found.bytes()) != data:
                return None
            return self._written(key, data, found.meta)

    def _written(self, key: str, data: bytes, found: Any, *, is_new: bool = False) -> Entry:
        """`found`: the store's answer about the object. `is_new`: nobody replaces it."""
        entry = self.cache.remember(key, len(data), _tag(found), str(found.get("version") or ""))
        self.cache.keep(key, entry.tag, data, lasting=is_new)
        return entry

    @contextlib.contextmanager
    def _coded(self, verb: str, key: str, requests: int = 1) -> Iterator[None]:
        """A block with `requests` to the store, in which errors get their code."""
        from obstore.exceptions import BaseError

        self.requests[verb] += requests
        try:
            yield
        except LakemirrorError:
            raise
        except (BaseError, OSError, ValueError) as error:
            raise store_failure(verb, self.root, key, error) from None  # its text may hold a signed address


def _entry(found: Any) -> Entry:
    moment = found["last_modified"]
    whole = int(moment.replace(microsecond=0).timestamp())
    return Entry(found["path"], found["size"], whole * 10**9 + moment.microsecond * 1000, _tag(found))


def _tag(found: Any) -> str:
    """The ETag without the quotes around it, which some answers of one store have and others lack."""
    return str(found.get("e_tag") or "").strip('"')


def _is_folder_object(found: Any) -> bool:
    """True for an empty object by which other tools show a folder: obstore cuts the slash at the end of its key."""
    name = found["path"].rpartition("/")[2]
    return not found["size"] and ("." not in name or name.endswith(".schema"))
