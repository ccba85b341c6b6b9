"""One mirrored database: what its tables need now, and the loop that gives it to them.

    landing zone, Delta log ─▶ inspector ─▶ planner ─▶ apply ─▶ table_commit ─▶ archive   (one table)
    scheduler ─▶ turns ─▶ … ─▶ loop   (many tables)

The position of a table is in the table itself; everything else that is remembered here saves time and may be lost.
"""
