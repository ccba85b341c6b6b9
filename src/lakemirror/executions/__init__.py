"""What happened in a mirrored database, as a Delta table of its own: applies, errors, drops, maintenance.

event ─▶ Execution ─▶ a line of the spool, beside the status ─▶ now and then one append to Tables/_lakemirror/executions

Nothing else depends on it: a failure here never stops a table. `docs/decisions/043-what-happened.md` says why.
"""
