"""The rows of a checkpoint's Parquet file as actions, in the form that a commit has."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.delta import exact_json
from lakemirror.delta.parsed_log import LATELY_PARSED
from lakemirror.storage.place import Place, capabilities_of, opened

_SMALL = 2 << 20  # bytes of a checkpoint, about 10,000 files


def actions_in(path: Place, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The actions of the named kinds in a checkpoint's Parquet file, in the form of a commit.

    Callers must not change the actions: those of small local files are shared (`parsed_log.py`), but no tombstones,
    which are many and are read for the next checkpoint alone.
    """
    if not capabilities_of(path).waits and "remove" not in names and path.stat().st_size <= _SMALL:
        data = path.read_bytes()
        yield from LATELY_PARSED.actions(
            path, ",".join(names), data, lambda: list(_actions(pa.BufferReader(data), names))
        )
    else:
        yield from _actions(opened(path), names)


def _actions(source: Any, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    with pq.ParquetFile(source) as file:
        present = [name for name in names if name in file.schema_arrow.names]
        for group in range(file.num_row_groups if present else 0):
            table = file.read_row_group(group, columns=present)
            for name in present:
                for value in table.column(name).drop_null().to_pylist():
                    if any(v is not None for v in value.values()):
                        yield {name: _plain(name, value)}


def json_value(value: Any) -> Any:
    """Typed statistics as JSON values. NaN and infinity, which JSON cannot hold, are left out."""
    if isinstance(value, dict):
        typed = {name: json_value(inner) for name, inner in value.items() if not isinstance(inner, bytes)}
        return {name: inner for name, inner in typed.items() if inner is not None}
    if isinstance(value, datetime.datetime):
        text = value.isoformat(timespec="milliseconds" if value.microsecond % 1000 == 0 else "microseconds")
        return text.replace("+00:00", "Z")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, float | Decimal):
        return value if math.isfinite(value) else None
    return value if isinstance(value, bool | int | str) else None


def _plain(name: str, value: dict[str, Any]) -> dict[str, Any]:
    """An action read from Parquet, in the form of a commit: maps as dicts, no empty fields, statistics as JSON text."""
    if value.get("stats_parsed") and value.get("stats") is None:
        value["stats"] = exact_json.text(json_value(value["stats_parsed"]))
    value = {k: v for k, v in value.items() if v is not None and not k.endswith("_parsed")}
    for key in ("partitionValues", "tags", "configuration"):
        if isinstance(value.get(key), list):  # a domain's configuration is text
            value[key] = dict(value[key])
    if name == "metaData":
        value["format"] = {**value.get("format", {}), "options": dict(value.get("format", {}).get("options") or [])}
    if vector := value.get("deletionVector"):
        value["deletionVector"] = {k: v for k, v in vector.items() if v is not None}
    return value
