"""The rows of Delta's change data feed for one apply (contract section 10)."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from lakemirror.landing_zone.formats import FILE, ROW, quoted

CHANGE_TYPE = "_change_type"


def with_change_rows(survivors: DataFrame, touched: DataFrame, key_columns: Sequence[str]) -> DataFrame:
    """The surviving rows with an empty CHANGE_TYPE, and beside them the feed's own rows, where it is set.

    A key that had rows and has one again is an update: its old rows are `update_preimage`, its first new row
    `update_postimage`, further ones `insert`. Else old rows are `delete` and new ones `insert`. `touched`: the
    table's rows that this apply deletes.
    """
    key = F.struct(*(F.col(quoted(k)).alias(f"k{i}") for i, k in enumerate(key_columns)))
    old = touched.withColumn("__key__", key)
    new = survivors.withColumn("__key__", key)
    had = old.select("__key__").distinct().withColumn("__had__", F.lit(True))
    has = new.select("__key__").distinct().withColumn("__has__", F.lit(True))
    order = Window.partitionBy("__key__").orderBy(FILE, ROW)
    arrived = new.withColumn("__rank__", F.row_number().over(order)).join(had, "__key__", "left")
    after = arrived.withColumn(
        CHANGE_TYPE,
        F.when(F.col("__had__") & (F.col("__rank__") == 1), F.lit("update_postimage")).otherwise(F.lit("insert")),
    )
    gone = old.join(has, "__key__", "left")
    before = gone.withColumn(CHANGE_TYPE, F.when(F.col("__has__"), F.lit("update_preimage")).otherwise(F.lit("delete")))
    data = survivors.withColumn(CHANGE_TYPE, F.lit(None).cast("string"))
    helpers = ("__key__", "__had__", "__has__", "__rank__")
    result = data.unionByName(after.drop(*helpers))
    return result.unionByName(before.drop(*helpers), allowMissingColumns=True)
