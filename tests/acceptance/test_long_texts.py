"""Texts of many megabytes: few copies of them, the same statistics, the same rows."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.landing import MARKER, declare, folder, put

from lakemirror.delta.long_texts import KEPT, LONG, least_and_most, long_columns
from lakemirror.delta.schema import Column
from lakemirror.delta.statistics import Tally, UnsafeBounds
from lakemirror.engines.kernels.decode import MemoryBudget, longest_stored
from lakemirror.engines.kernels.write import write_rows
from lakemirror.engines.row_work import Target, TargetColumn

SIZE, MEMORY, LITTLE = 40 << 20, 64 << 20, 16 << 20
APPLIED, REWRITTEN = 5, 7  # times the largest value, beyond `memory` and what the process takes for a small one
SYNC = """
import json, re, sys
from pathlib import Path
from lakemirror import MirroredDatabase
done = MirroredDatabase(sys.argv[1], engine="local", maintenance=False, memory=int(sys.argv[2])).sync()
peak = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())  # getrusage begins with the parent's
print(json.dumps([len(done.failed), int(peak[1]) * 1024]))
"""

REWRITE = """
import json, re, sys
from pathlib import Path
from lakemirror.engines.kernels.compact import compact
from lakemirror.engines.kernels.rewrite import rewrite_file
from lakemirror.engines.row_work import RewriteWork, Target, TargetColumn
columns = (TargetColumn("id", "id", "bigint"), TargetColumn("v", "v", "string"))
target, adds = Target(sys.argv[1], columns, key_columns=("id",)), json.loads(sys.argv[3])
if sys.argv[4] == "compact":
    made = compact(RewriteWork(target, tuple(adds), 1), memory=int(sys.argv[2]) // 2)  # as engines call it
else:
    made = [new for add in adds for new in rewrite_file(add, target, target)]
peak = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
print(json.dumps([sum(json.loads(add["stats"])["numRecords"] for add in made) - 4, int(peak[1]) * 1024]))
"""


def text(size: int) -> str:
    return ("0123456789abcdef" * (size // 16 + 1))[:size]


def publish(database: Path, kind: str, size: int) -> None:
    """The rows 1 to 3, of which the second has a text of so many bytes; `files`: four files with such a row."""
    declare(database, "t", ["id"], **({"fileFormat": "CSV"} if kind == "delimited" else {}))
    if kind == "delimited":
        rows = f"id,v,{MARKER}\n1,a,4\n2,{text(size)},4\n3,b,4\n"
        (folder(database, "t") / f"{1:020}.csv").write_text(rows)
    elif kind == "files":
        for number in range(1, 5):
            rows = {"id": [number], "v": [text(size)], MARKER: pa.array([4], pa.int32())}
            put(database, "t", number, rows, use_dictionary=False)
    else:
        rows = {"id": [1, 2, 3], "v": ["a", text(size), "b"], MARKER: pa.array([4] * 3, pa.int32())}
        put(database, "t", 1, rows, use_dictionary=kind == "dictionary")


def peak(database: Path, kind: str, size: int, memory: int) -> int:
    """The most bytes that a process has held which applies such files."""
    publish(database, kind, size)
    return run(SYNC, str(database), str(memory))


def rewritten(folder: Path, work: str, size: int, memory: int) -> int:
    """The same of a process that writes a data file of four rows again; each row has such a text."""
    folder.mkdir()
    target = Target(str(folder), (TargetColumn("id", "id", "bigint"), TargetColumn("v", "v", "string")), ("id",))
    rows = pa.record_batch({"id": range(4), "v": [text(size)] * 4})
    adds = write_rows([rows], target)
    return run(REWRITE, str(folder), str(memory), json.dumps(adds), work)


def run(script: str, *words: str) -> int:
    """The most bytes that a process with this script has held; it prints 0, where all is well, and them."""
    command = [sys.executable, "-c", script, *words]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert answer.returncode == 0, answer.stderr
    failed, found = json.loads(answer.stdout)
    assert not failed
    return int(found)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is read from /proc")
@pytest.mark.parametrize(
    ("kind", "memory"),
    [
        ("files", MEMORY),
        pytest.param("dictionary", MEMORY, marks=pytest.mark.full),
        pytest.param("plain", MEMORY, marks=pytest.mark.full),
        pytest.param("delimited", 40 * SIZE, marks=pytest.mark.full),
    ],
)
def test_a_long_text_takes_few_times_its_size(tmp_path: Path, kind: str, memory: int) -> None:
    usual = peak(tmp_path / "small", kind, 1000, memory)
    found = peak(tmp_path / "large", kind, SIZE, memory)
    assert found - usual - memory <= APPLIED * SIZE, f"{(found - usual - memory) / SIZE:.1f} times"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is read from /proc")
@pytest.mark.parametrize("work", ["compact", pytest.param("rewrite", marks=pytest.mark.full)])
def test_files_with_long_texts_are_written_again_in_few_times_their_size(tmp_path: Path, work: str) -> None:
    usual = rewritten(tmp_path / "small", work, 1000, LITTLE)
    found = rewritten(tmp_path / "large", work, SIZE, LITTLE)
    bound = LITTLE if work == "compact" else 0
    assert found - usual - bound <= REWRITTEN * SIZE, f"{(found - usual - bound) / SIZE:.1f} times"


def test_bounds_of_long_texts_are_those_of_their_beginnings() -> None:
    long = text(LONG + 5)
    for values in (
        ["b", "ü" + long, None, "a" + long], ["x", None, "y" * KEPT], [None, long], ["€" * LONG, "z"], ["a", "b"],
    ):  # fmt: skip
        array = pa.array(values, pa.string())
        known = [value for value in values if value is not None]
        low, high = least_and_most(array)
        assert (low[:KEPT], high[:KEPT]) == (min(known)[:KEPT], max(known)[:KEPT])
        assert least_and_most(pa.concat_arrays([pa.array(["0" * 9]), array]).slice(1)) == (low, high)
        tally, whole = Tally([Column("v", "string")]), Tally([Column("v", "string")])
        tally.add(pa.RecordBatch.from_arrays([array], ["v"]))
        whole.rows, whole.nulls = len(values), {"v": values.count(None)}
        whole.widen("v", min(known), max(known))
        assert tally.stats() == whole.stats()
    assert least_and_most(pa.array([b"\xff" * (LONG + 1), b"a"])) == (b"a", b"\xff" * KEPT)


@pytest.mark.parametrize("lowest", [True, False])
def test_a_footer_with_a_bound_that_cannot_be_compared(tmp_path: Path, lowest: bool) -> None:
    """The file is written again: its bounds are neither trusted nor called wrong."""
    long = text(LONG + 5)
    rows = pa.table({"v": [long, "z" if lowest else "!"]})
    pq.write_table(rows, tmp_path / "x", use_dictionary=False)
    group = pq.read_metadata(tmp_path / "x").row_group(0)
    tally = Tally([Column("v", "string")])
    tally.add(rows.to_batches()[0])
    tally.check(group, 0)  # Arrow writes no such bound

    class Told:
        has_null_count, has_min_max = False, True
        min_raw, max_raw = (long.encode(), b"z") if lowest else (b"!", long.encode())

    class Chunk:
        num_values, path_in_schema, encodings, statistics = 2, "v", (), Told()

    class Group:
        num_rows, num_columns = 2, 1

        def column(self, _: int) -> Chunk:
            return Chunk()

    with pytest.raises(UnsafeBounds):
        tally.check(Group(), 0)  # type: ignore[arg-type]


def test_a_column_with_long_texts_has_no_bounds_in_its_footer(tmp_path: Path) -> None:
    target = Target(str(tmp_path), (TargetColumn("id", "id", "bigint"), TargetColumn("v", "v", "string")))
    short = pa.RecordBatch.from_pydict({"id": list(range(300_000)), "v": ["s"] * 300_000})
    long = pa.RecordBatch.from_pydict({"id": [-1], "v": [text(LONG + 5)]})
    assert (long_columns([short]), long_columns([short, long])) == (frozenset(), frozenset("v"))
    adds = write_rows([short, long], target)
    assert [json.loads(add["stats"])["numRecords"] for add in adds] == [262_144, 37_857]
    files = [pq.ParquetFile(tmp_path / add["path"]) for add in adds]
    assert [file.metadata.row_group(0).column(1).is_stats_set for file in files] == [True, False]
    assert all(file.metadata.row_group(0).column(0).is_stats_set for file in files)
    assert json.loads(adds[1]["stats"])["maxValues"]["v"] == "s"
    assert pa.concat_tables([file.read() for file in files]).equals(pa.Table.from_batches([short, long]))


def test_the_longest_of_few_values_in_a_dictionary() -> None:
    stored = b"".join(len(each).to_bytes(4, "little") + each for each in (b"a", b"b" * 70_000, b""))
    assert longest_stored(stored, 3) == 70_000
    for broken, values in ((stored[:-1], 3), (stored, 2), (stored, 4), (stored + b"x", 3)):
        assert longest_stored(broken, values) is None


def test_a_budget_that_is_waited_for() -> None:
    budget = MemoryBudget(10)
    assert budget.take(8) and not budget.take(8)
    taken = threading.Event()
    waiting = threading.Thread(target=lambda: (budget.take(10, waits=True), taken.set()))
    waiting.start()
    budget.give(4)
    assert not taken.wait(0.05)
    budget.give(4)
    assert taken.wait(30)
    waiting.join()
    assert not budget.take(1)
