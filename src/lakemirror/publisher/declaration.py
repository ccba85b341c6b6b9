"""`_metadata.json` as a publisher writes it: before the first file, whole or not at all (contract section 2)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.zone import METADATA
from lakemirror.publisher.sequence import write_whole


@dataclass(frozen=True)
class Declaration:
    """What the folder's `_metadata.json` says about keys and about the names of its files."""

    keys: tuple[str, ...] = ()
    extension: str = "parquet"


def read_declaration(folder: Path) -> Declaration:
    """What is declared; the defaults where nothing is. `metadata-invalid`; `not-supported` for text and partitions."""
    found = {name.lower(): value for name, value in _read(folder).items()}
    file_format = str(found.get("fileformat", "parquet"))
    if file_format.lower() != "parquet" or "fileformattypeproperties" in found:
        raise LakemirrorError(
            "not-supported",
            f"{folder.name}: {METADATA} declares delimited text; this publisher writes Parquet",
            hint="Publish to a table folder of its own, or delete this one and publish it anew.",
        )
    if str(found.get("ispartitionenabled", "")).lower() == "true":
        raise LakemirrorError(
            "not-supported",
            f"{folder.name}: {METADATA} declares partitions; this publisher writes one sequence of files",
            hint="Publish to a table folder of its own, or delete this one and publish it anew.",
        )
    keys = found.get("keycolumns") or ()
    if not isinstance(keys, list | tuple) or not all(isinstance(key, str) for key in keys):
        raise LakemirrorError("metadata-invalid", f"{folder.name}: keyColumns in {METADATA} is not a list of names")
    return Declaration(tuple(keys), str(found.get("fileextension", "parquet")).lstrip("."))


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
    content = {name: value for name, value in _read(folder).items() if name.lower() != "keycolumns"}
    write_whole(folder / METADATA, json.dumps({"keyColumns": list(keys), **content}, indent=2).encode() + b"\n")
    return Declaration(tuple(keys), declared.extension)


def _read(folder: Path) -> dict[str, Any]:
    try:
        parsed = json.loads((folder / METADATA).read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise LakemirrorError(
            "metadata-invalid", f"{folder.name}: {METADATA} is not valid JSON: {error}", table=folder.name
        ) from error
    if not isinstance(parsed, dict):
        raise LakemirrorError("metadata-invalid", f"{folder.name}: {METADATA} does not hold a JSON object")
    return parsed
