"""The tables of a soak: what is declared of each, what its rows look like, how its files are written."""

from __future__ import annotations

import io
import json
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.landing import MARKER

from lakemirror.landing_zone.reserved_columns import UNCHANGED

Change = tuple[int | None, dict[str, Any]]
"""A row marker (None: no marker column), and the row."""

_TEXTS = ("", "a", "ü", "a,b", 'with "quotes"', "line\nbreak", "long " * 30, "\U0001f600")


@dataclass(frozen=True)
class Kind:
    """One mirrored table.

    `key`: values of its key columns for a small number. `spark`: only Spark applies it yet.
    `partial`: updates and upserts may leave columns out, which the row names under UNCHANGED. `sequence`: the column
    that orders changes, whatever file they come with.
    """

    name: str
    keys: tuple[str, ...]
    key: Callable[[int], dict[str, Any]]
    types: dict[str, pa.DataType]
    declared: dict[str, Any] = field(default_factory=dict)
    markers: tuple[int | None, ...] = (0, 1, 2, 4)
    spark: bool = False
    partial: bool = False
    sequence: str = ""

    @property
    def has_history(self) -> bool:
        """True where history tables are compared with all files: the folder is not made again."""
        return "lakemirror" in self.declared

    @property
    def extension(self) -> str:
        return "csv" if self.declared.get("fileFormat") == "CSV" else "parquet"

    def columns(self, grown: int) -> dict[str, pa.DataType]:
        """Columns and types, after the table has grown so many columns."""
        if self.extension == "csv":
            return self.types
        return {**self.types, **{f"more{n}": _GROWN[n % len(_GROWN)] for n in range(grown)}}

    def changes(
        self, chance: random.Random, count: int, grown: int, part: int | None = None, number: int = 1
    ) -> list[Change]:
        """Random changes of a file with this number. `part`: of a partition, whose keys are its own. All rows of a file
        have markers, or none. With a sequence, a change may belong before those of some files before."""
        marked = self.markers != (None,)
        fixed = (*self.keys, self.sequence)
        found: list[Change] = []
        for _ in range(count):
            which = chance.randrange(40)
            key = self.key(which if part is None else which * 4 + part)
            if self.sequence:
                key[self.sequence] = chance.randrange(number * 50 - 200, number * 50 + 50)
            values = {name: _value(chance, kind) for name, kind in self.columns(grown).items() if name not in fixed}
            marker = chance.choice(self.markers) if marked else None
            found.append((marker, {**key, **values} if marker != 2 or not self.keys else key))
            if self.partial and marker in (1, 4):
                found[-1][1][UNCHANGED] = chance.sample(sorted(values), chance.randint(0, len(values)))
        return found

    def contents(self, changes: list[Change], grown: int) -> bytes:
        """The changes as a file."""
        columns = self.columns(grown)
        if self.extension == "csv":
            return _as_csv(columns, changes, partial=self.partial)
        arrays = {name: pa.array([row.get(name) for _, row in changes], kind) for name, kind in columns.items()}
        if changes and changes[0][0] is not None:
            arrays[MARKER] = pa.array([marker for marker, _ in changes], pa.int32())
        if self.partial:
            arrays[UNCHANGED] = pa.array([row.get(UNCHANGED) for _, row in changes], pa.list_(pa.string()))
        sink = io.BytesIO()
        pq.write_table(pa.table(arrays), sink)
        return sink.getvalue()


def kinds(*, spark: bool) -> list[Kind]:
    """The tables that can be applied with or without Spark."""
    return [kind for kind in _KINDS if spark or not kind.spark]


_GROWN = (pa.int32(), pa.string(), pa.float64(), pa.date32(), pa.decimal128(12, 2))
_ID, _V = {"id": pa.int64()}, {"v": pa.string(), "d": pa.decimal128(20, 4), "f": pa.float64()}
_HISTORY = {"lakemirror": {"history": ["changes", {"mode": "scd2", "track": ["v"]}]}}
_ORDERED = {"lakemirror": {**_HISTORY["lakemirror"], "deletes": "soft", "sequence": "n", "late_days": 36500}}
_CSV_COLUMNS = [{"Name": "id", "DataType": "Int64"}, {"Name": "v", "DataType": "String"}]


def _uuid(number: int) -> dict[str, Any]:
    return {"id": uuid.UUID(int=number * 0x1234567890ABCDEF1234567).bytes}


_KINDS = (
    Kind("orders", ("id",), lambda n: {"id": n}, {**_ID, **_V}),
    Kind(
        "sales.customers", ("name",), lambda n: {"name": None if n == 0 else f"name {n}"},
        {"name": pa.string(), **_V},
    ),
    Kind(
        "pairs", ("a", "b"), lambda n: {"a": n % 7 or None, "b": f"b{n // 7}"},
        {"a": pa.int32(), "b": pa.string(), "v": pa.string()},
    ),
    Kind("amounts", ("id",), lambda n: {"id": Decimal(n) / 100}, {"id": pa.decimal128(10, 2), "v": pa.string()}),
    Kind("log", (), lambda n: {"id": n}, {**_ID, "v": pa.string()}, markers=(None,)),
    Kind("latest", ("id",), lambda n: {"id": n}, {**_ID, **_V}, {"isUpsertDefaultRowMarker": True}, (None,)),
    Kind(
        "events", ("id",), lambda n: {"id": n}, {**_ID, "v": pa.string()},
        {"fileDetectionStrategy": "LastUpdateTimeFileDetection"},
    ),
    Kind(
        "text", ("id",), lambda n: {"id": n}, {**_ID, "v": pa.string()},
        {"fileFormat": "CSV", "SchemaDefinition": {"Columns": _CSV_COLUMNS}},
    ),
    Kind("documents", ("id",), lambda n: {"id": n}, {**_ID, **_V}, markers=(1, 2, 4, 4), partial=True),
    Kind(
        "partial text", ("id",), lambda n: {"id": n}, {**_ID, "v": pa.string()},
        {"fileFormat": "CSV", "SchemaDefinition": {"Columns": _CSV_COLUMNS}}, (1, 2, 4, 4), partial=True,
    ),
    Kind("kept", ("id",), lambda n: {"id": n}, {**_ID, **_V}, _HISTORY, (1, 2, 4)),
    Kind("kept in part", ("id",), lambda n: {"id": n}, {**_ID, **_V}, _HISTORY, (1, 2, 4, 4), partial=True),
    Kind(
        "kept in order", ("id",), lambda n: {"id": n}, {**_ID, **_V, "n": pa.int64()}, _ORDERED, (1, 2, 4, 4),
        partial=True, sequence="n",
    ),
    Kind("regions", ("id",), lambda n: {"id": n}, {**_ID, **_V}, {"isPartitionEnabled": True}, spark=True),
    Kind("ids", ("id",), _uuid, {"id": pa.uuid(), "v": pa.string()}, spark=True),
)  # fmt: skip


def _value(chance: random.Random, kind: pa.DataType) -> Any:
    if chance.random() < 0.15:
        return None
    if pa.types.is_string(kind):
        return chance.choice(_TEXTS) + str(chance.randrange(100))
    if pa.types.is_floating(kind):
        return chance.choice([0.0, -0.0, float("nan"), 1e300, chance.random()])
    if pa.types.is_decimal(kind):
        return Decimal(chance.randrange(-(10**9), 10**9)).scaleb(-kind.scale)
    return chance.randrange(1000)


def _as_csv(columns: dict[str, pa.DataType], changes: list[Change], *, partial: bool) -> bytes:
    """Every value quoted, NULL as an empty field without quotes, a quote after the default escape character."""
    lines = [",".join([*columns, MARKER, *([UNCHANGED] if partial else [])])]
    for marker, row in changes:
        names = [_quoted(json.dumps(row[UNCHANGED])) if UNCHANGED in row else ""] if partial else []
        lines.append(",".join([*(_quoted(row.get(name)) for name in columns), str(marker), *names]))
    return "".join(line + "\r\n" for line in lines).encode()


def _quoted(value: Any) -> str:
    return "" if value is None else '"' + str(value).replace('"', '\\"') + '"'
