"""Known, new, recreated, renamed, marker lost (contract section 7)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from folders import ORDERS, entry, file_name, folder, patient, storage_with, write
from hypothesis import given
from hypothesis import strategies as st

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.change_file import TableFiles
from lakemirror.landing_zone.identity import (
    AppliedSoFar,
    Identity,
    Marker,
    decide,
    identify,
    parse_marker,
    path_in_zone,
)
from lakemirror.landing_zone.metadata import LAST_UPDATE, TableMetadata
from lakemirror.landing_zone.zone import MARKER, TableFolder, TableName, scan
from lakemirror.storage import LocalStorage

TABLE, OTHER, FRESH = "a" * 32, "b" * 32, "c" * 32
METADATA = TableMetadata()
THIRD = entry(3)
APPLIED = AppliedSoFar(TABLE, 3, THIRD)
UNKNOWN = AppliedSoFar(TABLE, 3, None)


def marker(id_: str, place: str = "orders", before: str = "") -> bytes:
    return Marker(id_, place, before).to_json()


def decided(content: bytes | None, lies: TableFolder, applied: AppliedSoFar | None) -> Identity:
    return decide(content, TableFiles(lies, METADATA), applied, FRESH)


# the marker is there


def test_the_table_of_a_marked_folder_is_known() -> None:
    found = decided(marker(TABLE), folder(3), APPLIED)
    assert (found.kind, found.id, found.must_write, found.warning) == ("known", TABLE, False, None)
    assert found.is_same


def test_a_marked_folder_without_a_table_is_known_by_its_mark() -> None:
    found = decided(marker(OTHER), folder(1), None)
    assert (found.kind, found.id, found.must_write) == ("known", OTHER, False)


@pytest.mark.parametrize("lies", [folder(), folder(3), folder(1, 2), folder(7)])
def test_a_marker_means_the_same_folder_whatever_lies_in_it(lies: TableFolder) -> None:
    assert decided(marker(TABLE), lies, APPLIED).kind == "known"


def test_a_marker_with_another_id_is_a_recreated_folder_that_was_marked_already() -> None:
    found = decided(marker(OTHER), folder(THIRD), APPLIED)
    assert (found.kind, found.id, found.must_write, found.is_same) == ("recreated", OTHER, False, False)


# the marker is gone


def test_a_folder_first_seen_is_new() -> None:
    found = decided(None, folder(1), None)
    assert (found.kind, found.marker, found.must_write) == ("new", Marker(FRESH, "orders"), True)


def test_the_last_applied_file_unchanged_means_the_marker_was_lost() -> None:
    found = decided(None, folder(THIRD, 4), APPLIED)
    assert (found.kind, found.marker, found.must_write) == ("marker-lost", Marker(TABLE, "orders"), True)
    assert found.is_same
    assert found.warning is not None
    assert found.warning.code == "marker-lost"


@pytest.mark.parametrize(
    "lies",
    [
        folder(1),
        folder(1, 2),
        folder(1, 2, entry(3, size=THIRD.size + 1)),
        folder(1, 2, entry(3, modified=1000.000001)),
        folder(),
    ],
    ids=["one file", "fewer files", "another size", "another time", "no file"],
)
def test_the_last_applied_file_gone_or_different_means_recreated(lies: TableFolder) -> None:
    found = decided(None, lies, APPLIED)
    assert (found.kind, found.marker, found.must_write) == ("recreated", Marker(FRESH, "orders"), True)


@pytest.mark.parametrize("lies", [folder(4), folder(58, 59), folder(2), folder(entry(3, size=1), 4)])
def test_files_that_do_not_start_at_1_mean_the_marker_was_lost(lies: TableFolder) -> None:
    found = decided(None, lies, APPLIED)
    assert (found.kind, found.id) == ("marker-lost", TABLE)


def test_the_start_at_1_has_no_meaning_without_numbers() -> None:
    metadata = TableMetadata(file_detection_strategy=LAST_UPDATE)
    lies = folder("x.parquet", file_name(4))
    assert decide(None, TableFiles(lies, metadata), APPLIED, FRESH).kind == "recreated"
    assert decide(None, TableFiles(folder(THIRD), metadata), APPLIED, FRESH).kind == "marker-lost"


@pytest.mark.parametrize(
    ("lies", "kind"),
    [
        (folder(3), "marker-lost"),  # the newest applied file stayed; nothing else did
        (folder(3, 4, 5), "marker-lost"),
        (folder(1, 3), "marker-lost"),  # leftovers: applying them again would lose number 2
        (folder(1, 2, 3), "recreated"),  # all are there: applying them again is right in either case
        (folder(1, 2, 3, 4), "recreated"),
        (folder(1), "recreated"),
        (folder(), "recreated"),
    ],
)
def test_with_the_manifest_lost_the_safe_way_is_taken(lies: TableFolder, kind: str) -> None:
    assert decided(None, lies, UNKNOWN).kind == kind


# the marker makes no sense


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"\xff", b"{}", b'{"id": 5, "folder": "orders"}', b'{"id": "", "folder": "orders"}',
     b'{"id": "a:b", "folder": "orders"}', b'{"id": "abc"}', b"[" * 100_000],
)  # fmt: skip
def test_a_marker_that_does_not_parse_counts_as_gone(content: bytes) -> None:
    assert parse_marker(content) is None
    assert decided(content, folder(1), None).kind == "new"
    assert decided(content, folder(THIRD), APPLIED).kind == "marker-lost"
    recreated = decided(content, folder(1), APPLIED)
    assert recreated.kind == "recreated"
    assert recreated.id not in (TABLE, FRESH)
    of_another_engine = decide(content, TableFiles(folder(1), METADATA), APPLIED, OTHER)
    assert recreated == of_another_engine


def test_markers_are_read_as_they_are_written() -> None:
    for each in (Marker(TABLE, "orders"), Marker(TABLE, "sales.schema/ä", "before")):
        assert parse_marker(each.to_json()) == each
    assert json.loads(marker(TABLE)) == {"id": TABLE, "folder": "orders", "version": 1}


# renamed


def test_a_marker_that_names_another_folder_means_renamed() -> None:
    found = decided(marker(TABLE, "customers"), folder(1), None)
    assert (found.kind, found.must_write, found.is_same) == ("renamed", True, False)
    assert found.marker.folder == "orders"
    assert found.marker.renamed_from == "customers"
    assert found.id not in (TABLE, FRESH)
    assert found.warning is None  # it starts at 1: nothing to say


def test_a_renamed_folder_that_begins_higher_awaits_number_1_and_says_so_until_it_comes() -> None:
    found = decided(marker(TABLE, "customers"), folder(7, 8), None)
    assert found.warning is not None
    assert found.warning.code == "folder-renamed"
    assert "customers" in found.warning.message
    assert "number 1" in found.warning.message
    later = decided(found.marker.to_json(), folder(7, 8), None)
    assert (later.kind, later.warning) == ("known", found.warning)
    assert decided(found.marker.to_json(), folder(1, 7, 8), None).warning is None
    assert decided(found.marker.to_json(), folder(7, 8), AppliedSoFar(found.id, 7)).warning is None


def test_a_folder_renamed_onto_an_older_table_replaces_it() -> None:
    found = decided(marker(OTHER, "customers"), folder(9), APPLIED)
    assert found.kind == "renamed"
    later = decided(found.marker.to_json(), folder(9), APPLIED)
    assert (later.kind, later.id) == ("recreated", found.id)
    assert later.warning is not None
    assert later.warning.code == "folder-renamed"


def test_every_rename_gives_another_id_and_every_engine_the_same() -> None:
    there = decided(marker(TABLE, "a"), folder(1), None)
    assert decide(marker(TABLE, "a"), TableFiles(folder(1), METADATA), None, OTHER) == there
    assert decided(marker(TABLE, "b"), folder(1), None).id == there.id  # told by the id, not by the older name
    assert decided(marker(OTHER, "a"), folder(1), None).id != there.id
    # the same copy put there again, after it was applied once, is a folder made again
    assert decided(marker(TABLE, "a"), folder(1), AppliedSoFar(there.id, 1)).id != there.id


def test_folders_of_schemas_are_told_apart() -> None:
    assert path_in_zone(TableName("sales", "orders")) == "sales.schema/orders"
    assert path_in_zone(ORDERS) == "orders"
    assert decided(marker(TABLE, "sales.schema/orders"), folder(1), None).kind == "renamed"


@patient
@given(
    content=st.none()
    | st.binary(max_size=20)
    | st.sampled_from([marker(TABLE), marker(OTHER), marker(TABLE, "x"), marker(OTHER, "x", "y")]),
    lies=st.sets(st.integers(1, 5)),
    changed=st.booleans(),
    applied=st.sampled_from([None, APPLIED, UNKNOWN]),
)
def test_a_decision_once_written_is_kept(
    content: bytes | None, lies: set[int], changed: bool, applied: AppliedSoFar | None
) -> None:
    files = [entry(n, size=101 if changed else 100) for n in lies]
    found = decide(content, TableFiles(folder(*files), METADATA), applied, FRESH)
    again = decide(found.marker.to_json(), TableFiles(folder(*files), METADATA), applied, OTHER)
    assert again.id == found.id
    assert not again.must_write
    assert again.is_same == (applied is None or found.id == applied.identity)
    # the position counts if and only if the id is the table's
    assert found.is_same == (found.id == TABLE) or applied is None


# with a storage


def orders(storage: LocalStorage) -> TableFolder:
    return scan(storage).tables[ORDERS]


def last(storage: LocalStorage, number: int) -> AppliedSoFar:
    found = next(e for e in orders(storage).files if e.name == file_name(number))
    return AppliedSoFar(TABLE, number, found)


def there(storage: LocalStorage) -> Marker | None:
    return parse_marker(storage.read(f"{ORDERS.folder}/{MARKER}"))


def test_a_new_folder_is_marked_and_then_known(tmp_path: Path) -> None:
    storage = storage_with(tmp_path, f"orders/{file_name(1)}")
    found = identify(storage, TableFiles(orders(storage), METADATA), None)
    assert (found.kind, there(storage)) == ("new", found.marker)
    again = identify(storage, TableFiles(orders(storage), METADATA), None)
    assert (again.kind, again.id) == ("known", found.id)


def test_each_new_folder_has_its_own_id(tmp_path: Path) -> None:
    ids = set()
    for _ in range(3):
        storage = storage_with(tmp_path, f"orders/{file_name(1)}")
        ids.add(identify(storage, TableFiles(orders(storage), METADATA), None).id)
        shutil.rmtree(tmp_path / ORDERS.folder)
    assert len(ids) == 3


def test_a_look_without_writing_writes_nothing(tmp_path: Path) -> None:
    storage = storage_with(tmp_path, f"orders/{file_name(1)}")
    assert identify(storage, TableFiles(orders(storage), METADATA), None, write=False).kind == "new"
    assert orders(storage).marker is None


def test_a_lost_marker_is_written_again(tmp_path: Path) -> None:
    storage = storage_with(tmp_path, f"orders/{file_name(3)}")
    assert identify(storage, TableFiles(orders(storage), METADATA), last(storage, 3)).kind == "marker-lost"
    assert there(storage) == Marker(TABLE, "orders")
    assert identify(storage, TableFiles(orders(storage), METADATA), last(storage, 3)).kind == "known"


def test_a_recreated_folder_keeps_its_new_id_until_it_is_applied(tmp_path: Path) -> None:
    storage = storage_with(tmp_path, f"orders/{file_name(1)}")
    applied = last(storage, 1)
    identify(storage, TableFiles(orders(storage), METADATA), None)
    shutil.rmtree(tmp_path / ORDERS.folder)
    write(tmp_path, f"orders/{file_name(1)}", b"something else")
    found = identify(storage, TableFiles(orders(storage), METADATA), applied)
    assert (found.kind, there(storage)) == ("recreated", found.marker)
    again = identify(storage, TableFiles(orders(storage), METADATA), applied)
    assert (again.kind, again.id) == ("recreated", found.id)


@pytest.mark.parametrize("content", [b"rubbish", marker(OTHER, "elsewhere")])
def test_a_marker_that_does_not_hold_is_replaced(tmp_path: Path, content: bytes) -> None:
    storage = storage_with(tmp_path, f"orders/{file_name(1)}")
    write(tmp_path, f"orders/{MARKER}", content)
    found = identify(storage, TableFiles(orders(storage), METADATA), None)
    assert there(storage) == found.marker
    assert identify(storage, TableFiles(orders(storage), METADATA), None).id == found.id


class Meddling(LocalStorage):
    """Something happens just before the marker is written."""

    def __init__(self, root: Path, meddle: Callable[[], None]) -> None:
        super().__init__(root)
        self.meddle: Callable[[], None] | None = meddle

    def write_new(self, path: str, data: bytes, *, durable: bool = True) -> bool:
        meddle, self.meddle = self.meddle, None
        if meddle:
            meddle()
        return super().write_new(path, data, durable=durable)


def test_of_two_engines_that_mark_at_once_the_second_takes_the_first_ones_id(tmp_path: Path) -> None:
    plain = storage_with(tmp_path, f"orders/{file_name(1)}")
    seen = orders(plain)
    first: list[Identity] = []
    second = Meddling(tmp_path, lambda: first.append(identify(plain, TableFiles(seen, METADATA), None)))
    found = identify(second, TableFiles(seen, METADATA), None)
    assert found.kind == "known"
    assert found.id == first[0].id == (there(plain) or found).id


def test_a_deleted_folder_is_not_made_again_by_its_marker(tmp_path: Path) -> None:
    plain = storage_with(tmp_path, f"orders/{file_name(1)}")
    seen = orders(plain)
    shutil.rmtree(tmp_path / ORDERS.folder)
    with pytest.raises(LakemirrorError) as caught:
        identify(plain, TableFiles(seen, METADATA), None)
    assert caught.value.code == "concurrent-commit"
    assert caught.value.retry
    assert not (tmp_path / ORDERS.folder).exists()


def remake(root: Path) -> None:
    """The publisher deletes the folder and makes it again with other content."""
    shutil.rmtree(root / ORDERS.folder)
    write(root, f"orders/{file_name(1)}", b"new content")


def test_a_folder_made_again_after_the_listing_is_recreated(tmp_path: Path) -> None:
    storage = storage_with(tmp_path, f"orders/{file_name(1)}")
    seen, applied = orders(storage), last(storage, 1)
    remake(tmp_path)
    assert identify(storage, TableFiles(seen, METADATA), applied).kind == "recreated"


def test_a_folder_made_again_just_before_it_is_marked_is_recreated(tmp_path: Path) -> None:
    plain = storage_with(tmp_path, f"orders/{file_name(1)}")
    seen, applied = orders(plain), last(plain, 1)
    found = identify(Meddling(tmp_path, lambda: remake(tmp_path)), TableFiles(seen, METADATA), applied)
    assert found.kind == "recreated"
    assert found.id != TABLE
    assert there(plain) == found.marker
