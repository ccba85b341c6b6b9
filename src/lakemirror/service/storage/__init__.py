"""The storage plane: files of mirrored databases in the vendor's DFS and Blob dialects.

request ─▶ handler ─▶ dfs | blob ─▶ database_files (what is there) ─▶ staging ─▶ publish, rename, removal
"""

from lakemirror.service.storage.handler import StorageEndpoint

__all__ = ["StorageEndpoint"]
