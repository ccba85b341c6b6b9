"""Workspaces and mirrored databases: the registry on disk, and its REST interface.

request ─▶ role ─▶ registry (item files) ─▶ engine host
"""
