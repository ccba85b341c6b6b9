"""`_metadata.json`: what a publisher declares about a table (contract section 2)."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Warned:
    """Something reported and never fatal: a stable code, one sentence, the file (relative to the database)."""

    code: str
    message: str
    file: str = ""


@dataclass(frozen=True)
class TableMetadata:
    """What `_metadata.json` says, with the contract's defaults. `key_columns` in the publisher's spelling and order."""

    key_columns: tuple[str, ...] = ()
    file_detection_strategy: str = "SequentialFileName"
    upsert_by_default: bool = False
    file_format: str = "Parquet"
    file_extension: str = "parquet"
    partitioned: bool = False
    warnings: tuple[Warned, ...] = field(default=(), compare=False)


def parse_metadata(data: bytes, file: str) -> TableMetadata:
    """What the file says. TableError `metadata-invalid` with line and column; `not-supported` for later parts."""
    raise NotImplementedError
