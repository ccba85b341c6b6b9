"""The landing zone as one listing shows it (contract section 1)."""

from __future__ import annotations

from pathlib import Path

import pytest
from folders import ORDERS, file_name, storage_with, write

from lakemirror.landing_zone.zone import LANDING_ZONE, TableFolder, TableName, Zone, collisions, scan
from lakemirror.lint import check
from lakemirror.storage import LocalStorage

CUSTOMERS = TableName("sales", "customers")


def names(folder: TableFolder) -> list[str]:
    return sorted(entry.path[len(folder.name.folder) + 1 :] for entry in folder.files)


def test_tables_with_and_without_a_schema(tmp_path: Path) -> None:
    storage = storage_with(tmp_path, f"orders/{file_name(1)}", f"sales.schema/customers/{file_name(1)}")
    zone = scan(storage)
    assert list(zone.tables) == [ORDERS, CUSTOMERS]
    assert names(zone.tables[CUSTOMERS]) == [file_name(1)]
    assert zone.tables[CUSTOMERS].files[0].path == f"{LANDING_ZONE}/sales.schema/customers/{file_name(1)}"


def test_a_missing_landing_zone_is_no_empty_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        scan(LocalStorage(tmp_path))
    (tmp_path / LANDING_ZONE).mkdir(parents=True)
    assert scan(LocalStorage(tmp_path)) == Zone({}, [])


def test_metadata_alone_is_a_table_that_waits(tmp_path: Path) -> None:
    write(tmp_path, "orders/_metadata.json", "{}")
    folder = scan(storage_with(tmp_path, "empty/")).tables[ORDERS]
    assert folder.files == []
    assert folder.metadata is not None
    assert folder.metadata.size == 2


def test_an_empty_folder_is_listed(tmp_path: Path) -> None:
    assert list(scan(storage_with(tmp_path, "orders/")).tables) == [ORDERS]


def test_reserved_folders_are_no_tables_and_are_reported(tmp_path: Path) -> None:
    storage = storage_with(
        tmp_path, "__hygge_journal/a.parquet", "_scratchPad/", "sales.schema/_hidden/a.parquet", "_x.schema/t/a.parquet"
    )
    zone = scan(storage)
    assert zone.tables == {}
    assert zone.skipped == [
        f"{LANDING_ZONE}/{name}" for name in ("__hygge_journal", "_scratchPad", "_x.schema", "sales.schema/_hidden")
    ]


def test_own_files_are_kept_apart(tmp_path: Path) -> None:
    storage = storage_with(
        tmp_path,
        f"orders/{file_name(2)}",
        "orders/_metadata.json",
        "orders/_mirror.json",
        "orders/_resume_token.pkl",
        f"orders/_{file_name(3)}",
        f"orders/_ProcessedFiles/{file_name(1)}",
        f"orders/_ProcessedFiles/day=1/{file_name(1)}",
        "orders/_Temp/x.parquet",
    )
    folder = scan(storage).tables[ORDERS]
    assert names(folder) == [file_name(2)]
    assert folder.metadata is not None
    assert folder.metadata.name == "_metadata.json"
    assert folder.marker is not None
    assert folder.marker.name == "_mirror.json"
    assert {entry.path for entry in folder.processed} == {
        f"{ORDERS.folder}/_ProcessedFiles/{file_name(1)}",
        f"{ORDERS.folder}/_ProcessedFiles/day=1/{file_name(1)}",
    }
    assert folder.skipped == [f"{ORDERS.folder}/_Temp"]


def test_metadata_counts_only_in_the_table_folder_itself(tmp_path: Path) -> None:
    storage = storage_with(tmp_path, "orders/day=1/_metadata.json", "orders/day=1/_mirror.json")
    folder = scan(storage).tables[ORDERS]
    assert (folder.metadata, folder.marker, folder.files) == (None, None, [])


def test_files_of_partitions_have_their_full_path(tmp_path: Path) -> None:
    storage = storage_with(
        tmp_path, f"orders/day=1/{file_name(1)}", f"orders/day=2/region=x/{file_name(1)}", "orders/day=1/_t/x.parquet"
    )
    assert names(scan(storage).tables[ORDERS]) == [f"day=1/{file_name(1)}", f"day=2/region=x/{file_name(1)}"]


def test_service_folders_of_a_table_are_not_entered_nor_reported(tmp_path: Path) -> None:
    storage = storage_with(tmp_path, "orders/_QuarantinedFiles/x.parquet", "orders/_FilesReadyToDelete/x.parquet")
    folder = scan(storage).tables[ORDERS]
    assert (folder.files, folder.processed, folder.skipped) == ([], [], [])


def test_files_outside_of_tables_are_strays(tmp_path: Path) -> None:
    storage = storage_with(tmp_path, "a.parquet", "sales.schema/b.parquet", "_partnerEvents.json", "_state")
    zone = scan(storage)
    assert zone.tables == {}
    assert sorted(entry.name for entry in zone.strays) == ["a.parquet", "b.parquet"]
    assert zone.partner_events is not None


def test_a_schema_without_a_name_holds_no_tables(tmp_path: Path) -> None:
    zone = scan(storage_with(tmp_path, ".schema/t/a.parquet"))
    assert (zone.tables, zone.skipped) == ({}, [f"{LANDING_ZONE}/.schema"])
    (warned,) = zone.warnings
    (finding,) = check(tmp_path)
    assert warned.code == finding.code == "folder-skipped"
    assert "it names no schema" in warned.message and "it names no schema" in finding.message


def test_the_zone_is_listed_in_one_walk(tmp_path: Path) -> None:
    class Counting(LocalStorage):
        walks = 0

        def list(self, *arguments: object, **options: object):  # type: ignore[no-untyped-def,override]
            self.walks += 1
            return super().list(*arguments, **options)  # type: ignore[arg-type]

    storage_with(tmp_path, *(f"t{n}/{file_name(1)}" for n in range(20)))
    storage = Counting(tmp_path)
    assert len(scan(storage).tables) == 20
    assert storage.walks == 1


def zone_of(*tables: TableName) -> Zone:
    return Zone({name: TableFolder(name) for name in tables}, [])


@pytest.mark.parametrize(
    ("first", "second", "default_schema", "collide"),
    [
        (TableName("", "Orders"), TableName("", "orders"), "", True),
        (TableName("a", "t"), TableName("A", "T"), "", True),
        (TableName("dbo", "orders"), TableName("", "orders"), "dbo", True),
        (TableName("dbo", "orders"), TableName("", "orders"), "", False),
        (TableName("", "sales"), TableName("sales", "customers"), "", True),  # one Delta table inside the other
        (TableName("", "sales"), TableName("sales", "customers"), "dbo", False),
        (TableName("a", "t"), TableName("b", "t"), "", False),
        (TableName("", "orders"), TableName("", "orders2"), "", False),
    ],
)
def test_collisions(first: TableName, second: TableName, default_schema: str, collide: bool) -> None:
    found = collisions(zone_of(first, second), default_schema)
    assert found == ({first: second, second: first} if collide else {})


def test_collisions_name_every_table_in_conflict_and_no_other() -> None:
    three = [TableName("", name) for name in ("T", "t", "u")]
    assert collisions(zone_of(*three), "") == {three[0]: three[1], three[1]: three[0]}
