"""The history of a table folder: tables of changes and of versions beside the mirrored table, and its soft deletes.

    options ─▶ row_options (the mirrored table)
            └▶ history_tables ─▶ begin ─▶ target_plans: a plan for each ─▶ apply: history first, the mirrored table last

What an operator asks for is apart: `build` makes a history again from applied files, `purge_deleted` forgets rows.
"""
