"""Turns every failure into a `LakemirrorError` with a code. Used around each table and each command.

LakemirrorError ─▶ itself        OSError ─▶ storage-unavailable        MemoryError ─▶ memory-exhausted
anything else   ─▶ internal, with the path of the log that holds the traceback
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import threading
import time
import traceback
from pathlib import Path

from lakemirror.errors import LakemirrorError

log = logging.getLogger("lakemirror")

LOG_NAME = "failures.log"
MOST_BYTES = 1024 * 1024  # of the log; the one before is kept beside it
_lock = threading.Lock()
_written: dict[str, Path] = {}  # what this process has logged already: a failure that repeats is logged once


def coded(failure: BaseException, *, table: str | None = None) -> LakemirrorError:
    """The failure as a coded error. Writes the traceback of an `internal` one to the log."""
    if isinstance(failure, LakemirrorError):
        return failure
    if isinstance(failure, OSError) and failure.errno is not None:
        place = os.fsdecode(failure.filename) if isinstance(failure.filename, str | bytes) else ""
        reason = failure.strerror or str(failure)
        return LakemirrorError("storage-unavailable", f"{place}: {reason}" if place else reason, table=table)
    if isinstance(failure, MemoryError):
        return LakemirrorError("memory-exhausted", "the process has no memory left", table=table)
    lines = str(failure).strip().splitlines()
    sentence = f"{type(failure).__name__}: {lines[0][:300]}" if lines else type(failure).__name__
    path = record(failure)
    where = f"; the log is {path}" if path else "; no log could be written"
    return LakemirrorError("internal", sentence + where, table=table)


def record(failure: BaseException) -> Path | None:
    """Appends the traceback to the log, once for equal failures. Returns the log's path, or None on failure."""
    text = "".join(traceback.format_exception(type(failure), failure, failure.__traceback__))
    places = traceback.extract_tb(failure.__traceback__)
    where = f"{places[-1].filename}:{places[-1].lineno}" if places else ""
    with _lock:
        for folder in _folders():
            key = f"{folder} {type(failure).__name__}: {failure} at {where}"
            with contextlib.suppress(OSError):
                if key in _written and _written[key].exists():
                    return _written[key]
                if len(_written) > 1000:
                    _written.clear()
                _written[key] = _append(folder, text)
                return _written[key]
    return None


def _folders() -> list[Path]:
    cache = os.environ.get("LAKEMIRROR_CACHE_DIR")
    homes = [Path(cache)] if cache else []
    with contextlib.suppress(RuntimeError):  # a user without a home
        homes.append(Path.home() / ".cache" / "lakemirror")
    return [*(home / "logs" for home in homes), Path(tempfile.gettempdir()) / f"lakemirror-{os.getuid()}"]


def _append(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOG_NAME
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size > MOST_BYTES:
            path.replace(folder / f"{LOG_NAME}.1")
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    with os.fdopen(os.open(path, flags, 0o600), "a", encoding="utf-8", errors="backslashreplace") as file:
        file.write(f"{stamp} process {os.getpid()}\n{text}\n")
    return path


def spark_is_gone(failure: Exception) -> bool:
    """True if Spark's process has ended, or does not answer."""
    names = {kind.__name__ for kind in type(failure).__mro__}  # by name: nothing of Spark is imported here
    return "Py4JNetworkError" in names or isinstance(failure, ConnectionError)
