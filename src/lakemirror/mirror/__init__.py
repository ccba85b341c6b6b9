"""One mirrored database: what its tables need now, and the loop that gives it to them.

    landing zone, Delta log ─▶ observe ─▶ plan ─▶ run ─▶ commit ─▶ archive   (one table: step.py)
    scheduler ─▶ turns ─▶ … ─▶ loop   (many tables)

The position of a table is in the table itself; everything else that is remembered here saves time and may be lost.
"""
