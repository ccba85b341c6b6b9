"""`_metadata.json` as a publisher writes it: before the first file, whole or not at all (contract section 2)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.metadata import parse_metadata
from lakemirror.landing_zone.zone import METADATA
from lakemirror.publisher.sequence import write_whole


@dataclass(frozen=True)
class Declaration:
    """What the folder's `_metadata.json` says about keys and about the names of its files."""

    keys: tuple[str, ...] = ()
    extension: str = "parquet"


def read_declaration(folder: Path) -> Declaration:
    """What is declared; the defaults where nothing is. `metadata-invalid`; `not-supported` for text and partitions."""
    data = _read(folder)
    if data is None:
        return Declaration()
    metadata = parse_metadata(data, f"{folder.name}/{METADATA}")
    for declared, what in ((metadata.delimited is not None, "delimited text"), (metadata.partitioned, "partitions")):
        if declared:
            raise LakemirrorError(
                "not-supported",
                f"{folder.name}: {METADATA} declares {what}; this publisher writes one sequence of Parquet files",
                hint="Publish to a table folder of its own, or delete this one and publish it again.",
            )
    return Declaration(metadata.key_columns, metadata.file_extension)


def declare(folder: Path, keys: Sequence[str] | None) -> Declaration:
    """Declares the key columns where they are not declared yet, and returns what holds from now on.

    None takes what is there. Keys that are declared stay for good: `key-columns-changed` for any other list.
    """
    declared = read_declaration(folder)
    if keys is None:
        return declared
    if declared.keys:
        if set(keys) != set(declared.keys):
            raise LakemirrorError(
                "key-columns-changed",
                f"{folder.name}: the key columns are {', '.join(declared.keys)}, not {', '.join(keys) or 'none'}",
                table=folder.name,
                file=METADATA,
            )
        return declared
    if not keys:
        return declared
    content = {name: value for name, value in _strictly(folder).items() if name.lower() != "keycolumns"}
    write_whole(folder / METADATA, json.dumps({"keyColumns": list(keys), **content}, indent=2).encode() + b"\n")
    return Declaration(tuple(keys), declared.extension)


def _strictly(folder: Path) -> dict[str, Any]:
    """All that the file says, so that it can be written again with more."""
    data = _read(folder)
    try:
        content: dict[str, Any] = json.loads(data.decode("utf-8-sig")) if data else {}
    except ValueError as error:
        raise LakemirrorError(
            "metadata-invalid", f"{folder.name}: {METADATA} is not valid JSON: {error}", table=folder.name
        ) from error
    return content


def _read(folder: Path) -> bytes | None:
    try:
        return (folder / METADATA).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise LakemirrorError("storage-unavailable", f"{folder.name}: {error}", table=folder.name) from error
