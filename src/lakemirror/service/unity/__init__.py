"""Unity Catalog's open REST interface, its read side: what catalogs, schemas and tables there are, and their columns.

path ─▶ operation ─▶ principal ─▶ catalog, schema, table ─▶ answer; it makes, changes and deletes nothing.
"""
