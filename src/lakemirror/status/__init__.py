"""What people and monitors see of a mirrored database.

states of the tables ─▶ status: files in `Files/Monitoring` ─▶ status_reader ─▶ attention, table_metrics
"""
