"""No Delta table gets into another one's folder, where VACUUM or a drop of the outer table would take its files."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tests.databases import Database
from tests.landing import declare, folder, put

from lakemirror import LakemirrorError, MirroredDatabase
from lakemirror.api import SyncResult


def sync(database: Path, **settings: Any) -> SyncResult:
    return MirroredDatabase(database, engine="local", durability="process", drop_after=0, **settings).sync()


def rows(database: Path, table: str) -> Counter[tuple[Any, ...]]:
    return Database(str(database), {}).bag(table)


@pytest.mark.parametrize(("before", "after"), [("sales", "sales.customers"), ("sales.customers", "sales")])
def test_a_schema_takes_the_name_of_a_table_that_is_gone_and_the_reverse(
    tmp_path: Path, before: str, after: str
) -> None:
    """The drop of the one table would move the other one away, whose applied files are set aside already."""
    declare(tmp_path, before, ["id"])
    put(tmp_path, before, 1, {"id": [0]})
    sync(tmp_path)
    gone = folder(tmp_path, before)
    shutil.rmtree(gone.parent if gone.parent.name == "sales.schema" else gone)
    declare(tmp_path, after, ["id"])
    for number in (1, 2, 3):
        put(tmp_path, after, number, {"id": [number]})
    for _ in range(3):
        last = sync(tmp_path)
    assert not last.failed
    assert rows(tmp_path, after) == {(1,): 1, (2,): 1, (3,): 1}
    assert not (tmp_path / "Tables" / before.replace(".", "/") / "_delta_log").exists()


def test_a_table_inside_a_delta_table_of_another_program_is_not_made(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "Tables/sales"), pa.table({"id": [1]}))
    declare(tmp_path, "sales.customers", ["id"])
    put(tmp_path, "sales.customers", 1, {"id": [1]})
    assert sync(tmp_path).failed["sales.customers"].code == "target-foreign"
    assert not (tmp_path / "Tables/sales/customers").exists()


def test_a_default_schema_with_the_name_of_a_table(tmp_path: Path) -> None:
    """Each table moves into the schema's folder, and back: one of them from a folder into a folder of it."""
    for name in ("dbo", "orders"):
        declare(tmp_path, name, ["id"])
        put(tmp_path, name, 1, {"id": [name]})
    sync(tmp_path)
    for number, schema in ((2, "dbo"), (3, "")):
        for name in ("dbo", "orders"):
            put(tmp_path, name, number, {"id": [f"{name}{number}"]})
        for _ in range(3):
            last = sync(tmp_path, default_schema=schema)
        assert not last.failed
        for name in ("dbo", "orders"):
            table = f"{schema}.{name}" if schema else name
            wanted = {name, *(f"{name}{n}" for n in range(2, number + 1))}
            assert rows(tmp_path, table) == {(each,): 1 for each in wanted}
    assert not (tmp_path / "Files/_DroppedTables").exists()


def test_a_dropped_table_does_not_come_back_around_another(tmp_path: Path) -> None:
    declare(tmp_path, "sales", ["id"])
    put(tmp_path, "sales", 1, {"id": [0]})
    sync(tmp_path)
    shutil.rmtree(folder(tmp_path, "sales"))
    sync(tmp_path)
    sync(tmp_path)
    declare(tmp_path, "sales.customers", ["id"])
    put(tmp_path, "sales.customers", 1, {"id": [1]})
    sync(tmp_path)
    with pytest.raises(LakemirrorError, match="sales cannot come back beside Tables/sales/customers"):
        MirroredDatabase(tmp_path).restore("sales")
    assert not folder(tmp_path, "sales").exists()


def test_a_move_between_two_folders_of_one_name_goes_on_after_a_crash(tmp_path: Path) -> None:
    declare(tmp_path, "dbo", ["id"])
    put(tmp_path, "dbo", 1, {"id": [1]})
    sync(tmp_path)
    (tmp_path / "Tables/_moved").mkdir()
    (tmp_path / "Tables/dbo").rename(tmp_path / "Tables/_moved/dbo")
    assert not sync(tmp_path, default_schema="dbo").failed
    assert rows(tmp_path, "dbo.dbo") == {(1,): 1}
