"""A table folder's `_metadata.json`, and entries of the folder that are not regular files (sections 1, 2)."""

from __future__ import annotations

from lakemirror.errors import LakemirrorError, TableError
from lakemirror.landing_zone.metadata import MAX_SIZE, TableMetadata, Warned, capped, parse_metadata
from lakemirror.landing_zone.zone import METADATA, TableFolder, TableName
from lakemirror.storage import Storage


def read_metadata(storage: Storage, folder: TableFolder) -> TableMetadata:
    """What the folder's `_metadata.json` says; the defaults where there is none.

    TableError `metadata-invalid` also where it is not a regular file or has more than 16 MiB, which are not read:
    without it the table's key columns are not known, and rows applied without them would be wrong.
    """
    path = f"{folder.name.folder}/{METADATA}"
    kind = folder.others.get(path) or ("a folder" if path in folder.skipped else "")
    if kind:
        raise TableError("metadata-invalid", f"{METADATA} is {kind}, not a file", file=path)
    if folder.metadata is None:
        return TableMetadata()
    try:
        return parse_metadata(storage.read(path, MAX_SIZE, folder.metadata), path)
    except FileNotFoundError:
        return TableMetadata()
    except LakemirrorError as error:
        if error.code == "content-too-large":
            message = f"{METADATA} is larger than {MAX_SIZE // 1024**2} MiB and is not read"
            raise TableError("metadata-invalid", message, file=path) from error
        if error.code == "path-refused":  # it became one since the listing
            raise TableError("metadata-invalid", error.message, file=path) from error
        raise


def check_name(name: TableName) -> None:
    """TableError `table-name-invalid` for a folder whose name is no UTF-8: no Delta table can have that name."""
    try:
        str(name).encode("utf-8")
    except UnicodeEncodeError as error:
        shown = name.folder.encode("utf-8", "backslashreplace").decode("ascii", "backslashreplace")
        raise TableError("table-name-invalid", f"the folder's name is not UTF-8: {shown}", file=name.folder) from error


def not_files(others: dict[str, str]) -> list[Warned]:
    """One warning for each path that is neither a regular file nor a folder."""
    return capped(
        Warned("not-a-file", f"{path.rpartition('/')[2]} is {kind}: it is never opened", path)
        for path, kind in sorted(others.items())
    )


__all__ = ["check_name", "not_files", "read_metadata"]
