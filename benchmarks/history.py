"""`python -m benchmarks.history`: what soft deletes, every change and versions cost beside the current table alone.

Each mode has a process of its own, and they take turns: each file is applied by one mode after the other, so that a
slow moment of the machine is nobody's alone. Passes with many changes on a large table (`--deletes`: their share; no
key twice in a pass), passes with 1,000 changes, warm, and the largest memory. `many`: median of the seconds until a
pass is done; a merge of files is in every third. `times`: median of what it took against the first mode in the same
turn. `many_all`: the mean with all that follows of it: indexes and copies for the next applies.
`--before`: so many passes with many changes come first, so that the history is long. `merge` is a peer: the current
table by one MERGE, versions by two (the first ends open versions, the second inserts), on Delta Spark, whose session
has started; `staged merge`: versions by one MERGE of a staged union, as in Delta's documentation. `dlt` says what
dlt's strategy `scd2` does with two rows on a Delta table.

    load ─▶ [before] ─▶ a small one ─▶ many changes ─▶ small ones ─▶ rows of each table
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import environments, process
from benchmarks.data import DELETE, MARKER, UPSERT

MODES: dict[str, dict[str, Any]] = {
    "current": {},
    "soft": {"deletes": "soft"},
    "sequence": {"sequence": "n"},
    "changes": {"history": "changes"},
    "scd2": {"history": "scd2"},
    "scd2 with a sequence": {"history": "scd2", "sequence": "n"},
}
PEERS, DLT = ("merge", "staged merge"), "dlt"
_DLT = """
import sys, dlt
@dlt.resource(table_format="delta", write_disposition={"disposition": "merge", "strategy": "scd2"}, primary_key="id")
def t():
    yield [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]
place = dlt.destinations.filesystem(bucket_url=f"file://{sys.argv[1]}/out")
try:
    dlt.pipeline("h", destination=place, dataset_name="x", pipelines_dir=f"{sys.argv[1]}/p").run(t())
    print(f"dlt {dlt.__version__}: it runs")
except Exception as error:
    print(f"dlt {dlt.__version__}:", str(error).strip().splitlines()[-1])
"""
_SMALL, _WARMING = 1_000, 3
_NAMES = pa.array([f"customer {number}" for number in range(50_000)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--changes", type=int, default=200_000)
    parser.add_argument("--deletes", type=float, default=0.1, help="their share of the changes")
    parser.add_argument("--before", type=int, default=0, help="passes of as many changes that come first")
    parser.add_argument("--passes", type=int, default=8, help="passes with many changes that count")
    parser.add_argument("--rounds", type=int, default=7, help="passes with 1,000 changes that count")
    parser.add_argument("--engine", default="local")
    parser.add_argument("--only", nargs="+", choices=[*MODES, *PEERS, DLT], default=[*MODES, *PEERS, DLT])
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        _take_turns(given)
        return
    with tempfile.TemporaryDirectory(prefix="lakemirror-history-") as folder:
        files = _make_files(Path(folder), given)
        modes = [mode for mode in given.only if mode != DLT]
        with contextlib.ExitStack() as stack:
            runs = [stack.enter_context(_Run(mode, Path(folder), given)) for mode in modes]
            for number, file in enumerate(files):
                turn = number % max(len(runs), 1)
                for run in runs[turn:] + runs[:turn]:
                    run.apply(file)
            for run in runs:
                run.end()
                print(json.dumps(_figures(run, runs[0], given)), flush=True)
        if DLT in given.only:
            print(json.dumps(_dlt(folder)), flush=True)


def _dlt(folder: str) -> dict[str, Any]:
    """What dlt says, in an environment of its own."""
    python, variables = environments.ensure("dlt")
    variables |= {"RUNTIME__DLTHUB_TELEMETRY": "false", "DLT_DATA_DIR": folder}
    done = subprocess.run(
        [python, "-c", _DLT, folder], env=os.environ | variables, stdout=subprocess.PIPE, text=True, check=True
    )
    return {"mode": DLT, "result": done.stdout.splitlines()[-1]}


class _Run:
    """One mode: a process that applies a file when it is told to, and rests otherwise.

    `turns`: of each file, seconds until it is applied, seconds and seconds of CPU with what follows, bytes written.
    """

    def __init__(self, mode: str, folder: Path, given: argparse.Namespace) -> None:
        self.mode, self.rows, self._folder = mode, dict[str, int](), folder / mode
        self._folder.mkdir()
        self.turns: list[tuple[float, float, float, int]] = []
        words = [f"--engine={given.engine}", f"--child={mode}", f"--folder={self._folder}"]
        command = [sys.executable, "-m", "benchmarks.history", *words]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.peak = process.Peak(self._child.pid)

    def __enter__(self) -> _Run:
        self.peak.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        process.end(self._child.pid)
        self._child.wait()
        self.peak.__exit__()

    def apply(self, file: Path) -> None:
        assert self._child.stdin and self._child.stdout
        own = shutil.copy(file, self._folder / f"file-{len(self.turns) + 1}")  # links of a file share its time
        print(own, file=self._child.stdin, flush=True)
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of {self.mode!r} failed")
        self.turns.append(json.loads(line))

    def end(self) -> None:
        """The rows of each table."""
        assert self._child.stdin and self._child.stdout
        self._child.stdin.close()
        self.rows = json.loads(self._child.stdout.readline())


def _figures(run: _Run, first: _Run, given: argparse.Namespace) -> dict[str, Any]:
    """Medians of a mode; `times`: those of its turns against the first mode's turns of the same files."""
    begin = 2 + given.before
    end = begin + given.passes
    many, few = run.turns[begin:end], run.turns[end + _WARMING - 1 :]
    wall, wall_all, cpu_all, written = zip(*many, strict=True)
    found = {
        "mode": run.mode, "many": round(statistics.median(wall), 3),
        "times": round(statistics.median(_times(many, first.turns[begin:end])), 2),
        "many_all": round(statistics.mean(wall_all), 3), "many_all_cpu": round(statistics.mean(cpu_all), 3),
        "written_mb": sum(written) // len(written) >> 20,
    }  # fmt: skip
    if few:
        found |= {
            "small": round(statistics.median(turn[0] for turn in few), 4),
            "small_cpu": round(statistics.mean(turn[2] for turn in few), 4),
        }
    return found | {"rows": run.rows, "peak_mb": run.peak.bytes >> 20, "load": round(os.getloadavg()[0], 1)}


def _times(turns: Sequence[tuple[float, ...]], others: Sequence[tuple[float, ...]]) -> list[float]:
    return [turn[0] / other[0] for turn, other in zip(turns, others, strict=True)]


def _make_files(folder: Path, given: argparse.Namespace) -> list[Path]:
    """One load, and the change files: `before` large ones, a small one, `passes` large ones, then the small ones."""
    random = np.random.default_rng(7)
    _write(folder / "1.parquet", np.arange(given.rows), random, 0)
    sizes = [given.changes] * given.before + [_SMALL] + [given.changes] * given.passes
    sizes += [_SMALL] * (_WARMING + given.rounds - 1)
    for number, size in enumerate(sizes, start=2):
        ids = random.choice(given.rows, min(size, given.rows), replace=False)
        _write(folder / f"{number}.parquet", ids, random, number, given.deletes)
    return [folder / f"{number}.parquet" for number in range(1, len(sizes) + 2)]


def _write(
    path: Path, ids: np.ndarray[Any, Any], random: np.random.Generator, n: int, share: float | None = None
) -> None:
    rows = {
        "id": ids, "n": np.full(len(ids), n), "amount": random.integers(0, 10_000, len(ids)),
        "price": random.random(len(ids)), "name": _NAMES.take(pa.array(ids % len(_NAMES))),
    }  # fmt: skip
    if share is not None:
        rows[MARKER] = pa.array(np.where(random.random(len(ids)) < share, DELETE, UPSERT), pa.int32())
    pq.write_table(pa.table(rows), path)


def _take_turns(given: argparse.Namespace) -> None:
    """Applies each file whose path comes in, and says what that took."""
    process.hide_pandas() if given.child not in PEERS else None
    apply, follow, rows = (_peer if given.child in PEERS else _lakemirror)(given)
    for line in sys.stdin:
        meter = process.Meter()
        with meter:
            begun = time.perf_counter()
            apply(Path(line.rstrip("\n")))
            seconds = time.perf_counter() - begun
            follow()
        print(json.dumps([seconds, meter.seconds, meter.cpu, meter.written]), flush=True)
    print(json.dumps(rows()))


_Runs: TypeAlias = tuple[Callable[[Path], None], Callable[[], None], Callable[[], dict[str, int]]]
"""What applies a file, what waits for all that follows, and the rows of each table."""


def _lakemirror(given: argparse.Namespace) -> _Runs:
    from lakemirror import MirroredDatabase
    from lakemirror.engines.engine import key_index
    from lakemirror.settings.settings import Settings

    folder = given.folder / "db"
    inbox = folder / "Files/LandingZone/t"
    inbox.mkdir(parents=True)
    options = {"keyColumns": ["id"], "lakemirror": MODES[given.child]}
    (inbox / "_metadata.json").write_text(json.dumps(options))
    cache = str(given.folder / "db/cache")
    mirror = MirroredDatabase(folder, engine=given.engine, cache_dir=cache)
    index = key_index(Settings(cache_dir=cache).with_environment())
    assert index is not None
    numbers = iter(range(1, 1 << 30))

    def apply(file: Path) -> None:
        target = inbox / f"{next(numbers):020}.parquet"
        os.link(file, target)
        result = mirror.sync()
        if result.failed:
            raise next(iter(result.failed.values()))

    def rows() -> dict[str, int]:
        found = sorted(path.parent for path in (folder / "Tables").glob("*/_delta_log"))
        return {path.name: _count(path) for path in found}

    return apply, index.wait, rows


def _count(table: Path) -> int:
    from lakemirror.delta import exact_json
    from lakemirror.delta.log import read_snapshot

    snapshot = read_snapshot(table)
    assert snapshot is not None
    adds = snapshot.files.values()
    rows = sum(exact_json.read(add["stats"])["numRecords"] for add in adds)
    deleted = sum((add.get("deletionVector") or {}).get("cardinality", 0) for add in adds)
    return int(rows - deleted)


def _peer(given: argparse.Namespace) -> _Runs:
    """The current table by one MERGE, versions by two or by one of a staged union, with deletion vectors."""
    from benchmarks.peers.delta import Expert

    peer = Expert(given.folder / "db")
    peer.start(0)
    spark = peer.spark
    names = ["id", "n", "amount", "price", "name"]
    tables = {name: f"delta.`{given.folder}/db/Tables/{name}`" for name in ("t", "t__history")}
    is_new = [True]

    def load(file: Path) -> None:
        rows = spark.read.parquet(str(file))
        rows.write.format("delta").option("delta.enableDeletionVectors", "true").save(f"{given.folder}/db/Tables/t")
        rows.selectExpr(*names, "n as __START_AT", "cast(null as bigint) as __END_AT").write.format("delta").option(
            "delta.enableDeletionVectors", "true"
        ).save(f"{given.folder}/db/Tables/t__history")

    def apply(file: Path) -> None:
        if is_new[0]:
            is_new[0] = False
            return load(file)
        spark.read.parquet(str(file)).createOrReplaceTempView("changes")
        for statement in _statements(tables, names, staged=given.child == PEERS[1]):
            spark.sql(statement)
        return None

    def rows() -> dict[str, int]:
        return {name: spark.sql(f"select count(*) from {place}").collect()[0][0] for name, place in tables.items()}

    return apply, lambda: None, rows


def _statements(tables: dict[str, str], names: Sequence[str], *, staged: bool) -> Iterator[str]:
    sets = ", ".join(f"t.{name} = s.{name}" for name in names)
    columns, values = ", ".join(names), ", ".join(f"s.{name}" for name in names)
    differs = " or ".join(f"not (t.{name} <=> s.{name})" for name in names if name not in ("id", "n"))
    ends, lives = f"({MARKER} = {DELETE} or {differs})", f"{MARKER} != {DELETE}"
    insert = f"insert ({columns}, __START_AT, __END_AT) values ({values}, s.n, null)"
    if staged:
        open_ones = f"changes s join {tables['t__history']} t on t.id = s.id and t.__END_AT is null"
        yield (
            f"merge into {tables['t__history']} t using (select id as key, * from changes "
            f"union all select null as key, s.* from {open_ones} where {lives} and ({differs})) s "
            f"on t.id = s.key and t.__END_AT is null when matched and {ends} then update set t.__END_AT = s.n "
            f"when not matched and {lives} then {insert}"
        )
    else:
        yield (
            f"merge into {tables['t__history']} t using changes s on t.id = s.id and t.__END_AT is null "
            f"when matched and {ends} then update set t.__END_AT = s.n"
        )
        yield (
            f"merge into {tables['t__history']} t using (select * from changes where {lives}) s "
            f"on t.id = s.id and t.__END_AT is null when not matched then {insert}"
        )
    yield (
        f"merge into {tables['t']} t using changes s on t.id = s.id "
        f"when matched and {MARKER} = {DELETE} then delete when matched then update set {sets} "
        f"when not matched and {MARKER} != {DELETE} then insert ({columns}) values ({values})"
    )


if __name__ == "__main__":
    main()
