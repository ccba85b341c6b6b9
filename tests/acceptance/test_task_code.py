"""What tasks carry: every module they import is among it, and it works where lakemirror is not installed."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.mirror import target_of

from lakemirror.engines import unit_kernels
from lakemirror.engines.kernels.decode import MemoryBudget
from lakemirror.engines.kernels.write import write_rows
from lakemirror.engines.row_work import ChangeUnit, RowWork, Target
from lakemirror.engines.spark import SparkEngine, task_code
from lakemirror.engines.spark.messages import dumps, loads, packed, unpacked
from lakemirror.engines.spark.store_options import StoreOptions
from lakemirror.engines.spark.task_code import task
from lakemirror.engines.unit_kernels import read_rows
from lakemirror.engines.units import ChangeFiles, DataFiles, Shared, TouchedFile, groups_of, shared_out
from lakemirror.errors import LakemirrorError
from lakemirror.keys.wanted_keys import WantedKeys
from lakemirror.storage import connections

READING = dumps((read_rows, Shared(Target("t", ()), MemoryBudget(1 << 20))))

ALONE = """
import pickle, sys
import pyarrow as pa
assert not any(name.startswith("lakemirror") for name in sys.modules)
run = pickle.load(sys.stdin.buffer)
batches = run(iter([pa.record_batch({"id": [0]})]))
sys.stdout.buffer.write(pickle.dumps([batch.to_pylist() for batch in batches]))
"""


def test_a_task_runs_where_lakemirror_is_not_installed(tmp_path: Path) -> None:
    from pyspark import cloudpickle

    absent = ChangeUnit(str(tmp_path / "absent.parquet"), "absent.parquet", 1, (), 1, 1)
    run = task("results", READING, [{0: dumps(ChangeFiles(0, (absent,)))}])
    elsewhere = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    guard = "import sys; sys.path[:] = [p for p in sys.path if not p.endswith('/src')]\n"
    done = subprocess.run(
        [sys.executable, "-c", guard + ALONE], input=cloudpickle.dumps(run), env=elsewhere, capture_output=True,
        check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    (rows,) = pickle.loads(done.stdout)
    error = loads(rows[0]["result"])
    assert isinstance(error, LakemirrorError)
    assert (error.code, error.message, error.file) == (
        "concurrent-commit", "absent.parquet is gone", "absent.parquet",
    )  # fmt: skip


def test_threads_may_need_the_code_at_the_same_time() -> None:
    """`ast.parse` in several threads fails in CPython 3.11, and so did the first batches of several tables."""
    task_code._bundle.cache_clear()
    started = threading.Barrier(4)

    def bundle() -> str:
        started.wait()
        return task_code.bundle()[1]

    with ThreadPoolExecutor(4) as pool:
        assert len({each.result() for each in [pool.submit(bundle) for _ in range(4)]}) == 1
    assert task_code._bundle.cache_info().misses == 1


def test_what_is_installed_is_found_behind_what_is_carried() -> None:
    """A worker that ran a task of the engine may be asked for the data source, which is not carried."""
    from pyspark import cloudpickle

    absent = ChangeUnit("absent.parquet", "absent.parquet", 1, (), 1, 1)
    run = task("results", READING, [{0: dumps(ChangeFiles(0, (absent,)))}])
    script = ALONE + "from lakemirror.publisher import Landing\n"
    done = subprocess.run(
        [sys.executable, "-c", script], input=cloudpickle.dumps(run), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


def test_another_version_of_the_code_replaces_the_one_before(tmp_path: Path) -> None:
    import importlib.util
    import marshal
    import zlib

    from lakemirror.engines.spark import carrier

    script = """
import sys, pickle
exec(pickle.load(sys.stdin.buffer))
for number in (1, 2, 2):
    print(next(carried(codes[number], str(number), "lakemirror.told:told")(iter(()))))
"""

    def code(number: int) -> bytes:
        modules = {
            "lakemirror": (True, marshal.dumps(compile("", "a", "exec"))),
            "lakemirror.told": (False, marshal.dumps(compile(f"def told(_): yield {number}", "b", "exec"))),
        }
        return zlib.compress(marshal.dumps((importlib.util.MAGIC_NUMBER, modules)))

    source = Path(carrier.__file__).read_text() + f"\ncodes = { ({n: code(n) for n in (1, 2)})!r}\n"
    done = subprocess.run(
        [sys.executable, "-c", script], input=pickle.dumps(source), capture_output=True, check=False, cwd=tmp_path
    )
    assert done.stdout.split() == [b"1", b"2", b"2"], done.stderr.decode()


OPTIONS = """
import json, pickle, sys
from pyspark import SparkFiles
SparkFiles._root_directory, SparkFiles._is_running_on_worker = sys.argv[1], True
for run in pickle.load(sys.stdin.buffer):
    assert list(run(iter(()))) == []
    connections = sys.modules.get("lakemirror.storage.connections")
    print(json.dumps(connections.given_options() if connections else {}))
"""


def test_a_task_has_the_options_of_stores_that_were_sent_with_it_and_no_others(tmp_path: Path) -> None:
    """By a Broadcast, which has a value on an executor, and by a file."""
    from pyspark import cloudpickle

    sent = {"": {"aws_region": "here"}, "s3://lake": {"aws_access_key_id": "a-secret"}}
    other = {"": {"aws_region": "there"}}
    (tmp_path / "options.json").write_text(json.dumps(sent))
    references = [None, SimpleNamespace(value=sent), SimpleNamespace(value=other), "options.json", None]
    runs = [task("results", READING, [], store_options=each) for each in references]
    done = subprocess.run(
        [sys.executable, "-c", OPTIONS, str(tmp_path)], input=cloudpickle.dumps(runs), capture_output=True, check=False
    )
    assert [json.loads(line) for line in done.stdout.splitlines()] == [{}, sent, other, sent, {}], done.stderr.decode()


def test_options_are_sent_once_and_again_when_they_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_options", {})
    context = Mock()
    context.broadcast.side_effect = lambda value: SimpleNamespace(value=value)
    options = StoreOptions(Mock(sparkContext=context), is_remote=False)
    assert options.reference() is None
    connections.give_options("s3://lake", {"AWS_REGION": "here"})
    first = options.reference()
    assert options.reference() is first and first.value == {"s3://lake": {"aws_region": "here"}}
    connections.give_options("s3://lake", {"AWS_REGION": "there"})
    assert options.reference().value == {"s3://lake": {"aws_region": "there"}}
    connections.give_options("s3://lake", {})
    assert options.reference() is None
    assert context.broadcast.call_count == 2


def test_options_for_a_connect_server_are_a_file_that_is_gone_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_options", {"": {"aws_region": "here"}})
    seen: list[tuple[str, int, object]] = []

    def add(path: str, *, file: bool) -> None:
        assert file
        seen.append((path, Path(path).parent.stat().st_mode & 0o077, json.loads(Path(path).read_text())))

    name = StoreOptions(Mock(addArtifacts=add), is_remote=True).reference()
    ((path, open_to_others, content),) = seen
    assert Path(path).name == name and not Path(path).exists()
    assert not open_to_others and content == {"": {"aws_region": "here"}}


@given(st.sets(st.integers(0, 1 << 20)) | st.sets(st.integers(0, 300)))
def test_row_numbers_come_back(numbers: set[int]) -> None:
    found = unpacked(packed(np.array(sorted(numbers), np.int64)))
    assert found.dtype == np.int64 and found.tolist() == sorted(numbers)


@given(st.lists(st.integers(0, 50)), st.integers(1, 9), st.integers(1, 60))
def test_groups_hold_all_in_order(weights: list[int], parallelism: int, most: int) -> None:
    groups = groups_of(weights, parallelism, weight=lambda each: each, most=most)
    assert [each for group in groups for each in group] == weights
    assert all(groups) and len(groups) <= max(1, -(-sum(weights) // most), parallelism)


def test_a_group_ends_before_an_item_of_which_most_would_be_too_much() -> None:
    assert shared_out([20, 20, 20, 20, 3, 3, 3, 3], 2, lambda each: each) == [[20, 20], [20, 20, 3, 3, 3, 3]]
    assert shared_out([3, 20, 20, 20], 2, lambda each: each) == [[3, 20], [20, 20]]


@pytest.mark.parametrize("at_once", [1, 1 << 20])
def test_old_values_of_a_unit_are_given_on_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(unit_kernels, "_VALUES_AT_ONCE", at_once)
    target = target_of(tmp_path, {"k": pa.int64(), "v": pa.string()}, ("k",))
    adds = [write_rows([pa.record_batch({"k": [n, 9], "v": [f"v{n}", "x"]})], target)[0] for n in range(3)]
    unit = DataFiles(tuple(TouchedFile(number, add, np.array([0])) for number, add in enumerate(adds)))
    tables = list(unit_kernels.read_values(Shared(target, MemoryBudget(1 << 20), names=("v",)), unit))
    assert [table["v"].to_pylist() for table in tables] == (
        [["v0"], ["v1"], ["v2"]] if at_once == 1 else [["v0", "v1", "v2"]]
    )


@pytest.mark.parametrize("numbers", [range(0), range(1_000_000), range(0, 1 << 33, 1 << 30)])
def test_row_numbers_take_few_bytes(numbers: range) -> None:
    data = packed(np.array(numbers, np.int64))
    assert len(data) < 1500
    assert unpacked(data).tolist() == list(numbers)


def test_tables_flags_and_keys_come_back() -> None:
    table = pa.table({"k": ["a", None], "n": [1, 2]})
    flags = np.array([0, 1, 2], np.uint8)
    message = loads(dumps((table.slice(1), np.array([3, 9], np.int64), flags, WantedKeys(table), MemoryBudget(7))))
    assert message[0].equals(table.slice(1)) and message[1].tolist() == [3, 9] and message[2].tolist() == [0, 1, 2]
    assert message[3].keys.equals(table) and message[4].size == 7


def test_a_spark_that_is_gone_is_not_taken_for_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop ends where Spark's process is gone; a store that does not answer would be waited for."""

    class Gone:
        """A session whose JVM was killed."""

        sparkContext = property(lambda self: self)
        defaultParallelism = 2

        def getLocalProperty(self, _: str) -> None:
            raise ConnectionRefusedError(111, "Connection refused")

        def range(self, *_: int) -> Gone:
            return self

        def mapInArrow(self, *_: object) -> Gone:
            return self

    class Bare(Gone):
        """A session of a PySpark that lacks a package."""

        def mapInArrow(self, *_: object) -> Gone:
            raise ImportError("Pandas >= 2.2.0 must be installed")

    monkeypatch.setattr(connections, "_options", {})  # with options the engine asks the session for a broadcast first
    unit = ChangeUnit(str(tmp_path / "1.parquet"), "1.parquet", 1, (), 1, 1)
    with pytest.raises(LakemirrorError, match="Pandas") as caught:
        SparkEngine(Bare(), few_bytes=0).run(RowWork(Target(str(tmp_path), ()), (unit,), True, 0))  # type: ignore[arg-type]
    assert caught.value.code == "spark-unsupported"
    with pytest.raises(ConnectionRefusedError):
        SparkEngine(Gone(), few_bytes=0).run(RowWork(Target(str(tmp_path), ()), (unit,), True, 0))  # type: ignore[arg-type]
