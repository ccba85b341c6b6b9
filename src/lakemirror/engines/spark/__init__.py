"""The Spark engine: row work as Spark tasks, with PySpark's public API only (classic or Connect, 3.5 and later).

RowWork ─▶ stages of units ─▶ DataFrame, mapInArrow ─▶ tasks on executors ─▶ small results ─▶ RowResult

Executors need only what PySpark's Arrow functions need: pyarrow, numpy and pandas. lakemirror's own code is sent with
each task (`task_code`).
"""

from lakemirror.engines.spark.spark_engine import SparkEngine

__all__ = ["SparkEngine"]
