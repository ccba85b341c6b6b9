"""What a capture needs to know of SQL Server: tables and types, loads by Debezium's snapshot, change tables.

    catalog: tables, capture instances ─▶ a position ─▶ load: rows of a snapshot, as events ─▶ change tables: events

No part of it was tried against a server: tests use events that Debezium's own converters wrote.
"""
