"""Table features of any Delta table: what it has, what stands in a client's way, and how to drop it.

Nothing here knows of mirroring. Most drops are commits of the log alone. Data files are rewritten by the kernels, or by
Delta Spark where the kernels do not know a type or a feature of the table.

    log ─▶ usage ─▶ plan, with a route ─▶ drop ─▶ log_commit, history, kernel_route or spark_route ─▶ read_back
"""

from lakemirror.features.drop import Dropped, drop
from lakemirror.features.plan import Plan, Step, Wish, make_plan

__all__ = ["Dropped", "Plan", "Step", "Wish", "drop", "make_plan"]
