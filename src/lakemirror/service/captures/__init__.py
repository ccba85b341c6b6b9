"""Captures that the operator declares: each a process of its own, `lakemirror capture`, that the service keeps running.

declaration (on disk, without a password) ─▶ capture host ─▶ one process each ─▶ its reports ─▶ REST, page, metrics
"""
