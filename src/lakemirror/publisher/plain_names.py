"""Column names that every reader of Delta tables opens: no space , ; { } ( ) = tab or newline.

A table with any other name needs Delta's column mapping, which some readers do not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from lakemirror.delta.schema import needing_mapping, needs_mapping
from lakemirror.errors import LakemirrorError
from lakemirror.publisher.row_readers import converted_rows

KINDS_OF_NAMES = ("as-given", "plain")


def plain_name(name: str) -> str:
    """The plain name: each run of refused characters becomes one `_`, and those at both ends are left out.

    `price (EUR)` becomes `price_EUR`. The same name always becomes the same one; a plain name stays. Empty where
    nothing is left.
    """
    if not any(map(_is_refused, name)):
        return name
    return "_".join("".join(" " if _is_refused(each) else each for each in name).split())


def renamed(reader: pa.RecordBatchReader) -> tuple[pa.RecordBatchReader, dict[str, str]]:
    """The same rows under plain names, and the new name of each column that has another one.

    `columns-ambiguous` where two columns would have one name, `column-name-invalid` where nothing of a name is left.
    """
    names = _distinct(reader.schema.names)
    changed = {old: new for old, new in zip(reader.schema.names, names, strict=True) if old != new}
    if not changed:
        return reader, {}
    schema = pa.schema([field.with_name(name) for field, name in zip(reader.schema, names, strict=True)])
    return converted_rows(reader, schema, lambda batch, _: batch.columns), changed


def readers_lost(names: Iterable[str]) -> str:
    """What is lost by columns with such names, as a sentence; empty where all are plain."""
    refused = needing_mapping(names)
    if not refused:
        return ""
    from lakemirror.features.compatibility import lost_by_column_mapping

    shown = ", ".join(map(repr, refused[:5])) + (f" and {len(refused) - 5} more" if len(refused) > 5 else "")
    return (
        f"the column name{'s' if len(refused) > 1 else ''} {shown} cannot be held without Delta's column mapping, "
        f"and then {', '.join(lost_by_column_mapping())} cannot read the table. `publish --names plain` renames: "
        f"{refused[0]!r} becomes {plain_name(refused[0])!r}"
    )


def _distinct(given: Sequence[str]) -> list[str]:
    seen: dict[str, str] = {}
    for name in given:
        plain = plain_name(name)
        if not plain:
            raise LakemirrorError(
                "column-name-invalid", f"nothing of the column name {name!r} is left as a plain name", column=name,
                hint="Rename the column.",
            )  # fmt: skip
        other = seen.setdefault(plain.lower(), name)
        if other != name or given.count(name) > 1:
            raise LakemirrorError(
                "columns-ambiguous", f"the columns {other!r} and {name!r} would both be named {plain!r}", column=name,
                hint="Rename one of the two columns.",
            )  # fmt: skip
    return [plain_name(name) for name in given]


def _is_refused(character: str) -> bool:
    return needs_mapping(character) or ord(character) < 32 or ord(character) == 127
