"""Deletion vectors, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakemirror.delta.deletion_vectors import VectorReader

if TYPE_CHECKING:
    from pyroaring import BitMap64


def read_vector(table: str | Path, vector: Mapping[str, Any]) -> BitMap64:
    """The rows that one vector deletes. Errors as in `VectorReader`."""
    with VectorReader(table) as reader:
        return reader.read(vector)
