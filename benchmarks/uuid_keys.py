"""What an apply of 1,000 changes costs where keys are UUIDs, without the key index, with it, and while it is built.

load ─▶ no index ─▶ idle: it is built ─▶ a new process ─▶ warm applies ─▶ it is deleted ─▶ applies while it is built
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from benchmarks import data, process
from benchmarks.mirror import TABLE, Figure, Mirror, Point

_CHANGES = 1_000
_WARMING, _WARM, _MEANWHILE = 3, 7, 3  # change files that do not count, that do, that come while the index is built


def ask(place: Path, sizes: Sequence[int]) -> Iterator[Point | Figure]:
    """For each number of rows: seconds of the applies, and what the index takes on the disk and in memory.

    The index is kept below `place`, where no other index is. A new process gets that folder by its environment.
    """
    from benchmarks.peers.lakemirror import wait_for_key_index
    from lakemirror.keys import look_up

    cache = place / "cache"
    os.environ["LAKEMIRROR_CACHE_DIR"] = str(cache)
    for rows in sizes:
        mirror = Mirror(place / f"uuids-{rows}")
        load = data.load(mirror.folder / "load", rows, files=max(1, rows // 1_000_000), as_uuids=True)
        mirror.put(*load, keep=False)
        mirror.apply()
        count = 2 + _WARMING + _WARM + 1 + _MEANWHILE
        data.upserts(mirror.folder / "changes", rows, count, _CHANGES, data.uniform, as_uuids=True)
        files = iter(sorted((mirror.folder / "changes").iterdir()))

        yield Point("no index", rows, mirror.applies([next(files)]))
        before, begun = _resident_after_tidying(), time.perf_counter()
        with process.Peak(os.getpid()) as peak:
            wait_for_key_index()
        yield Point("building the index", rows, [time.perf_counter() - begun])
        yield Figure("memory of building the index", rows, max(0, peak.bytes - before))
        yield Figure("index on the disk", rows, sum(file.stat().st_size for file in cache.rglob("*.keys")))

        yield Point("index, first apply of a process", rows, [_by_a_new_process(mirror, next(files))])
        warm = mirror.applies([next(files) for _ in range(_WARMING + _WARM)])
        yield Point("index", rows, warm[_WARMING:])
        yield Figure("memory of the process", rows, _resident())

        shutil.rmtree(cache / "keys", ignore_errors=True)
        look_up.LATELY_READ.clear()
        mirror.applies([next(files)])
        yield Point("while the index is built", rows, mirror.applies([next(files) for _ in range(_MEANWHILE)]))
        shutil.rmtree(mirror.folder)  # what is still to be built is given up
        wait_for_key_index()
        shutil.rmtree(cache / "keys", ignore_errors=True)
        look_up.LATELY_READ.clear()


def _by_a_new_process(mirror: Mirror, file: Path) -> float:
    """Seconds of an apply by a process that has started and has found nothing to do yet."""
    words = ["Lakemirror", str(mirror.folder), TABLE, str(file)]
    command = [sys.executable, "-m", "benchmarks.restarted", *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        mirror.put(file)
        seconds, _ = child.communicate("go\n")
    if child.returncode:
        raise RuntimeError("the process that was started again failed")
    return float(seconds)


def _resident_after_tidying() -> int:
    """Resident bytes, once what is free was given back to the system: else building could use it and seem to need
    nothing."""
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)
    return _resident()


def _resident() -> int:
    return process.processes()[os.getpid()].memory
