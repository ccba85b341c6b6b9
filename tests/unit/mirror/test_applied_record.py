"""The record of applied paths, which lies in the Delta table's own folder (contract sections 4 and 9)."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.metadata import LAST_UPDATE, SEQUENTIAL, TableMetadata
from lakemirror.mirror.position import (
    SEGMENTS,
    AppliedPaths,
    Detection,
    _read_segment,
    declared,
    parse_detection,
    sweep_segments,
)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sets(st.text(max_size=5), max_size=9), max_size=12))
def test_every_applied_path_is_there_and_no_other(batches: list[set[str]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as table:
        segments: tuple[str, ...] = ()
        seen: set[str] = set()
        for batch in batches:
            segments = AppliedPaths(table, segments).with_paths(batch)
            seen |= batch
            now = AppliedPaths(table, segments)
            assert all(path in now for path in seen)
            assert not any(path + "-" in now for path in seen if path + "-" not in seen)
        sizes = [(Path(table) / SEGMENTS / each).stat().st_size for each in segments]
        assert sizes == sorted(sizes, reverse=True)
        assert sum(sizes) >= 16 * len(seen)


def test_the_record_of_many_applies_stays_small(tmp_path: Path) -> None:
    segments: tuple[str, ...] = ()
    for n in range(1000):
        segments = AppliedPaths(tmp_path, segments).with_paths([f"f{n}"])
        assert len(segments) == (n + 1).bit_count()
    assert len(Detection(LAST_UPDATE, segments=segments).to_json()) < 400
    assert "f999" in AppliedPaths(tmp_path, segments)
    assert "f1000" not in AppliedPaths(tmp_path, segments)


def test_only_old_segments_that_nobody_names_are_swept(tmp_path: Path) -> None:
    segments = AppliedPaths(tmp_path, ()).with_paths(["a", "b", "c"])
    AppliedPaths(tmp_path, ()).with_paths(["x"])
    (young,) = AppliedPaths(tmp_path, ()).with_paths(["y"])
    (tmp_path / "segment").write_bytes(b"0" * 16)
    foreign = {"notes.txt": b"0" * 16, "a" * 32: b"somebody's", "b" * 32: b"1" * 16 + b"0" * 16}
    for name, content in foreign.items():
        (tmp_path / SEGMENTS / name).write_bytes(content)
    (tmp_path / SEGMENTS / ("c" * 32)).symlink_to(tmp_path / "segment")
    for path in [*(tmp_path / SEGMENTS).iterdir(), tmp_path / "segment"]:
        if path.name != young:
            os.utime(path, (time.time() - 100, time.time() - 100))
    assert sweep_segments(tmp_path, segments, older_than=50) == 1
    assert {p.name for p in (tmp_path / SEGMENTS).iterdir()} == {*segments, young, *foreign, "c" * 32}
    assert sweep_segments(tmp_path / "no table", (), 0) == 0


@pytest.mark.parametrize("harm", ["gone", "cut"])
def test_a_record_that_is_lost_or_cut_is_an_error(tmp_path: Path, harm: str) -> None:
    (name,) = AppliedPaths(tmp_path, ()).with_paths(["a"])
    path = tmp_path / SEGMENTS / name
    path.unlink() if harm == "gone" else path.write_bytes(path.read_bytes()[:-1])
    _read_segment.cache_clear()
    with pytest.raises(LakemirrorError) as raised:
        AppliedPaths(tmp_path, (name,))
    assert raised.value.code == "table-unreadable"


@pytest.mark.parametrize(
    "detection",
    [Detection(), Detection(SEQUENTIAL, True), Detection(LAST_UPDATE, True, ("a", "b"), 7), Detection(LAST_UPDATE)],
)
def test_a_detection_is_read_as_it_was_written(detection: Detection) -> None:
    assert parse_detection(detection.to_json(), "t") == detection
    assert (detection.to_json() == "") == detection.is_plain


@pytest.mark.parametrize("text", ["{", "[]", '{"what": 1}', "7"])
def test_a_property_that_makes_no_sense_is_an_error(text: str) -> None:
    with pytest.raises(LakemirrorError) as raised:
        parse_detection(text, "t")
    assert raised.value.code == "table-unreadable"


BY_TIME = TableMetadata(file_detection_strategy=LAST_UPDATE)
PARTITIONED = TableMetadata(partitioned=True)


def test_what_may_be_declared_later() -> None:
    assert declared(Detection(), TableMetadata(), 5, "t") == Detection()
    assert declared(Detection(), BY_TIME, 5, "t") == Detection(LAST_UPDATE, numbered=5)
    assert declared(Detection(), PARTITIONED, 5, "t") == Detection(SEQUENTIAL, True)
    known = Detection(LAST_UPDATE, segments=("a",), numbered=5)
    assert declared(known, BY_TIME, 9, "t") == known


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (Detection(LAST_UPDATE), TableMetadata()),
        (Detection(LAST_UPDATE), PARTITIONED),
        (Detection(SEQUENTIAL, True), TableMetadata()),
        (Detection(SEQUENTIAL, True), TableMetadata(partitioned=True, file_detection_strategy=LAST_UPDATE)),
        (Detection(LAST_UPDATE, True), BY_TIME),
    ],
)
def test_what_may_not(before: Detection, now: TableMetadata) -> None:
    with pytest.raises(LakemirrorError) as raised:
        declared(before, now, 5, "t")
    assert raised.value.code == "detection-strategy-changed"
