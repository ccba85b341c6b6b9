"""The steps of a drop that rewrite data files, by Delta Spark: for tables that the kernels cannot rewrite (`route.py`).

Each step is one SQL statement and changes no protocol. lakemirror's own commits switch the features off before and
remove them from the protocol afterwards, so that three features need one rewrite and one change of the protocol.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from lakemirror.errors import LakemirrorError
from lakemirror.spark_session.connect_server import is_remote
from lakemirror.storage.place import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FAST_DROP = "spark.databricks.delta.tableFeatures.fastDropFeature.enabled"
_TRACES_ARE_GONE = ("DELTA_FEATURE_DROP_WAIT_FOR_RETENTION_PERIOD", "DELTA_FEATURE_DROP_HISTORICAL_VERSIONS_EXIST")
_TRY_AGAIN = ("DELTA_CONCURRENT", "DELTA_PROTOCOL_CHANGED", "DELTA_METADATA_CHANGED", "DELTA_FEATURE_DROP_CONFLICT")

_of_a_server = threading.Lock()


def rewrite(spark: SparkSession, table: Place, feature: str) -> None:
    """Rewrites every data file that holds traces of columnMapping, deletionVectors or typeWidening.

    Errors: `concurrent-commit` if another commit changed the same files first, `drop-unproven` for any other failure.
    Then the table is unchanged.
    """
    target = f"delta.`{table}`"
    try:
        if feature == "columnMapping":
            spark.sql(f"ALTER TABLE {target} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')")
        elif feature == "deletionVectors":
            spark.sql(f"REORG TABLE {target} APPLY (PURGE)").collect()
        else:
            with _without_fast_drop(spark) as session:
                session.sql(f"ALTER TABLE {target} DROP FEATURE `{feature}`")
    except Exception as error:
        if not any(name in str(error) for name in _TRACES_ARE_GONE):
            raise _translated(error, table, feature) from error


@contextlib.contextmanager
def _without_fast_drop(spark: SparkSession) -> Iterator[SparkSession]:
    """A session in which DROP FEATURE stops after the rewrite and does not change the protocol: a new one, or the same
    with Spark Connect, which has no other before 4.3."""
    if not is_remote(spark):
        session = spark.newSession()
        session.conf.set(_FAST_DROP, "false")
        yield session
        return
    with _of_a_server:
        before = spark.conf.get(_FAST_DROP, None)
        spark.conf.set(_FAST_DROP, "false")
        try:
            yield spark
        finally:
            if before is None:
                spark.conf.unset(_FAST_DROP)
            else:
                spark.conf.set(_FAST_DROP, before)


def _translated(error: Exception, table: Place, feature: str) -> LakemirrorError:
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if any(name in str(error) for name in _TRY_AGAIN):
        return LakemirrorError("concurrent-commit", f"rewriting {table} for {feature}: {text}", table=str(table))
    return LakemirrorError(
        "drop-unproven", f"Delta Spark cannot rewrite {table} for {feature}: {text}", table=str(table)
    )
