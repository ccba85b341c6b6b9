"""Features of a table that is named as the user's catalog names it, by a classic session and by Spark Connect."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer
from tests.commands import CommandRunner
from tests.spark.test_spark_engine import ROOT, clean, connect_server

from lakemirror.cli import features as cli_features
from lakemirror.delta.feature_names import features_of
from lakemirror.delta.log import read_snapshot
from lakemirror.errors import LakemirrorError
from lakemirror.features.catalog_names import path_of
from lakemirror.settings.settings import Settings
from lakemirror.spark_session import jars, jvm, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


VECTORS = "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"


def test_a_table_by_its_name(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_features, "_session", lambda: spark)
    folder = tmp_path / "a table 20%25"
    spark.sql("CREATE SCHEMA named")
    try:
        spark.sql(f"CREATE TABLE named.`orders` (id BIGINT) USING delta LOCATION '{folder}' {VECTORS}")
        spark.sql("CREATE VIEW named.seen AS SELECT 1 AS id")
        spark.sql("CREATE TABLE named.other (id BIGINT) USING parquet")
        for name in ("named.`orders`", "spark_catalog.named.`orders`"):
            assert Path(path_of(spark, name)) == folder
        for name, why in {
            "named.seen": "no table", "named.other": "of the format parquet", "named.absent": "does not show",
            "named.x; DROP SCHEMA named CASCADE": "is not the name", "": "is not the name",
        }.items():  # fmt: skip
            with pytest.raises(LakemirrorError, match=why) as caught:
                path_of(spark, name)
            assert caught.value.code == "table-unreadable"
        app = typer.Typer()
        app.add_typer(cli_features.app, name="features")
        app.command()(cli_features.compat)
        named = ["--table", "named.`orders`"]

        def run(*words: str) -> tuple[int, str]:
            result = CommandRunner().invoke(app, list(words))
            return result.exit_code, result.stdout

        assert "deletionVectors" in run("features", "list", *named)[1]
        assert run("compat", *named, "--for", "delta-rs@0.10.2")[0] == 3
        assert str(folder) in run("features", "plan", *named, "--drop", "deletionVectors")[1]
        assert run("features", "plan", str(folder), *named, "--drop", "deletionVectors")[0] == 2
        assert run("features", "list")[0] == 2
        assert run("features", "drop", *named, "deletionVectors", "--yes")[0] == 0
        found = read_snapshot(folder)
        assert found is not None and "deletionVectors" not in features_of(found.protocol)
    finally:
        spark.sql("DROP SCHEMA named CASCADE")


SCRIPT = """
import json, sys
from lakemirror.settings.settings import Settings
from lakemirror.spark_session.session import start
spark = start(Settings().with_environment(), delta=True)
spark.sql(
    f"CREATE TABLE named (id SMALLINT, name STRING) USING delta LOCATION '{sys.argv[1]}' TBLPROPERTIES "
    "('delta.enableTypeWidening' = 'true', 'delta.enableRowTracking' = 'true', 'delta.enableDeletionVectors' = 'true')"
)
spark.sql("INSERT INTO named SELECT cast(id AS SMALLINT), string(id) FROM range(100)")
spark.sql("ALTER TABLE named ALTER COLUMN id TYPE INT")
spark.sql("DELETE FROM named WHERE id = 7")
from lakemirror.cli import main
sys.argv = ["lakemirror", "features", "drop", "--table", "named", "deletionVectors", "typeWidening", "--yes", "--json"]
try:
    main()
except SystemExit as ended:
    print("\\nended", ended.code or 0)
rows = [row[0] for row in spark.sql("SELECT id FROM named ORDER BY id").collect()]
print(json.dumps([rows, spark.conf.get("spark.databricks.delta.tableFeatures.fastDropFeature.enabled", None)]))
"""


@pytest.mark.full
@pytest.mark.skipif(importlib.util.find_spec("grpc_status") is None, reason="pyspark[connect] is not installed")
def test_delta_spark_rewrites_over_connect(tmp_path: Path) -> None:
    """Row tracking keeps the kernels from rewriting this table: statements of the server do it."""
    options = {**session.DELTA, "spark.jars": ",".join(map(str, jars.ensure(Settings().with_environment())))}
    with connect_server(Path(sys.executable), jvm.spark_home(), tmp_path, more=options) as address:
        environment = {**clean(), "PYTHONPATH": str(ROOT / "src"), "LAKEMIRROR_SPARK_REMOTE": address}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(tmp_path / "table")], env={**os.environ, **environment}, cwd=tmp_path,
            capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "ended 0" in done.stdout, done.stdout + done.stderr
    assert "by Delta Spark, because the table has rowTracking" in done.stderr
    rows, setting = json.loads(done.stdout.splitlines()[-1])
    assert rows == [number for number in range(100) if number != 7]
    assert setting in (None, "true")
    found = read_snapshot(tmp_path / "table")
    assert found is not None and not {"deletionVectors", "typeWidening"} & features_of(found.protocol)
