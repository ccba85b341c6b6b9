"""What a capture needs to know of PostgreSQL itself: its tables and types, initial loads, the replication slot.

    catalog: tables, columns, keys ─▶ slot: a position and its snapshot ─▶ load: rows of that snapshot ─▶ the stream

Values of a load and of the stream are the same: `types.py` has both conversions of a column beside each other.
"""
