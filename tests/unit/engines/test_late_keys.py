"""For late changes, few keys are looked up in few files: the versions are those of all that is remembered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.change_tables import marked
from tests.landing import declare, put
from tests.rounds import rounds
from tests.table_rows import read_table

from lakemirror import MirroredDatabase
from lakemirror.delta.log import read_snapshot
from lakemirror.engines import versions, write_versions
from lakemirror.engines.row_work import TargetColumn
from lakemirror.engines.sequence_bounds import Span, files_of_keys
from lakemirror.mirror.history.version_plans import OFF_PROPERTY

N = TargetColumn("n", "n", "bigint")


def rows(found: versions.ChangedVersions) -> list[Any]:
    known = found.known.select(["id", "__START_AT"]).take(pa.array(found.rows.removed)).to_pylist()
    return [*(sorted(map(repr, part)) for part in (known, found.rows.open.to_pylist(), found.rows.closed.to_pylist())),
            found.beyond]  # fmt: skip


@pytest.mark.parametrize("deletes", ["hard", "soft", "ignore"])
@pytest.mark.parametrize("seed", range(rounds(2, 40)))
def test_keys_that_need_no_memory_get_the_versions_that_they_get_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deletes: str, seed: int
) -> None:
    random = np.random.default_rng(seed)
    one, counts = versions.changed_versions, [0, 0]
    needed = versions._memory_needed

    def all_needed(*given: Any) -> np.ndarray:
        counts[0] += len(given[3].markers)
        return np.arange(len(given[3].markers))

    def some_needed(*given: Any) -> np.ndarray:
        found = needed(*given)
        counts[1] += len(found)
        return found

    def both(*given: Any) -> versions.ChangedVersions:
        with monkeypatch.context() as patched:
            patched.setattr(versions, "_memory_needed", all_needed)
            patched.setattr(versions, "_ends", lambda *_: None)
            expected = one(*given)
        with monkeypatch.context() as patched:
            patched.setattr(versions, "_memory_needed", some_needed)
            found = one(*given)
        assert rows(found) == rows(expected)
        return found

    monkeypatch.setattr(write_versions, "changed_versions", both)
    track = {"track": ["v"]} if seed % 2 else {}
    declare(tmp_path, "t", ["id"], lakemirror={
        "sequence": "n", "deletes": deletes, "history": {"mode": "scd2", **track}
    })  # fmt: skip
    for number in range(1, 13):
        count = int(random.integers(1, 12))
        put(tmp_path, "t", number, marked(
            random.choice([4, 4, 4, 4, 2], count), id=random.integers(0, 5, count),
            n=random.integers(number, number + 25, count),
            v=random.integers(0, 2, count), w=random.integers(0, 3, count),
        ))  # fmt: skip
    result = MirroredDatabase(tmp_path, settle=0, batch_files=1).sync()
    assert not result.failed, result.failed
    assert 0 < counts[1] < counts[0]


def test_versions_that_were_off_for_a_while_need_all_that_is_remembered(tmp_path: Path) -> None:
    """A delete that came meanwhile is remembered, and no version ends there."""

    def step(number: int, options: dict[str, str], *given: tuple[int, int, str | None]) -> None:
        declare(tmp_path, "t", ["id"], lakemirror={"sequence": "n", **options})
        marks, at, values = (list(each) for each in zip(*given, strict=True))
        put(tmp_path, "t", number, marked(marks, id=[1] * len(at), n=at, v=pa.array(values, pa.string())))
        result = MirroredDatabase(tmp_path, settle=0).sync()
        assert not result.failed, result.failed

    step(1, {"history": "scd2"}, (4, 1, "a"))
    step(2, {}, (2, 5, None), (4, 9, "c"))
    step(3, {"history": "scd2"}, (4, 12, "d"))
    history = read_snapshot(tmp_path / "Tables/t__history")
    assert history is not None and history.metadata.configuration[OFF_PROPERTY] == "true"
    step(4, {"history": "scd2"}, (4, 3, "x"))
    table = read_table(tmp_path / "Tables/t__history").to_pylist()
    found = sorted((r["__START_AT"], r["__END_AT"], r["v"]) for r in table if r["__END_AT"] is not None)
    assert found == [(1, 3, "a"), (3, 5, "x"), (9, 12, "c")]


def files(*bounds: tuple[int, int] | None) -> list[dict[str, Any]]:
    return [
        {"stats": json.dumps({"minValues": {"n": each[0]}, "maxValues": {"n": each[1]}} if each else {})}
        for each in bounds
    ]


@pytest.mark.parametrize("seed", range(30))
def test_each_key_is_looked_up_in_every_file_of_its_span_and_no_file_comes_twice(seed: int) -> None:
    random = np.random.default_rng(seed)
    bounds = [tuple(sorted(map(int, random.integers(0, 50, 2)))) if random.random() < 0.9 else None for _ in range(20)]
    count = int(random.integers(1, 40))
    lows = random.integers(0, 50, count)
    highs = lows + random.integers(-3, 10, count)
    is_open = random.random(count) < 0.3
    span = Span(pa.array(lows), pa.array(highs, mask=is_open) if seed % 3 else None)
    found = list(files_of_keys(files(*bounds), N, span, count))
    numbers = [number for chosen, _ in found for number in chosen]
    assert len(numbers) == len(set(numbers))
    asked = {(number, key) for chosen, keys in found for number in chosen for key in keys.tolist()}
    for number, each in enumerate(bounds):
        for key in range(count):
            most = None if is_open[key] or not seed % 3 else highs[key]
            if each is None or (each[1] >= lows[key] and (most is None or each[0] <= most)):
                assert (number, key) in asked
    assert all((np.diff(keys) > 0).all() for _, keys in found)


def test_one_key_from_long_ago_does_not_make_the_others_be_looked_up_there() -> None:
    lows = pa.array([1, *range(100, 131)])
    found = {tuple(chosen): len(keys) for chosen, keys in files_of_keys(files((0, 9), (90, 140)), N, Span(lows), 32)}
    assert found == {(0,): 2, (1,): 32}


def test_without_a_span_all_keys_are_looked_up_in_all_files() -> None:
    for column, span in ((None, Span(pa.array([5, 6]))), (N, None)):
        ((chosen, keys),) = files_of_keys(files((0, 1), None), column, span, 2)
        assert chosen == [0, 1] and keys.tolist() == [0, 1]
    assert not list(files_of_keys(files((0, 1)), N, None, 0))
