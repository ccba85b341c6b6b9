"""Who carries the row work of an apply, and the kernels that do it.

plan ─▶ engine (local threads, or Spark tasks) ─▶ kernels ─▶ data files and deletion vectors, nothing committed
"""
