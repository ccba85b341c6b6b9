"""Rows of CSV text: types of columns are found from their text, values as people write them are read as declared.

text ─▶ Arrow's reader                              where the text is plain CSV in UTF-8
   └──▶ landing_zone.delimited, then typed here     where it is not, or where Arrow refuses it: errors name the line
"""

from __future__ import annotations

import io
import re
import warnings
from dataclasses import dataclass
from typing import IO

import pyarrow as pa
import pyarrow.csv

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.column_types import table_type
from lakemirror.landing_zone.date_pattern import date_pattern
from lakemirror.landing_zone.delimited import read_columns
from lakemirror.landing_zone.delimited.hints import hint_for_separator
from lakemirror.landing_zone.delimited.plain_values import converted_as_written, looks_like
from lakemirror.landing_zone.delimited.values import BadValue
from lakemirror.landing_zone.metadata import THOUSANDS, DeclaredColumn, DelimitedFormat, TableMetadata
from lakemirror.publisher.arrow_input import Types, cast_column
from lakemirror.publisher.column_types import TypeWarning


@dataclass(frozen=True)
class TextForm:
    """How the text of CSV files is written; empty: as plain CSV has it. `sheet`: of a spreadsheet, its first if empty.

    `date_format` and `timestamp_format` are patterns as in Spark, such as `dd.MM.yyyy HH:mm:ss`.
    """

    delimiter: str = ""
    decimal: str = ""
    thousands: str = ""
    date_format: str = ""
    timestamp_format: str = ""
    encoding: str = ""
    sheet: str = ""

    def delimited(self, delimiter: str) -> DelimitedFormat:
        """The same as the landing zone's reader takes it. `input-invalid` for what it does not know."""
        decimal = self.decimal or "."
        if decimal not in (".", ",") or self.thousands not in THOUSANDS or self.thousands == decimal:
            raise LakemirrorError(
                "input-invalid",
                f"numbers cannot be written with decimal {decimal!r} and thousands {self.thousands!r}",
                hint="The decimal separator is a point or a comma, and the one for thousands another character.",
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
                "input-invalid", f"{self.encoding!r} is no encoding", hint="Such as utf-8, windows-1252 or utf-16."
            ) from error
        return DelimitedFormat(
            "\n", delimiter, escape="", encoding=self.encoding or "UTF-8", decimal_separator=decimal,
            thousands_separator=self.thousands, date_format=self.date_format, timestamp_format=self.timestamp_format,
        )  # fmt: skip


def read_csv(stream: IO[bytes], name: str, types: Types, form: TextForm, delimiter: str) -> pa.RecordBatchReader:
    """The rows of CSV text. The text is read completely, because only then the types of its columns are known.

    `types` are those of columns that are known. Warns (TypeWarning) of columns that stay strings although their text
    looks like numbers or dates. `value-invalid` with line and column, `input-invalid` for text that cannot be read.
    """
    wanted = form.delimited(delimiter)
    data = stream.read()
    plain = wanted == TextForm().delimited(delimiter) and not re.match(rb'(\xef\xbb\xbf)?"?sep=', data[:9], re.I)
    table = _by_arrow(data, types, delimiter) if plain else None
    if table is None:
        table = _exactly(data, name, types, wanted)
    _warn_of_text(table, types)
    return table.to_reader()


def _by_arrow(data: bytes, types: Types, delimiter: str) -> pa.Table | None:
    """The table as Arrow reads it; None where it refuses, for the exact reader to say why."""
    # times come with and without a zone; Arrow's reader takes only one of the two
    times = {name: kind for name, kind in types.items() if pa.types.is_timestamp(kind)}
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(data),
            parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types={**types, **dict.fromkeys(times, pa.string())},
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as error:
        if str(error) == "Empty CSV file":
            raise
        return None
    for position, name in enumerate(table.column_names):
        if pa.types.is_binary(table.schema.field(name).type) and name not in types:
            return None
        if name in times:
            column = cast_column(table[position].combine_chunks(), pa.timestamp("us", times[name].tz), name)
            table = table.set_column(position, name, column)
    return table


def _exactly(data: bytes, name: str, types: Types, form: DelimitedFormat) -> pa.Table:
    """The table as the landing zone reads delimited text; columns without a known type get one from their text."""
    columns = tuple(
        DeclaredColumn(column, "", known) for column, kind in types.items() if (known := table_type(kind)) is not None
    )
    metadata = TableMetadata(file_format="CSV", delimited=form, columns=columns)
    file = re.sub(r"\.(gz|zst|snappy)$", "", name)
    try:
        table = pa.Table.from_batches(
            list(read_columns(io.BytesIO(data), file=file, metadata=metadata, undeclared="string"))
        )
    except LakemirrorError as error:
        error.hint = _as_option(error.hint)
        error.file = name
        raise
    kinds = {column.lower(): kind for column, kind in types.items()}
    for position, field in enumerate(table.schema):
        values = table[position].combine_chunks()
        kind = kinds.get(field.name.lower())
        values = _typed(values, form) if kind is None else values.cast(kind)
        table = table.set_column(position, field.name, values)
    return table


def _typed(texts: pa.Array, form: DelimitedFormat) -> pa.Array:
    """The text as the first kind of value that all of it is; strings where there is none."""
    if texts.null_count == len(texts):
        return pa.nulls(len(texts))
    if pa.compute.any(pa.compute.equal(texts, "")).as_py():
        return texts  # an empty text that was quoted is no number
    for kind in ("bigint", "boolean", "date", "timestamp", "double"):
        try:
            return converted_as_written(texts, kind, form)
        except BadValue:
            continue
    return texts


def _warn_of_text(table: pa.Table, types: Types) -> None:
    if table.num_columns == 1 and (hint := hint_for_separator(table.column_names[0])):
        warnings.warn(f"the header is one column, {table.column_names[0]!r}. {_as_option(hint)}", TypeWarning, 3)
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_string(column.type) and name not in types:
            look = looks_like(column.slice(0, 1000).combine_chunks())
            if look:
                for property, option in _OPTIONS.items():
                    look = look.replace(f"{property} ", f"{option} ").replace(f"{property}", option)
                warnings.warn(f"column {name} is published as a string; its text looks like {look}", TypeWarning, 3)


def _as_option(hint: str) -> str:
    """A hint to declare a property, as a hint to give an option."""
    found = re.findall(r'"(\w+)": "(.*?)"(?= and "| in )', hint)
    options = [f'{_OPTIONS[name]} "{value}"' for name, value in found if name in _OPTIONS]
    return f"Add {' '.join(options)}." if options else hint


_OPTIONS = {
    "decimalSeparator": "--decimal",
    "thousandsSeparator": "--thousands",
    "dateFormat": "--date-format",
    "timestampFormat": "--timestamp-format",
    "columnSeparator": "--delimiter",
    "encoding": "--encoding",
}

__all__ = ["TextForm", "read_csv"]
