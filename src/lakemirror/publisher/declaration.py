"""`_metadata.json` as a publisher writes it: atomically, before the first file (contract section 2)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.metadata import parse_metadata
from lakemirror.landing_zone.table_options import NO_OPTIONS, OPTION_NAMES, TableOptions, named_targets
from lakemirror.landing_zone.zone import METADATA
from lakemirror.publisher.folders.table_folder import TableFolder, write_whole


@dataclass(frozen=True)
class Declaration:
    """What the folder's `_metadata.json` says about keys, about the names of its files, and of deletes and history."""

    keys: tuple[str, ...] = ()
    extension: str = "parquet"
    options: TableOptions = NO_OPTIONS


def read_declaration(folder: TableFolder, keys: Sequence[str] | None = None) -> Declaration:
    """The declaration, or the defaults; the one that will be valid with these key columns, not written yet.

    Declared keys never change: `key-columns-changed` for any other list. `metadata-invalid`; `not-supported` for text
    and partitions.
    """
    return _with_keys(_declaration(_read(folder), folder.path.name), keys, folder.path.name)


def declare(folder: TableFolder, keys: Sequence[str] | None, options: Mapping[str, Any] | None = None) -> Declaration:
    """Declares the key columns unless they are declared, and returns the declaration; the same errors.

    `options`: replace those of deletes, order and history, named as in `_metadata.json`; None: they stay.
    """
    data, name = _read(folder), folder.path.name
    declared = _declaration(data, name)
    wanted = _with_keys(declared, keys, name)
    if options is None and (keys is None or wanted == declared):
        return declared
    content = _strictly(data, name)
    if wanted != declared:
        rest = {key: value for key, value in content.items() if key.lower() != "keycolumns"}
        content = {"keyColumns": list(wanted.keys), **rest}
    if options is not None:
        content = _with_options(content, options)
    written = json.dumps(content, indent=2).encode() + b"\n"
    wanted = _declaration(written, name)
    if wanted == declared:
        return declared
    try:
        write_whole(folder, METADATA, written, new=data is None)
    except FileExistsError:  # another publisher declared its keys first
        return declare(folder, keys, options)
    return wanted


def _with_options(content: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The content with other options; what else is said of this program's own stays."""
    ours: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for key, value in content.items():
        if key.lower() == "lakemirror" and isinstance(value, dict):
            ours = {name: each for name, each in value.items() if name.lower() not in OPTION_NAMES}
        else:
            rest[key] = value
    return {**rest, "lakemirror": {**ours, **options}} if ours or options else rest


def _with_keys(declared: Declaration, keys: Sequence[str] | None, name: str) -> Declaration:
    if keys is None or not declared.keys:
        return declared if not keys else replace(declared, keys=tuple(keys))
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
    named_targets(metadata.options, name, metadata.file)
    for declared, what in ((metadata.delimited is not None, "delimited text"), (metadata.partitioned, "partitions")):
        if declared:
            raise LakemirrorError(
                "not-supported",
                f"{name}: {METADATA} declares {what}; this publisher writes one sequence of Parquet files",
                hint="Publish to a table folder of its own, or delete this one and publish it again.",
            )
    return Declaration(metadata.key_columns, metadata.file_extension, metadata.options)


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
