"""Where change files go: a table folder on a local disk, in an object store, or behind the endpoint of a service.

table_folder (what all can) ◀─ local_folder, store_folder, endpoint_folder ─▶ endpoint (HTTPS) ─▶ credentials
"""
