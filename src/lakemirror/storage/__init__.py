"""Every file operation outside Spark, behind one small protocol."""

from lakemirror.storage.local import Entry, Listing, LocalStorage, Storage, copy_file, seconds_since

__all__ = ["Entry", "Listing", "LocalStorage", "Storage", "copy_file", "seconds_since"]
