"""The open Delta Sharing protocol: mirrored tables for readers that have a profile file and nothing else.

request ─▶ role ─▶ table ─▶ snapshot ─▶ lines of JSON with signed links ─▶ the client opens each link
"""
