"""The steps that only Delta Spark can make: rewriting data files. One statement each, no protocol change.

The features are switched off before and leave the protocol after, by commits of our own, so that three features cost
one rewrite and one protocol change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakemirror.errors import LakemirrorError
from lakemirror.storage.place import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FAST_DROP = "spark.databricks.delta.tableFeatures.fastDropFeature.enabled"
_TRACES_ARE_GONE = ("DELTA_FEATURE_DROP_WAIT_FOR_RETENTION_PERIOD", "DELTA_FEATURE_DROP_HISTORICAL_VERSIONS_EXIST")
_TRY_AGAIN = ("DELTA_CONCURRENT", "DELTA_PROTOCOL_CHANGED", "DELTA_METADATA_CHANGED", "DELTA_FEATURE_DROP_CONFLICT")


def rewrite(spark: SparkSession, table: Place, feature: str) -> None:
    """Rewrites every data file that holds traces of columnMapping, deletionVectors or typeWidening.

    Raises `concurrent-commit` where a write of the same files came first, `drop-unproven` for any other failure; the
    table is as it was then.
    """
    target = f"delta.`{table}`"
    session = spark.newSession()
    try:
        if feature == "columnMapping":
            session.sql(f"ALTER TABLE {target} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')")
        elif feature == "deletionVectors":
            session.sql(f"REORG TABLE {target} APPLY (PURGE)").collect()
        else:
            session.conf.set(_FAST_DROP, "false")  # stops after the rewrite and leaves the protocol to us
            session.sql(f"ALTER TABLE {target} DROP FEATURE `{feature}`")
    except Exception as error:
        if not any(name in str(error) for name in _TRACES_ARE_GONE):
            raise _translated(error, table, feature) from error


def _translated(error: Exception, table: Place, feature: str) -> LakemirrorError:
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if any(name in str(error) for name in _TRY_AGAIN):
        return LakemirrorError("concurrent-commit", f"rewriting {table} for {feature}: {text}", table=str(table))
    return LakemirrorError(
        "drop-unproven", f"Delta Spark cannot rewrite {table} for {feature}: {text}", table=str(table)
    )
