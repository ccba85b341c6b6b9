"""The engine that carries row work as Spark tasks, by the public PySpark API alone: classic or Connect, 3.5 and later.

RowWork ─▶ stages of units ─▶ DataFrame, mapInArrow ─▶ tasks on executors ─▶ small results ─▶ RowResult

Executors need what PySpark's own Arrow functions need: pyarrow and numpy, and pandas before 4.1. lakemirror's own code
travels with each task (`task_code`).
"""

from lakemirror.engines.spark.engine import SparkEngine

__all__ = ["SparkEngine"]
