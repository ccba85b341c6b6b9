"""The engines, which run the row work of an apply, and the kernels, which are its functions.

plan ─▶ engine (local threads or Spark tasks) ─▶ kernels ─▶ data files and row numbers to delete; no commit
"""
