"""Whether keys rise from change to change, so that no key is in two parts of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.engines.change_units import target

from lakemirror.engines import version_buckets
from lakemirror.engines.kernels.decode import MemoryBudget
from lakemirror.engines.kernels.row_reader import Changes
from lakemirror.engines.row_work import ChangeUnit
from lakemirror.engines.units import ChangeFiles, Shared
from lakemirror.engines.version_buckets import _parts, rising_keys

TABLE = target(id="bigint")
UNITS = tuple(ChangeUnit(f"{number}", f"{number}", number, (), rows=1, bytes=1) for number in range(3))


@pytest.mark.parametrize(
    ("chunks", "bounds"),
    [
        ([[1, 2], [3]], (1, 3)), ([[1], [], [2]], (1, 2)), ([[], []], ()),
        ([[1, 2], [2, 3]], None), ([[1, 3], [2, 4]], None), ([[1, 1]], None), ([[2, 1]], None), ([[1, None]], None),
    ],
)  # fmt: skip
def test_the_keys_of_one_unit(monkeypatch: pytest.MonkeyPatch, chunks: list[Any], bounds: object) -> None:
    def read(*_: Any, **__: Any) -> Iterator[Changes]:
        for chunk in chunks:
            rows = pa.record_batch({"id": pa.array(chunk, pa.int64())})
            yield Changes(rows, np.zeros(len(chunk), np.int8), 0)

    monkeypatch.setattr(version_buckets, "read_changes", read)
    assert list(rising_keys(Shared(TABLE, MemoryBudget(1 << 20)), ChangeFiles(0, UNITS[:1]))) == [bounds]


@pytest.mark.parametrize(
    ("bounds", "rise"),
    [
        ([(1, 3), (4, 4), (5, 9)], True), ([(1, 3), (), (4, 5)], True),
        ([(1, 3), (3, 5), (6, 6)], False), ([(1, 3), (), (2, 5)], False), ([(1, 3), None, (4, 5)], False),
    ],
)  # fmt: skip
def test_the_keys_of_several_units(bounds: list[Any], rise: bool) -> None:
    engine, work = SimpleNamespace(carry=lambda *_: iter(bounds)), SimpleNamespace(changes=UNITS)
    parts = _parts(engine, work, Shared(TABLE, MemoryBudget(1)), TABLE, 2)  # type: ignore[arg-type]
    assert (parts is not None) == rise
    assert parts is None or [unit for part in parts for unit in part] == list(UNITS)
