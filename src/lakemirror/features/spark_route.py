"""The steps of a drop that rewrite data files, by Delta Spark: for tables that the kernels cannot rewrite (`route.py`).

Each step is one SQL statement and changes no protocol. lakemirror's own commits switch the features off before and
remove them from the protocol afterwards, so that three features need one rewrite and one change of the protocol.
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

    Errors: `concurrent-commit` if another commit changed the same files first, `drop-unproven` for any other failure.
    Then the table is unchanged.
    """
    target = f"delta.`{table}`"
    session = spark.newSession()
    try:
        if feature == "columnMapping":
            session.sql(f"ALTER TABLE {target} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')")
        elif feature == "deletionVectors":
            session.sql(f"REORG TABLE {target} APPLY (PURGE)").collect()
        else:
            session.conf.set(
                _FAST_DROP, "false"
            )  # the statement stops after the rewrite and does not change the protocol
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
