"""A mirrored database as a streaming query of Spark.

arrivals: what came into the landing zone ─▶ foreachBatch ─▶ mirror_stream: one pass with the query's session
"""

from lakemirror.spark.mirror_stream import mirror

__all__ = ["mirror"]
