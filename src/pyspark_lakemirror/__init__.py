"""The format `lakemirror`, found by Spark: PySpark 4.0 and later import every module `pyspark_…` for its source.

Spark reads the name `DefaultSource` (`pyspark/sql/worker/lookup_data_sources.py`). An error here would take the other
data sources away from their users too.
"""

from contextlib import suppress

with suppress(Exception):
    from lakemirror.publisher.spark import LakemirrorSource as DefaultSource

__all__ = ["DefaultSource"]
