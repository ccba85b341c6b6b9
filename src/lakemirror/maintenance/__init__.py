"""Idle-time work on mirrored tables: compaction and removal of unused files.

policy (pure) ─▶ compaction ─▶ a commit without a change of data
"""
