"""Table features of any Delta table: what it has, what stands in a client's way, and how to drop it.

Nothing here knows of mirroring. Only the writing of data files needs Spark; everything else is the log.

    delta_log ─▶ usage ─▶ plan ─▶ drop ─▶ log_commit, history, spark_route ─▶ read_back
"""

from lakemirror.table_features.drop import Dropped, drop
from lakemirror.table_features.plan import Plan, Step, Wish, make_plan

__all__ = ["Dropped", "Plan", "Step", "Wish", "drop", "make_plan"]
