"""The files that publishers dropped, and their order (contract sections 1, 2, 4, 7, 8).

    scan ─▶ read_metadata ─▶ identify ─▶ pending ─▶ (the engine applies) ─▶ archive ─▶ purge

One listing shows all files; decisions about it are pure. Nothing here knows Delta tables.
"""
