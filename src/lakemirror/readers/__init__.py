"""How others read the tables: where they are, as entries of a catalog, by SQL.

Delta tables ─▶ table_readers: lines to paste ─▶ catalog_entries: Spark's catalog, Unity's     table_query: DuckDB
"""
