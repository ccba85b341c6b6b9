"""How others read the tables: where they are, as entries of a catalog, by SQL.

Delta tables ─▶ table_readers: lines to paste ─▶ catalog_entries: Spark's catalog     table_query: DuckDB
"""
