"""`_metadata.json` as a publisher writes it: atomically, before the first file (contract section 2)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.metadata import parse_metadata
from lakemirror.landing_zone.zone import METADATA
from lakemirror.publisher.folders.table_folder import TableFolder, write_whole


@dataclass(frozen=True)
class Declaration:
    """What the folder's `_metadata.json` says about keys and about the names of its files."""

    keys: tuple[str, ...] = ()
    extension: str = "parquet"


def read_declaration(folder: TableFolder, keys: Sequence[str] | None = None) -> Declaration:
    """The declaration, or the defaults; the one that will be valid with these key columns, not written yet.

    Declared keys never change: `key-columns-changed` for any other list. `metadata-invalid`; `not-supported` for text
    and partitions.
    """
    return _with_keys(_declaration(_read(folder), folder.path.name), keys, folder.path.name)


def declare(folder: TableFolder, keys: Sequence[str] | None) -> Declaration:
    """Declares the key columns unless they are declared, and returns the declaration; the same errors."""
    data = _read(folder)
    declared = _declaration(data, folder.path.name)
    wanted = _with_keys(declared, keys, folder.path.name)
    if keys is None or wanted == declared:
        return declared
    content = {name: value for name, value in _strictly(data, folder.path.name).items() if name.lower() != "keycolumns"}
    written = json.dumps({"keyColumns": list(keys), **content}, indent=2).encode() + b"\n"
    try:
        write_whole(folder, METADATA, written, new=data is None)
    except FileExistsError:  # another publisher declared its keys first
        return declare(folder, keys)
    return wanted


def _with_keys(declared: Declaration, keys: Sequence[str] | None, name: str) -> Declaration:
    if keys is None or not declared.keys:
        return declared if not keys else Declaration(tuple(keys), declared.extension)
    if set(keys) != set(declared.keys):
        raise LakemirrorError(
            "key-columns-changed",
            f"{name}: the key columns are {', '.join(declared.keys)}, not {', '.join(keys) or 'none'}",
            table=name,
            file=METADATA,
        )
    return declared


def _declaration(data: bytes | None, name: str) -> Declaration:
    if data is None:
        return Declaration()
    metadata = parse_metadata(data, f"{name}/{METADATA}")
    for declared, what in ((metadata.delimited is not None, "delimited text"), (metadata.partitioned, "partitions")):
        if declared:
            raise LakemirrorError(
                "not-supported",
                f"{name}: {METADATA} declares {what}; this publisher writes one sequence of Parquet files",
                hint="Publish to a table folder of its own, or delete this one and publish it again.",
            )
    return Declaration(metadata.key_columns, metadata.file_extension)


def _strictly(data: bytes | None, name: str) -> dict[str, Any]:
    """The complete content of the file, to write it again with additions."""
    try:
        content: dict[str, Any] = json.loads(data.decode("utf-8-sig")) if data else {}
    except ValueError as error:
        raise LakemirrorError(
            "metadata-invalid", f"{name}: {METADATA} is not valid JSON: {error}", table=name
        ) from error
    return content


def _read(folder: TableFolder) -> bytes | None:
    try:
        with folder.open(METADATA) as file:
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LakemirrorError("storage-unavailable", f"{folder.path.name}: {error}", table=folder.path.name) from error
