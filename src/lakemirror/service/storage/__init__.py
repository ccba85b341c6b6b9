"""The storage plane: files of mirrored databases in the vendor's DFS and Blob dialects.

request ─▶ handler ─▶ dfs | blob ─▶ place (what is there) ─▶ staging ─▶ publish, rename, removal
"""

from lakemirror.service.storage.handler import StorageEndpoint

__all__ = ["StorageEndpoint"]
