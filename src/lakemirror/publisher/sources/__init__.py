"""Where rows come from: files of other programs, queries of databases, Spark's own values.

file ─▶ files ─▶ csv_rows, json_rows, workbook ─▶ text_types: a type for each column ─▶ Arrow batches
query ─▶ sql_databases ─▶ sql_types: how each column is read ─▶ Arrow batches
"""
