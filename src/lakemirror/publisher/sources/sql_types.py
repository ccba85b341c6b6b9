"""How each column of a query is read, so that its values arrive exactly (the table in docs/how-to/publish-from-sql.md).

    the query's columns, as the database names their types ─▶ one `ReadAs` each ─▶ one select around the query

Decisions are pure. A type that change files cannot hold as it is becomes text in the database, not here: the database
knows best how its values are written.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from lakemirror.publisher.arrow_input import Types
from lakemirror.publisher.exact_values import MOST_DIGITS

INFINITE = "__lakemirror_infinite__"  # a helper column: the row holds an infinite date or time


@dataclass(frozen=True)
class ReadAs:
    """How one column is read.

    `expression`: SQL in place of the column; empty: the column itself. `kind`: the type that its text becomes; None:
    the type in which it arrives. `warning`: what is said once about it. `infinite`: SQL that is true where the value
    is infinite. `undecided`: its values decide, such as of numbers without a declared precision. `any_as_text`: the
    user names the type string, so numbers become their text. `zoneless`: times without a zone.
    """

    column: str
    expression: str = ""
    kind: pa.DataType | None = None
    warning: str = ""
    infinite: str = ""
    undecided: bool = False
    any_as_text: bool = False
    zoneless: bool = False


@dataclass(frozen=True)
class Digits:
    """The numbers of one column: the most digits before and behind the point, None where there is no number.

    `odd`: NaN or an infinity is among them.
    """

    before: int | None
    behind: int | None
    odd: bool = False


def postgres_columns(columns: Iterable[tuple[str, str, int]], chosen: Types) -> list[ReadAs]:
    """For columns as (name, type, type modifier or -1). `chosen`: types that the user names, or that were published."""
    return [_postgres(name, kind, modifier, chosen.get(name)) for name, kind, modifier in columns]


def duckdb_columns(columns: Iterable[tuple[str, str]], chosen: Types) -> list[ReadAs]:
    """For columns as (name, type as DESCRIBE names it)."""
    return [_duckdb(name, kind.upper(), chosen.get(name)) for name, kind in columns]


def sqlite_columns(columns: Iterable[tuple[str, str]], chosen: Types, declared: Collection[str] = ()) -> list[ReadAs]:
    """For columns as (name, declared type, empty for an expression). `declared`: those whose type the user names."""
    return [_sqlite(name, kind, chosen.get(name), name in declared) for name, kind in columns]


def sqlite_type(kinds: Collection[str]) -> pa.DataType:
    """The type of a column that is declared without one, from the storage classes of its values."""
    for kind, found in (("text", pa.string()), ("blob", pa.binary()), ("real", pa.float64()), ("integer", pa.int64())):
        if kind in kinds:
            return found
    return pa.null()


def decided(column: ReadAs, digits: Digits) -> ReadAs:
    """An undecided column, now that its values were looked at: decimal(38,s) if all fit, else a string."""
    if digits.odd:
        why = "NaN or an infinity among its values"
    elif digits.before is None or digits.behind is None:
        return replace(column, kind=pa.null(), undecided=False)  # left out until there is a value
    elif max(digits.before, 1) + digits.behind > MOST_DIGITS:
        why = f"{digits.before} digits before and {digits.behind} behind the point"
    else:
        return replace(column, kind=pa.decimal128(MOST_DIGITS, digits.behind), undecided=False)
    warning = (
        f"column {column.column} is published as a string: a decimal holds {MOST_DIGITS} digits, and it has {why}. "
        f"Choose another type, such as double, with --column {column.column}=TYPE --recreate"
    )
    return replace(column, kind=None, warning=warning, undecided=False)


def select(query: str, columns: Sequence[ReadAs]) -> str:
    """The query, with each column read as decided, and `INFINITE` where a column can be infinite."""
    infinite = [column.infinite for column in columns if column.infinite]
    if not infinite and not any(column.expression for column in columns):
        return query
    parts = [
        f"{column.expression} as {quoted(column.column)}" if column.expression else quoted(column.column)
        for column in columns
    ]
    if infinite:
        parts.append(f"coalesce({' or '.join(infinite)}, false) as {quoted(INFINITE)}")
    return f"select {', '.join(parts)} from ({query}) as q"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _postgres(name: str, kind: str, modifier: int, chosen: pa.DataType | None) -> ReadAs:
    column = quoted(name)
    if kind == "numeric":
        return _number(name, f"{column}::text", *precision_of(modifier), chosen)
    if kind == "money":
        return ReadAs(name, f"{column}::numeric::text", chosen or pa.decimal128(19, 2))
    if kind in ("date", "timestamp", "timestamptz"):
        if chosen is not None and pa.types.is_string(chosen):  # infinity and years before 1 have a text
            return ReadAs(name, f"{column}::text")
        return _bounded(name, kind, f"not isfinite({column})")
    if kind in _PLAIN:
        return ReadAs(name)
    if kind.startswith("_") or kind in ("list", "struct"):
        shown = f"{kind.lstrip('_')}[]" if kind.startswith("_") else "a composite"
        return ReadAs(name, f"to_jsonb({column})::text", warning=_as_text(name, shown, "a JSON string"))
    form = _TEXTS.get(kind, "as PostgreSQL writes it")
    warning = "" if kind in _QUIET else _as_text(name, kind, f"text, {form}")
    return ReadAs(name, f"{column}::text", warning=warning)


def _duckdb(name: str, kind: str, chosen: pa.DataType | None) -> ReadAs:
    column = quoted(name)
    if kind in ("HUGEINT", "UHUGEINT", "BIGNUM", "VARINT"):
        return _number(name, f"{column}::varchar", 0, 0, chosen)
    if kind.startswith(("DATE", "TIMESTAMP")):
        if chosen is not None and pa.types.is_string(chosen):
            return ReadAs(name, f"{column}::varchar")
        return _bounded(name, "timestamptz" if "TIME ZONE" in kind else kind.split("_")[0].lower(), f"isinf({column})")
    if kind in ("INTERVAL", "BIT", "TIME WITH TIME ZONE") or kind.startswith(("UNION", "VARIANT", "GEOMETRY")):
        return ReadAs(name, f"{column}::varchar", warning=_as_text(name, kind.lower(), "text, as DuckDB writes it"))
    if kind.endswith("]") or kind.startswith(("STRUCT", "MAP")):
        return ReadAs(name, f"to_json({column})::varchar", warning=_as_text(name, kind.lower(), "a JSON string"))
    if kind.startswith("ENUM") or kind in ("UUID", "JSON"):
        return ReadAs(name, f"{column}::varchar")
    return ReadAs(name)


def _sqlite(name: str, declared: str, chosen: pa.DataType | None, by_user: bool) -> ReadAs:
    """The declared type decides by SQLite's rules of affinity, in their order (sqlite.org/datatype3.html, 3.1).

    Numeric affinity says little: dates and booleans have it, too. There the values decide.
    """
    if chosen is not None:
        return ReadAs(name, kind=chosen, any_as_text=by_user and pa.types.is_string(chosen))
    exact = _DECIMAL.fullmatch(declared)
    if exact and 1 <= int(exact[1]) <= MOST_DIGITS and int(exact[2] or 0) <= int(exact[1]):
        return ReadAs(name, kind=pa.decimal128(int(exact[1]), int(exact[2] or 0)))
    for words, kind in _AFFINITIES:
        if any(word in declared.upper() for word in words):
            return ReadAs(name, kind=kind)
    return ReadAs(name, undecided=True)


def _number(name: str, text: str, precision: int, scale: int, chosen: pa.DataType | None) -> ReadAs:
    if chosen is not None:
        return ReadAs(name, text, None if pa.types.is_string(chosen) else chosen)
    if 0 < precision <= MOST_DIGITS and 0 <= scale <= precision:
        return ReadAs(name, text, pa.decimal128(precision, scale))
    return ReadAs(name, text, undecided=True)


def _bounded(name: str, kind: str, infinite: str) -> ReadAs:
    """A date or time whose infinities become the last and first moment that a table can hold; order is kept."""
    column = quoted(name)
    type_, (last, first) = _BOUNDS["date" if kind == "date" else "time"]
    cast = {"timestamptz": "timestamptz", "timestamp": "timestamp", "date": "date"}.get(kind, type_)
    zone = "+00" if cast == "timestamptz" else ""
    expression = (
        f"case when {infinite} then (case when {column} > {cast} '2000-01-01' then {cast} '{last}{zone}' "
        f"else {cast} '{first}{zone}' end) else {column} end"
    )
    return ReadAs(name, expression, infinite=infinite, zoneless=kind == "timestamp")


def _as_text(name: str, kind: str, what: str) -> str:
    return f"column {name} of type {kind} is published as {what}"


def precision_of(modifier: int) -> tuple[int, int]:
    """Precision and scale of a numeric type; (0, 0) where none is declared."""
    if modifier < 4:
        return 0, 0
    scale = (modifier - 4) & 0x7FF
    return ((modifier - 4) >> 16) & 0xFFFF, scale - 0x800 if scale >= 0x400 else scale


_DECIMAL = re.compile(r"\s*(?:decimal|numeric)\s*\(\s*(\d{1,3})\s*(?:,\s*(\d{1,3})\s*)?\)\s*", re.IGNORECASE)
_AFFINITIES = (
    (("INT",), pa.int64()),
    (("CHAR", "CLOB", "TEXT"), pa.string()),
    (("BLOB",), pa.binary()),
    (("REAL", "FLOA", "DOUB"), pa.float64()),
)
_BOUNDS = {
    "date": ("date", ("9999-12-31", "0001-01-01")),
    "time": ("timestamp", ("9999-12-31 23:59:59.999999", "0001-01-01 00:00:00")),
}
_PLAIN = frozenset(
    ("bool", "int2", "int4", "int8", "oid", "float4", "float8", "text", "varchar", "bpchar", "char", "name", "bytea",
     "time", "uuid")
)  # fmt: skip
_QUIET = frozenset(("json", "jsonb", "unknown", "enum", "citext", "xml"))
_TEXTS: Mapping[str, str] = {
    "interval": "an ISO 8601 duration such as P1DT2H",
    "timetz": "HH:MM:SS with its offset",
}
