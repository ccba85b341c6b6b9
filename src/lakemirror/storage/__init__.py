"""Every file operation outside Spark, behind one small protocol."""

from lakemirror.storage.local import LocalStorage, copy_file
from lakemirror.storage.storage import Entry, Listing, Storage, seconds_since

__all__ = ["Entry", "Listing", "LocalStorage", "Storage", "copy_file", "seconds_since"]
