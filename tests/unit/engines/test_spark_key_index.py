"""The key index helps Spark's tasks: the driver asks it first, and tasks read no file that it answers for. Keys that
the driver may read itself are cached, so no task reads them again.

The tasks of the Spark engine run here in this process, without Spark.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from tests.jobs_here import JobsHere
from tests.mirror import Mirror, target_of, unit

from lakemirror.engines import unit_kernels
from lakemirror.engines.kernels.decode import DEFAULT
from lakemirror.engines.kernels.write import FileSizes
from lakemirror.engines.local_engine import LocalEngine
from lakemirror.engines.spark import SparkEngine
from lakemirror.keys import key_index, look_up
from lakemirror.keys.key_index import KeyIndex
from lakemirror.landing_zone.row_markers import ROW_MARKER, UPSERT

FILES, ROWS, GROUPS = 3, 4_000, 4
COLUMNS = {"id": pa.string(), "n": pa.int64()}


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How many row groups of each data file tasks have read to find keys, since it was cleared."""
    seen = Counter[str]()
    find = unit_kernels.find

    def noted(group: Any, *given: Any, **options: Any) -> Any:
        seen[Path(group.file.place).name] += 1
        return find(group, *given, **options)

    monkeypatch.setattr(unit_kernels, "find", noted)
    monkeypatch.setattr(key_index, "FEWEST_ROWS", ROWS)
    look_up.LATELY_READ.clear()
    yield seen
    look_up.LATELY_READ.clear()


def changes(place: Path, number: int, rows: dict[str, int], **options: Any) -> Any:
    content = pa.table({"id": list(rows), "n": pa.array(rows.values(), pa.int64())})
    content = content.append_column(ROW_MARKER, pa.array([UPSERT] * len(rows), pa.int8()))
    return unit(place, number, content, **options)


def test_tasks_read_only_files_that_have_no_index(tmp_path: Path, read: Counter[str]) -> None:
    random = Random(5)
    keys = [str(uuid.UUID(int=random.getrandbits(128), version=4)) for _ in range(FILES * ROWS)]
    rows: dict[str, int] = {}
    mirror = Mirror(tmp_path / "t", target_of(tmp_path / "t", COLUMNS, ("id",)))
    local = LocalEngine(threads=1, sizes=FileSizes(rows_a_group=ROWS // GROUPS))
    for number in range(FILES):
        new = dict.fromkeys(keys[number * ROWS : (number + 1) * ROWS], number)
        rows.update(new)
        assert mirror.apply(local, [changes(tmp_path, 1 + number, new)], UPSERT).error is None
    large = {Path(path).name for path in mirror.files}
    assert len(large) == FILES

    index = KeyIndex(tmp_path / "keys", 1 << 30)
    engine = SparkEngine(Mock(), few_bytes=ROWS * 40 // 2)  # the driver reads the keys of half a file
    engine._jobs = jobs = JobsHere()  # type: ignore[assignment]
    numbers = iter(range(100, 200))

    def applied(with_index: KeyIndex | None) -> Counter[str]:
        """Changes a hundred rows of all files. Returns the row groups of large files that tasks have read for it."""
        read.clear()
        jobs.stages.clear()
        look_up.LATELY_READ.clear()  # else the driver has keys in memory
        number = next(numbers)
        changed = dict.fromkeys(random.sample(keys, 100), number)
        rows.update(changed)
        engine.index = with_index
        assert mirror.apply(engine, [changes(tmp_path, number, changed)], UPSERT).error is None
        assert mirror.bag() == Counter(rows.items())
        return Counter({name: count for name, count in read.items() if name in large})

    without = applied(None)
    assert set(without) == large and sum(without.values()) >= FILES
    assert applied(index) == without, "the first look-up finds no index and asks for one"
    index.wait()
    assert len(list((tmp_path / "keys").rglob("*.keys"))) == FILES
    assert not applied(index), "tasks read no row group of a file that has an index"
    assert jobs.stages == [], "few changes are read and written by the driver, and tasks find nothing large to do"

    one, *_ = (tmp_path / "keys").rglob("*.keys")
    one.write_bytes(one.read_bytes()[:-1000])
    look_up.LATELY_READ.clear()
    found = applied(index)
    assert len(found) == 1 and found.items() <= without.items(), "tasks read the file whose index is damaged"


@pytest.mark.parametrize("cache", [192 << 20, ROWS])
def test_the_driver_reads_so_many_keys_as_it_may_and_tasks_the_others(
    tmp_path: Path, read: Counter[str], monkeypatch: pytest.MonkeyPatch, cache: int
) -> None:
    """`cache`: bytes of keys that may be cached. If those of the table are more, reading them here helps no apply."""
    monkeypatch.setattr(look_up.LATELY_READ, "most_bytes", cache)
    monkeypatch.setattr(look_up.LATELY_READ, "_left", look_up.LATELY_READ._left)  # set by `clear`
    keys = [f"{number:036}" for number in Random(6).sample(range(10**9), FILES * ROWS)]
    rows: dict[str, int] = {}
    mirror = Mirror(tmp_path / "t", target_of(tmp_path / "t", COLUMNS, ("id",)))
    for number in range(FILES):
        new = dict.fromkeys(keys[number * ROWS : (number + 1) * ROWS], number)
        rows.update(new)
        assert mirror.apply(LocalEngine(threads=1), [changes(tmp_path, 1 + number, new)], UPSERT).error is None
    large, by_tasks = {Path(path).name for path in mirror.files}, []
    engine = SparkEngine(Mock(), few_bytes=ROWS * 40 * 3 // 2)  # the keys of one file, and not of two
    engine._jobs = JobsHere()  # type: ignore[assignment]
    look_up.LATELY_READ.clear()
    for number in range(FILES + 1):
        read.clear()
        changed = dict.fromkeys(keys[:: ROWS // 20], 100 + number)
        rows.update(changed)
        assert mirror.apply(engine, [changes(tmp_path, 100 + number, changed)], UPSERT).error is None
        assert mirror.bag() == Counter(rows.items())
        by_tasks.append(len(large & set(read)))
    assert by_tasks == ([2, 1, 0, 0] if cache > ROWS else [FILES] * 4)


def test_the_driver_reads_the_keys_of_changes_and_tasks_their_rows(tmp_path: Path) -> None:
    """Keys are few bytes where rows are many, and come to the driver anyway: so it reads more of them."""
    columns = {"id": pa.int64(), "text": pa.string()}
    content = pa.table({"id": range(ROWS), "text": ["x" * 100] * ROWS})
    content = content.append_column(ROW_MARKER, pa.array([UPSERT] * ROWS, pa.int8()))
    stages = []
    for few in (ROWS * 17 // 4, ROWS * 17 // 4 - 1):
        mirror = Mirror(tmp_path / f"t{few}", target_of(tmp_path / f"t{few}", columns, ("id",)))
        engine = SparkEngine(Mock(), few_bytes=few)
        engine._jobs = jobs = JobsHere()  # type: ignore[assignment]
        for number in (1, 2):
            assert mirror.apply(engine, [unit(tmp_path, number, content)], UPSERT).error is None
        assert mirror.bag() == Counter(dict.fromkeys(((row, "x" * 100) for row in range(ROWS)), 1))
        stages.append(jobs.stages)
    first, second = ["write_kept"], ["find_rows", "write_kept"]
    assert stages == [first + second, ["read_keys", *first, "read_keys", *second]]


@pytest.mark.parametrize("memory", [DEFAULT, 256 * ROWS])
def test_on_one_machine_tasks_write_and_the_driver_does_all_that_keys_need(tmp_path: Path, memory: int) -> None:
    """With little memory, keys are spilled as by the local engine; on a cluster tasks would shuffle them."""
    mirror = Mirror(tmp_path / "t", target_of(tmp_path / "t", COLUMNS, ("id",)))
    engine = SparkEngine(Mock(), memory, few_bytes=1, keys_here=True)
    assert engine.fold_memory == LocalEngine(memory).fold_memory
    engine._jobs = jobs = JobsHere()  # type: ignore[assignment]
    rows: dict[str, int] = {}
    for number in (1, 2, 3):
        new = {f"{key:036}": number for key in range(number * ROWS // 2, number * ROWS // 2 + ROWS)}
        rows.update(new)
        assert mirror.apply(engine, [changes(tmp_path, number, new)], UPSERT).error is None
        assert mirror.bag() == Counter(rows.items())
    assert jobs.stages == ["write_kept"] * 3
