"""Which files come next (contract section 4, sequential names)."""

from __future__ import annotations

import io
import os
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from folders import (
    FOOTER,
    ORDERS,
    Look,
    entry,
    file_name,
    folder,
    look_at,
    parquet,
    patient,
    seen,
    sequence,
    storage_with,
    write,
)  # fmt: skip
from hypothesis import given
from hypothesis import strategies as st

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.change_file import Readiness, TableFiles, Waiting, footer_reader, ignored
from lakemirror.landing_zone.metadata import LAST_UPDATE, TableMetadata, parse_metadata
from lakemirror.landing_zone.zone import TableFolder, scan
from lakemirror.storage import Entry, LocalStorage

NOW, SETTLE = 10_000.0, 30.0
CSV = TableMetadata(file_format="CSV", file_extension="csv")


class Footers:
    """Reads no file; remembers what it was asked for, and fails where it is told to."""

    def __init__(self, **failures: Exception) -> None:
        self.asked: list[str] = []
        self.failures = failures

    def __call__(self, asked: Entry) -> pq.FileMetaData:
        self.asked.append(asked.name)
        failure = self.failures.get(f"n{int(asked.name[:20])}")
        if failure is not None:
            raise failure
        return FOOTER


def look(
    lies: TableFolder,
    after: int = 0,
    *,
    footers: Footers | None = None,
    limit: int | None = None,
    etags: dict[str, str] | None = None,
    metadata: TableMetadata | None = None,
) -> Look:
    files = TableFiles(lies, metadata or TableMetadata())
    return look_at(files, sequence(after), Readiness(NOW, SETTLE, footers or Footers()), limit, etags)


def numbers(found: Look) -> list[int]:
    return [file.number for file in found.files]


def codes(found: Look) -> list[str]:
    return [warning.code for warning in found.warnings]


# order and gaps


def test_files_come_in_the_order_of_their_numbers() -> None:
    found = look(folder(10, 2, 1, *range(3, 10)))
    assert numbers(found) == list(range(1, 11))
    assert [file.entry.name for file in found.files][:2] == [file_name(1), file_name(2)]
    assert found.files[0].footer is FOOTER
    assert (found.behind, found.waiting, found.error, found.warnings) == (0, None, None, [])


def test_only_files_after_the_position_come() -> None:
    assert numbers(look(folder(3, 4, 5), after=3)) == [4, 5]


def test_nothing_new() -> None:
    found = look(folder(3), after=3)
    assert found == Look([], 0, None, None, [], None, 0)
    assert found.count == 0


def test_a_gap_holds_everything_behind_it_and_says_since_when() -> None:
    lies = folder(1, entry(4, modified=500), entry(3, modified=700), entry(6, modified=900))
    found = look(lies)
    assert numbers(found) == [1]
    assert found.waiting == Waiting("number 2", 500.0)
    assert (found.behind, found.count, found.error) == (3, 4, None)


def test_a_late_file_closes_the_gap() -> None:
    assert look(folder(1, 3)).waiting == Waiting("number 2", 1000.0)
    found = look(folder(1, 3, 2))
    assert numbers(found) == [1, 2, 3]
    assert found.waiting is None


def test_a_folder_that_does_not_start_at_1_waits() -> None:
    assert look(folder(5)).waiting == Waiting("number 1", 1000.0)
    assert numbers(look(folder(5))) == []


def test_a_table_without_any_file_waits_for_the_first() -> None:
    lies = folder()
    lies.metadata = entry("_metadata.json", modified=77)
    assert look(lies).waiting == Waiting("the first file", 77.0)
    assert look(folder()).waiting == Waiting("the first file", NOW)


# names


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000001.parquet.tmp",
        "00000000000000000001.parquet_TEMP",
        "00000000000000000001.parquet\n",
        "00000000000000000001.parquet.gz",
        "00000000000000000001.PARQUET",
        "00000000000000000001parquet",
        "x00000000000000000001.parquet",
        "0000000000000000001.parquet",
        "000000000000000000001.parquet",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠١.parquet",
        "00000000000000000000.parquet",
        "1.parquet",
        "00000000000000000001.csv",
        "00000000000000000001",
    ],
)
def test_only_the_exact_name_counts(name: str) -> None:
    found = look(folder(name))
    assert (numbers(found), found.behind) == ([], 0)
    assert found.error is None


def test_files_below_sub_folders_do_not_count_without_partitions() -> None:
    found = look(folder(entry(1, below="day=1/")))
    assert (found.count, codes(found)) == (0, ["file-ignored"])
    assert "sub-folder" in found.warnings[0].message


def test_a_folder_of_files_with_names_of_their_own_has_one_warning() -> None:
    (warned,) = look(folder("part-0.snappy.parquet", "3f2a.parquet", "b7.parquet")).warnings
    assert warned.code == "detection-undeclared"
    assert "LastUpdateTimeFileDetection" in warned.message
    assert warned.message.startswith("3 ")
    mixed = look(folder("part-0.snappy.parquet", file_name(1)))
    assert codes(mixed) == ["file-ignored"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (file_name(7, "csv"), ".parquet"),
        (file_name(7, "PARQUET"), ".parquet"),
        (file_name(7, "parquet.gz"), ".parquet"),
        (file_name(0), "begin at 1"),
        ("7.parquet", "20 digits"),
    ],
)
def test_data_files_that_do_not_count_are_warned_of(name: str, why: str) -> None:
    found = look(folder(name))
    assert codes(found) == ["file-ignored"]
    assert why in found.warnings[0].message
    assert found.warnings[0].file == f"{ORDERS.folder}/{name}"


@pytest.mark.parametrize("name", [file_name(7, "parquet.tmp"), file_name(7, "json"), "notes.md", "x.uploading"])
def test_other_files_are_left_alone(name: str) -> None:
    assert look(folder(name)).warnings == []


def test_folders_left_out_are_warned_of() -> None:
    lies = folder(1)
    lies.skipped.append(f"{ORDERS.folder}/_Temp")
    assert codes(look(lies)) == ["folder-skipped"]


def test_another_extension_and_compression() -> None:
    assert numbers(
        look(folder(file_name(1, "csv"), file_name(2, "csv.gz"), file_name(3, "csv.bz2")), metadata=CSV)
    ) == [1, 2]
    assert numbers(look(folder(file_name(1, "pq")), metadata=TableMetadata(file_extension="pq"))) == [1]
    assert look(folder(file_name(1, "pxq")), metadata=TableMetadata(file_extension="p.q")).count == 0


def test_warnings_are_capped() -> None:
    found = look(folder(*(f"{n}.parquet" for n in range(500))))
    assert len(found.warnings) == 20
    assert "480 more" in found.warnings[-1].message


# two files with one number


@pytest.mark.parametrize("extension", ["csv", "csv.gz", "tsv", "parquet.zst", "Parquet"])
def test_two_data_files_with_one_number_stop_the_table_there(extension: str) -> None:
    found = look(folder(1, 2, file_name(2, extension), 3))
    assert numbers(found) == [1]
    assert found.error is not None
    assert found.error.code == "file-ambiguous"
    assert file_name(2, extension) in found.error.message
    assert file_name(2) in found.error.message
    assert found.behind == 2


def test_ambiguous_numbers_that_are_applied_or_behind_a_gap_are_no_error_yet() -> None:
    assert look(folder(2, file_name(2, "csv"), 3), after=2).error is None
    assert look(folder(1, 3, file_name(3, "csv"))).error is None


def test_a_temporary_file_makes_no_number_ambiguous() -> None:
    assert look(folder(1, file_name(1, "parquet.tmp"), file_name(1, "crc"))).error is None


def test_compressed_and_plain_text_with_one_number_are_counted_once() -> None:
    found = look(folder(file_name(1, "csv"), file_name(1, "csv.gz")), metadata=CSV)
    assert (found.count, found.error.code if found.error else "") == (1, "file-ambiguous")


# not yet complete


@pytest.mark.parametrize("age", [0.0, 29.0])
def test_an_empty_file_waits_while_it_is_young(age: float) -> None:
    found = look(folder(1, entry(2, size=0, modified=NOW - age), 3))
    assert numbers(found) == [1]
    assert found.waiting == Waiting(f"{file_name(2)} to be complete", NOW - age)
    assert (found.error, found.behind) == (None, 2)


def test_a_time_ahead_of_the_clock_holds_nobody_up_for_long() -> None:
    """A clock may be ahead by minutes; a time of next year would make the table wait for a year."""
    skewed = look(folder(1, entry(2, size=0, modified=NOW + 600.0)))
    assert skewed.error is None and skewed.waiting == Waiting(f"{file_name(2)} to be complete", NOW)
    absurd = look(folder(1, entry(2, size=0, modified=NOW + 365 * 86_400.0)))
    assert absurd.waiting is None and absurd.error is not None and absurd.error.code == "file-unreadable"


def test_an_empty_file_that_stays_empty_is_unreadable() -> None:
    found = look(folder(1, entry(2, size=0, modified=NOW - SETTLE), 3))
    assert numbers(found) == [1]
    assert found.waiting is None
    assert found.error is not None
    assert (found.error.code, found.error.file) == ("file-unreadable", f"{ORDERS.folder}/{file_name(2)}")


@pytest.mark.parametrize(
    "failure",
    [pa.ArrowInvalid("no footer"), pa.ArrowNotImplementedError("x"), OSError("thrift"), ValueError(""), MemoryError()],
)
def test_a_footer_that_does_not_parse(failure: Exception) -> None:
    young = look(folder(1, entry(2, modified=NOW - 1)), footers=Footers(n2=failure))
    assert (numbers(young), young.error) == ([1], None)
    assert young.waiting is not None
    old = look(folder(1, entry(2, modified=NOW - 31)), footers=Footers(n2=failure))
    assert (numbers(old), old.waiting) == ([1], None)
    assert old.error is not None
    assert old.error.code == "file-unreadable"


def test_a_store_that_fails_says_nothing_about_the_file() -> None:
    with pytest.raises(LakemirrorError) as caught:
        look(folder(1), footers=Footers(n1=OSError(5, "Input/output error")))
    assert caught.value.code == "storage-unavailable"


def test_a_file_deleted_since_the_listing_is_a_gap() -> None:
    found = look(folder(1, 2, 3), footers=Footers(n2=FileNotFoundError()))
    assert numbers(found) == [1]
    assert found.waiting == Waiting("number 2", NOW)


@pytest.mark.parametrize("keep", [0, 1, 3, 4, 50, 200, -1, -4, -8, -9])
def test_a_truncated_file_is_incomplete(tmp_path: Path, keep: int) -> None:
    whole = parquet()
    path = write(tmp_path, f"orders/{file_name(1)}", whole[:keep])
    os.utime(path, (1000, 1000))
    storage = storage_with(tmp_path)
    lies = scan(storage).tables[ORDERS]
    found = look_at(seen(lies), sequence(0), Readiness(1001, 30, footer_reader(storage)))
    assert (found.files, found.error) == ([], None)
    assert found.waiting == Waiting(f"{file_name(1)} to be complete", 1000.0)
    later = look_at(seen(lies), sequence(0), Readiness(1030, 30, footer_reader(storage)))
    assert later.error is not None
    path.write_bytes(whole)
    mended = scan(storage).tables[ORDERS]
    found = look_at(seen(mended), sequence(0), Readiness(1030, 30, footer_reader(storage)))
    assert numbers(found) == [1]


def test_a_file_with_no_rows_is_complete() -> None:
    empty = parquet(pa.table({"id": pa.array([], pa.int64())}))
    footer = pq.read_metadata(io.BytesIO(empty))
    found = look_at(seen(folder(1)), sequence(0), Readiness(NOW, SETTLE, lambda _: footer))
    assert found.files[0].footer.num_rows == 0


# footers are read once, and no more than needed


def test_footers_are_read_once_each_and_in_order() -> None:
    footers = Footers()
    look(folder(3, 1, 2, 5), footers=footers)
    assert footers.asked == [file_name(1), file_name(2), file_name(3)]


def test_the_limit_bounds_how_many_footers_are_read() -> None:
    footers = Footers()
    found = look(folder(*range(1, 101)), after=10, footers=footers, limit=3)
    assert len(footers.asked) == 3
    assert numbers(found) == [11, 12, 13]
    assert (found.behind, found.count, found.waiting, found.error) == (87, 90, None, None)


def test_a_gap_is_seen_from_the_listing_whatever_the_limit() -> None:
    assert look(folder(1, 2, 4), limit=2).waiting == Waiting("number 3", 1000.0)


# numbers that appear again


def test_leftovers_of_an_unfinished_retire_are_expected() -> None:
    found = look(folder(1, 2, 3, 4), after=3)
    assert (numbers(found), found.warnings) == ([4], [])


def test_a_number_that_was_moved_aside_and_appears_again_is_reported() -> None:
    found = look(folder(2, 3, 4, processed=[1, 2]), after=3)
    assert codes(found) == ["already-applied"]
    assert found.warnings[0].file == f"{ORDERS.folder}/{file_name(2)}"
    assert numbers(found) == [4]


def test_the_newest_applied_file_stays_and_is_no_repetition() -> None:
    assert look(folder(3, processed=[1, 2]), after=3).warnings == []
    newest = entry(3)
    assert look(folder(newest), after=3, etags={file_name(3): newest.etag}).warnings == []


def test_the_newest_applied_file_with_other_content_is_reported() -> None:
    found = look(folder(entry(3, size=101)), after=3, etags={file_name(3): entry(3, size=100).etag})
    assert (codes(found), numbers(found)) == (["already-applied"], [])


def test_a_repetition_that_rests_aside_is_reported_as_long_as_it_rests() -> None:
    found = look(folder(3, processed=[1, file_name(1) + ".1"]), after=3)
    assert codes(found) == ["already-applied"]
    assert "number 1 " in found.warnings[0].message


def test_repetitions_are_never_applied() -> None:
    found = look(folder(1, 2, 3, processed=[1, 2, 3]), after=3)
    assert (found.files, found.behind) == ([], 0)
    assert codes(found) == ["already-applied", "already-applied"]  # of 1 and 2; 3 is the newest, which stays


# any set of numbers in any order

_NUMBERS = st.sets(st.integers(1, 12) | st.sampled_from([10**18, 10**20 - 1])).flatmap(
    lambda s: st.permutations(list(s))
)


@patient
@given(
    lies=_NUMBERS,
    after=st.integers(0, 13),
    bad=st.sets(st.integers(1, 12)),
    fresh=st.booleans(),
    limit=st.none() | st.integers(0, 5),
    others=st.sets(st.integers(1, 12)),
)
def test_pending_of_any_folder(
    lies: list[int], after: int, bad: set[int], fresh: bool, limit: int | None, others: set[int]
) -> None:
    modified = NOW - (1 if fresh else 1000)
    rivals = [entry(file_name(n, "csv")) for n in others]
    files = [*(entry(n, size=0 if n in bad else 9, modified=modified) for n in lies), *rivals]
    found = look(folder(*files), after, limit=limit)

    expected = []
    number = after + 1
    while number in lies and number not in bad and number not in others and len(expected) != limit:
        expected.append(number)
        number += 1
    above = {n for n in lies if n > after}
    assert numbers(found) == expected
    assert found.count == len(above)
    if not above:
        assert found.error is None
        assert (found.waiting is not None) == (after == 0)
    elif len(expected) == len(above):
        assert (found.waiting, found.error) == (None, None)
    elif number not in lies:
        assert found.waiting == Waiting(f"number {number}", modified)
        assert found.error is None
    elif number in others:
        assert found.error is not None
        assert found.error.code == "file-ambiguous"
    elif len(expected) == limit:
        assert (found.waiting, found.error) == (None, None)
    elif fresh:
        assert (found.waiting, found.error) == (Waiting(f"{file_name(number)} to be complete", modified), None)
    else:
        assert found.waiting is None
        assert found.error is not None
        assert found.error.code == "file-unreadable"


@patient
@given(lies=st.sets(st.integers(1, 30)), cuts=st.lists(st.integers(1, 5), max_size=40))
def test_any_cut_into_batches_applies_each_number_once(lies: set[int], cuts: list[int]) -> None:
    applied: list[int] = []
    for limit in [*cuts, None]:
        applied += numbers(look(folder(*lies), applied[-1] if applied else 0, limit=limit))
    run = 0
    while run + 1 in lies:
        run += 1
    assert applied == list(range(1, run + 1))


def test_last_update_detection_takes_any_name_with_the_declared_extension() -> None:
    metadata = TableMetadata(file_detection_strategy=LAST_UPDATE)
    found = ignored(seen(folder("a.parquet", file_name(3), "b.csv", entry("c.parquet", below="day=1/")), metadata))
    assert [warning.file for warning in found] == [f"{ORDERS.folder}/b.csv"]


def test_delimited_files_behind_one_that_waits_are_seen_too(tmp_path: Path) -> None:
    """Else each of them would wait in turn once the one before is complete."""
    place = tmp_path / "Files/LandingZone/orders"
    place.mkdir(parents=True)
    for number in (1, 2, 3, 5):
        (place / f"{number:020}.csv").write_text("id\n1\n")
    (tables,) = scan(LocalStorage(tmp_path)).tables.values()
    asked: list[str] = []

    def steady_at(file: Entry) -> float:
        asked.append(file.name)
        return 10.0

    metadata = TableMetadata(file_format="CSV", file_extension="csv")
    found = look_at(seen(tables, metadata), sequence(0), Readiness(5.0, 60.0, pq.read_metadata, steady_at))
    assert not found.files and found.waiting is not None
    assert sorted(set(asked)) == [f"{number:020}.csv" for number in (1, 2, 3)]


def test_a_publisher_that_renames_is_not_waited_for(tmp_path: Path) -> None:
    place = tmp_path / "Files/LandingZone/orders"
    place.mkdir(parents=True)
    (place / f"{1:020}.csv").write_text("id\n1\n")
    (tables,) = scan(LocalStorage(tmp_path)).tables.values()
    for text, complete in (("{}", 0), ('{"lakemirror": {"complete": "rename"}}', 1)):
        metadata = parse_metadata(f'{{"fileFormat": "CSV", {text[1:]}'.replace(", }", "}").encode(), "m")
        readiness = Readiness(time.time(), 60.0, pq.read_metadata, lambda file: time.time() + 1)
        found = look_at(seen(tables, metadata), sequence(0), readiness)
        assert len(found.files) == complete
