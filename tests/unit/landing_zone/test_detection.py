"""Which files come next by their time, in partitions, and as delimited text (contract section 4)."""

from __future__ import annotations

import pytest
from folders import FOOTER, ORDERS, Look, entry, file_name, folder, look_at, patient, sequence
from hypothesis import given
from hypothesis import strategies as st

from lakemirror.landing_zone.archive import to_archive
from lakemirror.landing_zone.change_file import AppliedFiles, Readiness, TableFiles, partition_values
from lakemirror.landing_zone.metadata import LAST_UPDATE, TableMetadata
from lakemirror.landing_zone.zone import TableFolder
from lakemirror.storage import Entry

NOW = 10_000.0
BY_TIME = TableMetadata(file_detection_strategy=LAST_UPDATE)
PARTITIONED = TableMetadata(partitioned=True)
CSV = TableMetadata(file_format="CSV", file_extension="csv")
NONE_BY_TIME = AppliedFiles(paths=frozenset())
NONE_IN_PARTITIONS = AppliedFiles(sequences={})


def look(lies: TableFolder, metadata: TableMetadata, applied: AppliedFiles, limit: int | None = None) -> Look:
    def steady_at(each: Entry) -> float:
        return NOW + 1 if each.modified / 1e9 > NOW - 30 else 0.0

    return look_at(TableFiles(lies, metadata), applied, Readiness(NOW, 30, lambda _: FOOTER, steady_at), limit)


def names(found: Look) -> list[str]:
    return [file.below for file in found.files]


# by time


def test_files_come_by_time_then_by_path() -> None:
    lies = folder(entry("b.parquet"), entry("a.parquet"), entry("z.parquet", modified=999.0), entry("x/c.parquet"))
    found = look(lies, BY_TIME, NONE_BY_TIME)
    assert names(found) == ["z.parquet", "a.parquet", "b.parquet", "x/c.parquet"]
    assert [file.number for file in found.files] == [1, 2, 3, 4]
    assert [file.constants for file in found.files] == [()] * 4
    assert (found.behind, found.waiting, found.error, found.warnings) == (0, None, None, [])


def test_applied_paths_do_not_come_again_and_the_numbers_go_on() -> None:
    applied = AppliedFiles(count=5, paths=frozenset({"a.parquet"}), last="a.parquet")
    found = look(folder(entry("a.parquet"), entry("b.parquet")), BY_TIME, applied)
    assert [(file.below, file.number) for file in found.files] == [("b.parquet", 6)]
    assert found.warnings == []  # a.parquet is the newest, which stays


def test_a_path_that_was_applied_and_moved_and_is_there_again_is_reported() -> None:
    applied = AppliedFiles(count=2, paths=frozenset({"a.parquet", "b.parquet"}), last="b.parquet")
    found = look(folder(entry("a.parquet"), entry("b.parquet"), processed=["a.parquet"]), BY_TIME, applied)
    assert [(w.code, w.file) for w in found.warnings] == [("already-applied", f"{ORDERS.folder}/a.parquet")]


def test_what_a_sequence_covered_counts_as_applied() -> None:
    applied = AppliedFiles(count=3, paths=frozenset(), numbered=3)
    lies = folder(2, 3, 4, entry(1, below="deeper/"))

    assert set(names(look(lies, BY_TIME, applied))) == {f"deeper/{file_name(1)}", file_name(4)}


def test_hidden_files_are_no_change_files() -> None:
    found = look(folder(entry(".a.parquet"), entry("x.parquet.tmp")), BY_TIME, NONE_BY_TIME)
    assert (found.files, [w.code for w in found.warnings]) == ([], ["file-ignored"])


def test_an_incomplete_file_holds_the_later_ones() -> None:
    lies = folder(
        entry("a.parquet", modified=NOW - 3),
        entry("b.parquet", size=0, modified=NOW - 2),
        entry("c.parquet", modified=NOW - 1),
    )
    found = look(lies, BY_TIME, NONE_BY_TIME)
    assert (names(found), found.behind) == (["a.parquet"], 2)
    assert found.waiting is not None and found.waiting.what == "b.parquet to be complete"


# partitions


def test_each_partition_is_a_sequence_of_its_own() -> None:
    lies = folder(
        entry(1, below="r=b/"), entry(2, below="r=b/"), entry(4, below="r=b/"), entry(3, below="r=a/"), 1,
        entry(1, below="other/"), entry(1, below="=x/"),
    )  # fmt: skip
    found = look(lies, PARTITIONED, AppliedFiles(count=7, sequences={"r=a": 2}))
    assert [(f.partition, f.sequence, f.number) for f in found.files] == [("r=a", 3, 8), ("r=b", 1, 9), ("r=b", 2, 10)]
    assert found.waiting is not None and found.waiting.what == "number 3 in r=b"
    assert (found.behind, [w.code for w in found.warnings]) == (1, ["file-ignored"] * 3)


def test_two_files_with_one_number_in_one_partition_stop_the_table() -> None:
    lies = folder(
        entry(1, below="r=a/"), entry(1, below="r=b/"), entry(file_name(1, "csv"), below="r=b/"), entry(1, below="r=c/")
    )
    found = look(lies, PARTITIONED, NONE_IN_PARTITIONS)
    assert names(found) == [f"r=a/{file_name(1)}"]
    assert found.error is not None and found.error.code == "file-ambiguous"
    assert found.behind == 2


@pytest.mark.parametrize(
    ("partition", "values"),
    [
        ("", ()),
        ("region=eu", (("region", "eu"),)),
        ("a=1/b=x%20y%2Fz", (("a", "1"), ("b", "x y/z"))),
        ("a=__HIVE_DEFAULT_PARTITION__", (("a", None),)),
        ("a=", (("a", ""),)),
        ("a=b=c", (("a", "b=c"),)),
    ],
)
def test_columns_of_a_partition(partition: str, values: tuple[tuple[str, str | None], ...]) -> None:
    assert partition_values(partition) == values


def test_a_partition_folder_whose_value_is_not_utf_8_stops_the_table_there() -> None:
    """%fe and %ff would be one value, and a key of one partition could replace a row of the other."""
    lies = folder(entry(1, below="r=%C3%A9/"), entry(1, below="r=%fe/"), entry(1, below="r=%ff/"))
    found = look(lies, PARTITIONED, NONE_IN_PARTITIONS)
    assert [f.constants for f in found.files] == [(("r", "é"),)]
    assert found.error is not None and found.error.code == "value-invalid" and "r=%fe" in found.error.message


@pytest.mark.parametrize(
    ("lies", "metadata", "applied"),
    [
        (folder(entry("\udcff.parquet")), BY_TIME, NONE_BY_TIME),
        (folder(entry(1, below="r=\udcff/")), PARTITIONED, NONE_IN_PARTITIONS),
    ],
)
def test_a_path_that_is_not_utf_8_is_a_coded_error(
    lies: TableFolder, metadata: TableMetadata, applied: AppliedFiles
) -> None:
    found = look(lies, metadata, applied)
    assert found.error is not None and found.error.code == "file-unreadable" and "\\xff" in found.error.message


# quarantine


def test_a_number_that_was_set_aside_is_not_waited_for() -> None:
    lies = folder(1, 4)
    lies.quarantined = [
        entry(each, below="_QuarantinedFiles/")
        for each in (file_name(2), file_name(3), file_name(3) + ".error.json", file_name(5) + ".error.json")
    ]
    found = look(lies, TableMetadata(), sequence(0))
    assert [file.number for file in found.files] == [1, 4]
    assert found.waiting is None
    assert look(folder(1, 4), TableMetadata(), sequence(0)).waiting is not None


def test_a_good_file_under_a_number_that_was_set_aside_comes() -> None:
    lies = folder(1, 2)
    lies.quarantined = [entry(2, below="_QuarantinedFiles/")]
    assert [file.number for file in look(lies, TableMetadata(), sequence(0)).files] == [1, 2]


# delimited text


def test_delimited_text_is_complete_once_it_is_steady() -> None:
    lies = folder(entry(file_name(1, "csv")), entry(file_name(2, "csv"), modified=NOW - 1))
    found = look(lies, CSV, sequence(0))
    assert [(file.number, file.footer) for file in found.files] == [(1, None)]
    assert found.waiting is not None
    assert (found.waiting.what, found.waiting.until) == (f"{file_name(2, 'csv')} to be complete", NOW + 1)


def test_an_empty_delimited_file_is_never_complete() -> None:
    found = look(folder(entry(file_name(1, "csv"), size=0)), CSV, sequence(0))
    assert found.error is not None
    assert (found.error.code, found.files) == ("file-unreadable", [])


# any folder


PLACES = ["", "r=a/", "r=b/"]


@patient
@given(
    files=st.sets(st.tuples(st.sampled_from(PLACES), st.integers(1, 6)), max_size=12),
    applied=st.dictionaries(st.sampled_from(["r=a", "r=b"]), st.integers(0, 6)),
    limit=st.none() | st.integers(0, 4),
)
def test_any_partitions(files: set[tuple[str, int]], applied: dict[str, int], limit: int | None) -> None:
    lies = folder(*(entry(number, below=place) for place, number in files))
    found = look(lies, PARTITIONED, AppliedFiles(10, applied), limit)
    expected = []
    for place in ("r=a/", "r=b/"):
        number = applied.get(place[:-1], 0) + 1
        while (place, number) in files:
            expected.append(f"{place}{file_name(number)}")
            number += 1
    assert names(found) == expected[:limit]
    assert found.count == sum(1 for place, number in files if place and number > applied.get(place[:-1], 0))
    assert [file.number for file in found.files] == list(range(11, 11 + len(found.files)))


@patient
@given(
    files=st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 3), max_size=6),
    applied=st.sets(st.sampled_from("abcdef")),
    last=st.sampled_from("abcdef"),
)
def test_any_files_by_time(files: dict[str, int], applied: set[str], last: str) -> None:
    lies = folder(*(entry(f"{name}.parquet", modified=float(at)) for name, at in files.items()))
    done = AppliedFiles(len(applied), paths={f"{name}.parquet" for name in applied}, last=f"{last}.parquet")
    found = look(lies, BY_TIME, done)
    expected = sorted((at, name) for name, at in files.items() if name not in applied)
    assert names(found) == [f"{name}.parquet" for _, name in expected]
    there = applied & files.keys()
    stays = last if last in there else max(((files[n], n) for n in there), default=(0, ""))[1]
    moved: list[Entry] = to_archive(TableFiles(lies, BY_TIME), done)
    assert {each.name[0] for each in moved} == there - {stays}
