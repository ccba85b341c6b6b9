"""A landing zone in which something is wrong: it concerns the table it belongs to, and no other (section 1)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from folders import ORDERS, file_name, storage_with, write

from lakemirror.errors import LakemirrorError, TableError
from lakemirror.landing_zone.change_file import TableFiles
from lakemirror.landing_zone.identity import identify
from lakemirror.landing_zone.partner_events import read_partner
from lakemirror.landing_zone.zone import LANDING_ZONE, TableName, check_name, not_files, read_metadata, scan, scan_table
from lakemirror.lint import check
from lakemirror.storage import Listing, LocalStorage

CLOSED = LakemirrorError("storage-unavailable", "closed: Permission denied")


class Closed(LocalStorage):
    """A store in which one folder cannot be listed."""

    closed = ""

    def list(self, path: str, *arguments: object, **options: object) -> Listing:
        if path == self.closed:
            raise CLOSED
        listing = super().list(path, *arguments, **options)  # type: ignore[arg-type]
        if self.closed in listing.folders:
            listing.errors[self.closed] = CLOSED
            listing.files = [entry for entry in listing.files if not entry.path.startswith(self.closed)]
            listing.folders = [each for each in listing.folders if not each.startswith(f"{self.closed}/")]
        return listing


def test_a_folder_that_cannot_be_listed_is_the_error_of_its_table(tmp_path: Path) -> None:
    storage_with(tmp_path, f"orders/{file_name(1)}", f"other/{file_name(1)}", f"orders/day=1/{file_name(1)}")
    storage = Closed(tmp_path)
    for closed in (ORDERS.folder, f"{ORDERS.folder}/day=1"):
        storage.closed = closed
        zone = scan(storage)
        assert zone.tables[ORDERS].error is CLOSED
        assert len(zone.tables[TableName("", "other")].files) == 1
        found = scan_table(storage, ORDERS)
        assert found is not None
        assert found.error is CLOSED


def test_what_was_set_aside_need_not_be_listed(tmp_path: Path) -> None:
    storage_with(tmp_path, f"orders/{file_name(2)}", f"orders/_ProcessedFiles/{file_name(1)}")
    storage = Closed(tmp_path)
    storage.closed = f"{ORDERS.folder}/_ProcessedFiles"
    assert scan(storage).tables[ORDERS].error is None


def test_tables_of_a_schema_that_cannot_be_listed_are_not_known_to_be_gone(tmp_path: Path) -> None:
    storage_with(tmp_path, f"sales.schema/customers/{file_name(1)}", f"orders/{file_name(1)}")
    storage = Closed(tmp_path)
    storage.closed = f"{LANDING_ZONE}/sales.schema"
    zone = scan(storage)
    assert list(zone.errors) == [storage.closed]
    assert zone.is_unknown("Tables/sales/customers", "")
    assert not zone.is_unknown("Tables/gone", "")


def test_a_link_in_the_place_of_a_folder_is_no_table_and_no_dropped_one(tmp_path: Path) -> None:
    storage_with(tmp_path, f"real/{file_name(1)}")
    zone_folder = tmp_path / LANDING_ZONE
    (zone_folder / "orders").symlink_to(zone_folder / "real")
    (zone_folder / "sales.schema").symlink_to(zone_folder)
    zone = scan(LocalStorage(tmp_path))
    assert list(zone.tables) == [TableName("", "real")]
    assert [warned.code for warned in not_files(zone.others)] == ["not-a-file"] * 2
    assert zone.is_unknown("Tables/orders", "")
    assert zone.is_unknown("Tables/dbo/orders", "dbo")
    assert zone.is_unknown("Tables/sales/customers", "")


def test_one_table_is_listed_alone_as_in_the_zone(tmp_path: Path) -> None:
    storage = storage_with(
        tmp_path, f"orders/{file_name(1)}", f"orders/_ProcessedFiles/{file_name(2)}", "orders/_metadata.json",
        f"sales.schema/customers/{file_name(1)}", f"orders/day=1/_t/{file_name(1)}",
    )  # fmt: skip
    os.mkfifo(tmp_path / ORDERS.folder / "fifo")
    for name, folder in scan(storage).tables.items():
        alone = scan_table(storage, name)
        assert alone is not None
        assert sorted(e.path for e in alone.files) == sorted(e.path for e in folder.files)
        assert (alone.metadata, alone.processed, alone.others) == (folder.metadata, folder.processed, folder.others)
        assert sorted(alone.skipped) == sorted(folder.skipped)
    assert scan_table(storage, TableName("", "gone")) is None


@pytest.mark.parametrize("kind", ["fifo", "link", "folder", "huge"])
def test_metadata_that_is_no_file_is_an_error_not_a_default(tmp_path: Path, kind: str) -> None:
    storage = storage_with(tmp_path, f"orders/{file_name(1)}")
    place = tmp_path / ORDERS.folder / "_metadata.json"
    if kind == "fifo":
        os.mkfifo(place)
    elif kind == "link":
        place.symlink_to(tmp_path / "elsewhere")
    elif kind == "folder":
        place.mkdir()
    else:
        with place.open("wb") as file:
            file.truncate(5 * 1024**3)
    with pytest.raises(TableError) as caught:
        read_metadata(storage, scan(storage).tables[ORDERS])
    assert caught.value.code == "metadata-invalid"
    assert "metadata-invalid" in {finding.code for finding in check(tmp_path)}, "check says what the engine says"


def test_metadata_that_becomes_a_fifo_behind_the_listing(tmp_path: Path) -> None:
    storage = storage_with(tmp_path, "orders/_metadata.json")
    folder = scan(storage).tables[ORDERS]
    place = tmp_path / ORDERS.folder / "_metadata.json"
    place.unlink()
    os.mkfifo(place)
    with pytest.raises(TableError) as caught:
        read_metadata(storage, folder)
    assert caught.value.code == "metadata-invalid"


def test_a_marker_is_never_waited_for_and_never_written_elsewhere(tmp_path: Path) -> None:
    storage = storage_with(tmp_path, f"orders/{file_name(1)}", f"other/{file_name(1)}")
    place = tmp_path / ORDERS.folder / "_mirror.json"
    os.mkfifo(place)
    folder = scan(storage).tables[ORDERS]
    with pytest.raises(LakemirrorError) as caught:
        identify(storage, TableFiles(folder), None)
    assert caught.value.code == "path-refused"
    place.unlink()
    place.symlink_to(tmp_path / "outside")
    with pytest.raises(LakemirrorError):
        identify(storage, TableFiles(folder), None)
    assert not (tmp_path / "outside").exists()
    place.unlink()
    with place.open("wb") as file:
        file.truncate(3 * 1024**3)
    assert identify(storage, TableFiles(folder), None).kind == "new"
    assert place.stat().st_size < 1000, "what cannot be a marker is replaced"


def test_who_publishes_may_be_no_file(tmp_path: Path) -> None:
    storage = storage_with(tmp_path)
    with write(tmp_path, "_partnerEvents.json").open("wb") as file:
        file.truncate(3 * 1024**3)
    partner, warned = read_partner(storage, scan(storage))
    assert partner is None
    assert warned is not None
    assert warned.code == "partner-events-invalid"


def test_a_name_that_is_no_text() -> None:
    check_name(TableName("größe", "tü\n"))
    with pytest.raises(TableError) as caught:
        check_name(TableName("", "caf\udce9"))
    assert caught.value.code == "table-name-invalid"
