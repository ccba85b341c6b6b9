"""What a backlog costs on both sides of the limit from which `auto` starts Spark: by each engine, and by `auto`.

    load ─▶ change files that decode to the size asked for ─▶ `sync`, by each engine in turn

python -m benchmarks.engine_switch 4096 14336 --rounds 3      prints seconds of wall and of CPU, and ratios of one round

Sizes are in MiB of decoded rows. Every pass is a process of its own, so Spark's start counts. Without `auto`, the
backlog is one commit: its files compress well, and together they are smaller than the setting `batch_bytes`.
`LAKEMIRROR_SPARK_FROM_BYTES` moves the limit, on a machine that is too small for the default one.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import data
from benchmarks.mirror import Mirror, Point

_ROWS = 1_000_000  # of the table before the batch
_FILE = 256  # MiB decoded of one change file; less where four would be more than all
_PAYLOAD = 400  # bytes of the text in a row
_ENGINES = ("local", "auto", "spark")


class Pass(NamedTuple):
    """One pass. `cpu`: seconds of its process and of Spark's JVM, without the Python workers, which nobody waits for.
    `applied`: commits, by engine."""

    seconds: float
    cpu: float
    applied: Counter[str]


def ask(place: Path, sizes: Sequence[int]) -> Iterator[Point]:
    """Seconds of each size by each engine, and by `auto`."""
    for size in sizes:
        files = _changes(place / "changes", size)
        for engine in _ENGINES:
            yield Point(engine, size, [synced(place, files, engine).seconds])
        shutil.rmtree(place / "changes")


def synced(place: Path, files: Sequence[Path], engine: str) -> Pass:
    """One process that applies the files to a new copy of the table. The engines are those of its commits."""
    mirror = Mirror(place / "db")
    mirror.put(*_load(place / "load"))
    mirror.apply()
    mirror.put(*files)
    words = [sys.executable, "-c", _SYNC, str(mirror.folder), engine]
    before, begun = os.times(), time.perf_counter()
    _adopt_orphans()
    ran = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    seconds = time.perf_counter() - begun
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()  # Spark's processes end after the one that started them
    after = os.times()
    shutil.rmtree(mirror.folder)
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Pass(seconds, cpu, Counter(ran.stdout.split()))


def _adopt_orphans() -> None:
    """Processes whose parent has ended become children of this one, so that their CPU time is counted."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


_SYNC = """
import os, sys
from lakemirror import MirroredDatabase

class Seen:
    def applied(self, name, applied): print(applied.engine, flush=True)
    def failed(self, name, error): sys.exit(str(error))
    def dropped(self, target): pass

failed = MirroredDatabase(sys.argv[1], engine=sys.argv[2]).sync(Seen()).failed
sys.stdout.flush()
os._exit(bool(failed))
"""


def _load(folder: Path) -> list[Path]:
    if not folder.exists():
        folder.mkdir(parents=True)
        pq.write_table(_rows(np.arange(_ROWS), _payload(_ROWS)), folder / "1.parquet", compression="zstd")
    return sorted(folder.iterdir())


def _changes(folder: Path, size: int) -> list[Path]:
    """Upserts of keys in no order, a part of them in the table. Texts are stored plainly: a dictionary would not count
    as decoded."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(17)
    file = max(1, min(_FILE, size // 4))
    rows, files = (file << 20) // (_PAYLOAD + 24), max(1, size // file)
    payload = _payload(rows)
    for number in range(1, files + 1):
        ids = random.integers(0, files * rows, rows)
        table = _rows(ids, payload).append_column(data.MARKER, pa.array(np.full(rows, data.UPSERT, np.int32)))
        pq.write_table(
            table, folder / f"{number:020}.parquet", compression="zstd", use_dictionary=False, row_group_size=1 << 18
        )
    return sorted(folder.iterdir())


def _rows(ids: np.ndarray, payload: pa.Array) -> pa.Table:
    return pa.table({"id": ids, "amount": (ids % 10_000) / 100, "payload": payload})


def _payload(rows: int) -> pa.Array:
    filler = "the same words in every row; " * (_PAYLOAD // 29)
    return pa.array([f"{number:010}{filler}" for number in range(rows)])


def decoded(files: Sequence[Path]) -> int:
    """Decoded bytes of all rows, as the choice of the engine counts them."""
    footers = [pq.read_metadata(file) for file in files]
    return sum(footer.row_group(group).total_byte_size for footer in footers for group in range(footer.num_row_groups))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", type=int, nargs="+", metavar="MIB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--engines", nargs="+", default=list(_ENGINES), help="the first is what others are compared with"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for size in given.sizes:
            files = _changes(Path(folder) / "changes", size)
            for _ in range(given.rounds):
                first = 0.0
                for engine in given.engines:
                    done = synced(Path(folder), files, engine)
                    first = first or done.seconds
                    commits = ", ".join(f"{number} by {name}" for name, number in done.applied.items())
                    load = os.getloadavg()[0]
                    print(
                        f"{size} MiB {engine}: {done.seconds:.1f} s ({done.seconds / first:.2f}), "
                        f"CPU {done.cpu:.1f} s; "
                        f"commits: {commits}; load {load:.1f}",
                        flush=True,
                    )
            shutil.rmtree(Path(folder) / "changes")


if __name__ == "__main__":
    main()

__all__ = ["Pass", "ask", "decoded", "synced"]
