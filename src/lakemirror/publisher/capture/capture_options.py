"""What a user says of a capture: the source, the tables, and how values and names are kept."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

import pyarrow as pa

from lakemirror.errors import LakemirrorError
from lakemirror.publisher.declared_types import named_type

DEFAULT_NAME = "lakemirror"
AFTER_DDL = ("reload", "ignore")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


@dataclass(frozen=True)
class CaptureOptions:
    """The options of one capture. `input-invalid` for a name or a choice that cannot be.

    `source`: the URL; a password in it is used and never shown. `name`: the capture's own name at the source: of its
    slot and publication. `tables`, `exclude`: shell patterns over `schema.table`. `renames`: `schema.table` to the
    name of its folder. `flat`: folders without their schema. `numeric`: the type for numbers without a scale, such as
    `decimal(38,9)`; empty: text. `infinite`: `null` writes NULL for infinite dates and NaN; empty: they are errors.
    `insert_only`: tables without a key whose inserts are captured. `after_ddl`: `reload` reads a table again whose old
    rows changed without being logged, `ignore` does not. `reload`: tables to load again, or `all`.
    """

    source: str = field(repr=False)
    name: str = DEFAULT_NAME
    tables: tuple[str, ...] = ("*.*",)
    exclude: tuple[str, ...] = ()
    renames: Mapping[str, str] = field(default_factory=dict)
    flat: bool = False
    numeric: str = ""
    infinite: str = ""
    insert_only: tuple[str, ...] = ()
    after_ddl: str = "reload"
    reload: tuple[str, ...] = ()
    password: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise LakemirrorError(
                "input-invalid",
                f"{self.name!r} cannot be the name of a capture",
                hint="Use small letters, digits and _, at most 40, a letter first.",
            )
        for given, choices, option in (
            (self.after_ddl, AFTER_DDL, "after_ddl"),
            (self.infinite, ("", "null"), "infinite"),
        ):
            if given not in choices:
                choices_text = ", ".join(choice for choice in choices if choice)
                raise LakemirrorError("input-invalid", f"{option} {given!r} is none of: {choices_text}")
        if self.number_type is not None and not pa.types.is_decimal(self.number_type):
            raise LakemirrorError(
                "input-invalid", f"{self.numeric} is no decimal", hint="Give one, such as --numeric decimal(38,9)."
            )

    @property
    def number_type(self) -> pa.DataType | None:
        """The type of numbers without a scale; None: text."""
        return named_type(self.numeric) if self.numeric else None

    @property
    def slot(self) -> str:
        """The name of the replication slot, and of the publication: with the database's, as slots are of a server."""
        database = re.sub(r"[^a-z0-9_]", "_", urlsplit(self.source).path.strip("/").lower())
        own = () if self.name == DEFAULT_NAME else (self.name,)
        return "_".join(part for part in (DEFAULT_NAME, *own, database) if part)[:63]

    @property
    def infinite_null(self) -> bool:
        """True if infinite dates, and NaN in a decimal, become NULL; else they are errors."""
        return self.infinite == "null"

    def names(self, schema: str, name: str, qualified: str) -> bool:
        """True if the table is to be captured. `qualified`: its name as SQL writes it."""
        texts = (f"{schema}.{name}", qualified)
        return _matches(texts, self.tables) and not _matches(texts, self.exclude)

    def takes_inserts_only(self, schema: str, name: str, qualified: str) -> bool:
        """True if the table's inserts alone are captured."""
        return _matches((f"{schema}.{name}", qualified), self.insert_only)


def _matches(texts: Iterable[str], patterns: Iterable[str]) -> bool:
    """True if a shell pattern meets one of these texts."""
    return any(fnmatchcase(text, pattern) for text in texts for pattern in patterns)
