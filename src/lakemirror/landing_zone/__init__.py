"""The files that publishers dropped, and their order (contract sections 1, 2, 4, 7, 8).

    scan ─▶ identify ─▶ parse_metadata ─▶ pending ─▶ (the engine applies) ─▶ retire ─▶ purge

One listing shows all files; decisions about it are pure. Nothing here knows Delta tables, and only `formats` knows
Spark. `check` tells a publisher's author what is wrong, without applying anything.
"""
