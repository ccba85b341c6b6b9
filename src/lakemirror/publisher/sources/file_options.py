"""How files are read: one value for the command line and for Python."""

from __future__ import annotations

from dataclasses import dataclass

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.date_pattern import date_pattern
from lakemirror.landing_zone.metadata import THOUSANDS, DelimitedFormat

FORMATS = ("parquet", "csv", "xlsx", "jsonl", "arrow")


@dataclass(frozen=True)
class FileOptions:
    """How files are read; empty: as plain CSV has it.

    `sheet`: of a spreadsheet, its first if empty. `format`: one of `FORMATS`; empty: by the name, then by the first
    bytes. `plain_names`: columns get names that every reader opens. `date_format` and `timestamp_format` are patterns
    as in Spark, such as `dd.MM.yyyy HH:mm:ss`. Errors: `input-invalid`.
    """

    delimiter: str = ""
    decimal: str = ""
    thousands: str = ""
    date_format: str = ""
    timestamp_format: str = ""
    encoding: str = ""
    sheet: str = ""
    format: str = ""
    plain_names: bool = False

    def __post_init__(self) -> None:
        if self.format and self.format not in FORMATS:
            raise LakemirrorError(
                "input-invalid", f"{self.format!r} is no format", hint=f"Formats are {', '.join(FORMATS)}."
            )

    def delimited(self, delimiter: str = ",") -> DelimitedFormat:
        """The same as the landing zone's reader takes it; `delimiter`: where none is named. `input-invalid`."""
        decimal = self.decimal or "."
        if decimal not in (".", ",") or self.thousands not in THOUSANDS or self.thousands == decimal:
            raise LakemirrorError(
                "input-invalid",
                f"numbers cannot be written with decimal {decimal!r} and thousands {self.thousands!r}",
                hint="Give a point or a comma as decimal separator, and another character between thousands.",
            )
        for pattern in (self.date_format, self.timestamp_format):
            try:
                if pattern:
                    date_pattern(pattern)
            except ValueError as error:
                raise LakemirrorError(
                    "input-invalid", f"{pattern!r} is no date pattern: {error}", hint="Write it as dd.MM.yyyy HH:mm:ss."
                ) from error
        try:
            "a".encode(self.encoding or "utf-8")
        except LookupError as error:
            raise LakemirrorError(
                "input-invalid",
                f"{self.encoding!r} is no encoding",
                hint="Give an encoding such as utf-8, windows-1252 or utf-16.",
            ) from error
        return DelimitedFormat(
            "\n", self.delimiter or delimiter, escape="", encoding=self.encoding or "UTF-8", decimal_separator=decimal,
            thousands_separator=self.thousands, date_format=self.date_format, timestamp_format=self.timestamp_format,
        )  # fmt: skip
