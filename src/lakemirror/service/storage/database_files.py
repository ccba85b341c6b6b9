"""One mirrored database as clients of the storage plane see it: what is published, and uploads that are not.

    request ─▶ DatabaseFiles.find ─▶ created upload, else what is published ─▶ condition and act, `publishing` a path

The lock is held for look-ups and renames only, never while bytes are copied or synced, nor during requests to a store.
"""

from __future__ import annotations

import secrets
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from lakemirror.service.refused import Refused
from lakemirror.service.storage.staged_copies import StagedCopies
from lakemirror.service.storage.uploads import Upload, last_touched, load_uploads
from lakemirror.storage.place import Place, served_files
from lakemirror.storage.served_files import Found, ServedFiles

_STRIPES = 64  # locks that paths of a store share


class DatabaseFiles:
    """A mirrored database. Paths are relative to its folder, without empty or dot segments. Safe for threads."""

    def __init__(self, folder: Place, staging: Path, copies: Place | None = None) -> None:
        """`staging`: a folder of this database alone on a disk, made when it is needed. `copies`: where a store has
        what is in it, None for nowhere. LakemirrorError where it cannot be read."""
        self.folder = folder
        self.published: ServedFiles = served_files(folder)
        self.staging = staging
        self.is_served: Callable[[], bool] = _always  # False: another database may have the folder by now
        self.lock = threading.RLock()
        self.copies = StagedCopies(copies, staging)
        self.copies.restore()
        self.uploads: dict[str, Upload] = load_uploads(staging)
        self.committed: dict[str, tuple[list[str], str]] = {}  # path to its last block list, and the ETag it got
        self._stripes = [threading.RLock() for _ in range(_STRIPES)]

    def serve(self, folder: Place, is_served: Callable[[], bool]) -> None:
        """The database has this folder now."""
        if folder != self.folder:
            self.folder, self.published = folder, served_files(folder)
        self.is_served = is_served

    def find(self, path: str) -> Found | None:
        """What clients see at a path, None for nothing and for links."""
        return self.staged(path) or self.published.find(path)

    def staged(self, path: str) -> Found | None:
        """What is created at a path, and not flushed yet."""
        upload = self.uploads.get(path)
        if upload is not None and upload.is_create:
            return Found(False, 0, upload.etag, upload.time_ns, is_staged=True)
        return None

    @contextmanager
    def publishing(self, path: str) -> Iterator[None]:
        """Within the block nobody else of this process changes what is published at the path."""
        with self._stripes[hash(path) % _STRIPES] if self.published.waits else self.lock:
            yield

    def make_folder(self, path: str) -> None:
        """Makes a folder and its parents. Refused 409 `PathConflict` where a file is in the way."""
        with _no_file_in_the_way():
            self.published.make_folder(path)

    def check_folders(self, path: str) -> None:
        """The same before a file is published below: folders that need no making are only looked at."""
        with _no_file_in_the_way():
            self.published.check_folders(path)

    def settle(self, path: str) -> None:
        """Makes what was done at a path, and before, durable."""
        self.published.settle(path)
        self.copies.settle()

    def open_upload(self, path: str) -> Upload | None:
        """The upload at a path that can go on. One whose published file was replaced since is discarded."""
        upload = self.uploads.get(path)
        if upload is not None and not upload.is_create:
            found = self.published.find(path)
            if found is None or found.etag != upload.base_etag:
                self.discard(path)
                return None
        return upload

    def discard(self, path: str) -> None:
        """Forgets the upload at a path and its bytes."""
        upload = self.uploads.pop(path, None)
        if upload is not None:
            self.take_back(upload)

    def take_back(self, upload: Upload) -> None:
        """Has the bytes of an upload removed, which is published or given up."""
        self.copies.forget(upload.folder)
        self.trash(upload.folder)

    def remove_old_uploads(self, before: float) -> None:
        """Discards uploads to which nothing has come since a time (Unix seconds)."""
        with self.lock:
            for path, upload in list(self.uploads.items()):
                if last_touched(upload) < before and not upload.claims and not upload.sealed:
                    self.discard(path)

    def staged_below(self, folder: str) -> list[str]:
        """The paths of uploads below a folder."""
        return [path for path in self.uploads if path.startswith(f"{folder}/")]

    def is_empty(self, folder: str) -> bool:
        """True for a folder with nothing in it, neither on disk nor created."""
        listed = self.published.listed(folder)
        try:
            return not listed.names and not any(self.uploads[path].is_create for path in self.staged_below(folder))
        finally:
            listed.close()

    def temporary(self, kind: str) -> Path:
        """A new name in the staging folder, which exists."""
        if not self.staging.is_dir():
            self.staging.mkdir(parents=True, exist_ok=True)
        return self.staging / f"{kind}-{secrets.token_hex(16)}"

    def trash(self, path: Path) -> None:
        """Takes a staged file or folder away at once; its bytes are removed a little later, in another thread."""
        doomed = self.temporary("trash")
        with suppress(FileNotFoundError):
            path.rename(doomed)
            _REMOVER.submit(_erase, doomed)


def new_etag() -> str:
    """An ETag that nothing has yet."""
    return f"0x{secrets.token_hex(8).upper()}"


@contextmanager
def _no_file_in_the_way() -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise Refused(409, "PathConflict", "A file is in the place of a folder of this path.") from None


def _always() -> bool:
    return True


def _erase(path: Path) -> None:
    with suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


_REMOVER = ThreadPoolExecutor(1, thread_name_prefix="remover")
