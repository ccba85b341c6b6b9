"""Every file operation outside Spark, on local disks and in object stores, behind one small protocol."""

from lakemirror.storage.local import LocalStorage
from lakemirror.storage.new_files import copy_file
from lakemirror.storage.place import Place, place
from lakemirror.storage.storage import MOVING, Entry, Listing, Storage, seconds_since

__all__ = ["MOVING", "Entry", "Listing", "LocalStorage", "Place", "Storage", "copy_file", "place", "seconds_since"]
