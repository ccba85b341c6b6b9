"""Codes that need an unusual state, made in this process; the larger tests meet most others."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from tests.landing import put

from lakemirror import MirroredDatabase
from lakemirror.errors import LakemirrorError
from lakemirror.features.drop import Wish, drop
from lakemirror.mirror.scheduler import Scheduler
from lakemirror.settings.settings import Settings
from lakemirror.spark_session import session


def sync(database: Path) -> Any:
    return MirroredDatabase(database, engine="local", maintenance=False).sync()


def test_a_table_of_somebody_else(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "Tables/t", pa.table({"id": [1]}))
    put(tmp_path, "t", 1, {"id": [2]})
    put(tmp_path, "u", 1, {"id": [2]})
    failed = sync(tmp_path).failed
    assert {name: error.code for name, error in failed.items()} == {"t": "target-foreign"}
    assert deltalake.DeltaTable(tmp_path / "Tables/t").version() == 0, "left alone"


def test_two_folders_for_one_table(tmp_path: Path) -> None:
    for name in ("orders", "Orders", "other"):
        put(tmp_path, name, 1, {"id": [1]})
    failed = sync(tmp_path).failed
    assert {name: error.code for name, error in failed.items()} == dict.fromkeys(
        ("orders", "Orders"), "table-name-ambiguous"
    )
    assert all("share one table" in error.message for error in failed.values())


def test_a_name_that_needs_column_mapping(tmp_path: Path) -> None:
    put(tmp_path, "t", 1, {"a b": [1]})
    assert not sync(tmp_path).failed
    with pytest.raises(LakemirrorError) as caught:
        drop(tmp_path / "Tables/t", Wish(("columnMapping",)), confirmed=True)
    assert caught.value.code == "column-names-invalid" and "'a b'" in caught.value.message
    assert "RENAME COLUMN" in caught.value.hint


def test_a_spark_that_has_died(tmp_path: Path) -> None:
    scheduler = Scheduler(MirroredDatabase(tmp_path).storage, Settings(), lambda _: None)  # type: ignore[arg-type, return-value]
    scheduler.broken = True
    with pytest.raises(LakemirrorError) as caught:
        scheduler.tick()
    assert caught.value.code == "spark-failed" and "nothing is half done" in caught.value.message


def test_no_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the package is not installed: the import fails."""
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setattr(session, "_show_pandas", lambda: None)
    with pytest.raises(LakemirrorError) as caught:
        session.start(Settings())
    assert caught.value.code == "pyspark-missing" and "pip install" in caught.value.hint
