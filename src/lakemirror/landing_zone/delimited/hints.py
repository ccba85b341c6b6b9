"""What a publisher should declare, guessed from text that does not fit; and Excel's first line `sep=;`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from lakemirror.errors import TableError
from lakemirror.landing_zone.date_pattern import date_pattern
from lakemirror.landing_zone.metadata import DelimitedFormat

_SEPARATORS = (";", "\t", "|", ",")
_SEPARATOR_LINE = re.compile(rb"(?:\"sep=(.)\"|sep=(.))\r?[\n\r]", re.IGNORECASE)
_DATES = ("d.M.yyyy", "d/M/yyyy", "M/d/yyyy", "yyyy/M/d", "yyyyMMdd")


def separator_line(blocks: Iterator[bytes], form: DelimitedFormat, file: str) -> tuple[Iterator[bytes], int]:
    """The text behind Excel's first line `sep=;`, and the number of the line on which it begins.

    TableError `file-unreadable` where that line names another separator than the one that is declared.
    """
    first = next(blocks, b"")
    while len(first) < 16 and (more := next(blocks, b"")):
        first += more
    found = _SEPARATOR_LINE.match(first)
    if found is None:
        return itertools.chain([first], blocks), 1
    named = (found[1] or found[2]).decode("utf-8", "replace")
    if named != form.column_separator:
        raise TableError(
            "file-unreadable",
            f"{file}, line 1: the file says sep={named}, and columnSeparator is {form.column_separator!r}",
            file=file,
            row=1,
            hint=_declare("columnSeparator", named),
        )
    return itertools.chain([first[found.end() :]], blocks), 2


def hint_for_separator(header: str) -> str:
    """The hint for a header that is one column although it holds a separator; empty where it holds none."""
    return next((_declare("columnSeparator", _shown(each)) for each in _SEPARATORS if each in header), "")


def hint_for_name(name: str, form: DelimitedFormat) -> str:
    """The hint for an unquoted name of the header that shows that the text is read wrongly; else empty.

    Without it, such a file would make a table of wrong columns, and its rows would be lost: all of them may stand in
    the header.
    """
    if not name.strip():
        return "Name every column in the first row; a separator at the end of the row begins another column."
    if "\0" in name:
        return f"If the file is in UTF-16: {_declare('encoding', 'utf-16-le')}"
    other = "\n" if form.row_separator == "\r" else "\r"
    return _declare("rowSeparator", "\\n" if other == "\n" else "\\r") if other in name else ""


def hint_for_encoding(text: bytes) -> str:
    """The hint for bytes that are not UTF-8."""
    name = "utf-16" if b"\0" in text else "windows-1252"
    return f"If the file is in another encoding: {_declare('encoding', name)}"


def hint_for_value(text: str, table_type: str, form: DelimitedFormat) -> str:
    """The hint for a value that is written in another way than is declared; empty where none is known."""
    text = text.strip()
    if table_type in ("date", "timestamp"):
        format_ = "dateFormat" if table_type == "date" else "timestampFormat"
        pattern = _pattern_of(text, table_type == "timestamp")
        return _declare(format_, pattern) if pattern else ""
    if not re.fullmatch(r"[+-]?[\d.,'’ \u00a0\u202f]*\d", text):
        return ""
    is_comma = form.decimal_separator == "." and re.fullmatch(r"[+-]?[\d. '’\u00a0\u202f]*,\d+", text) is not None
    marks = {
        each for each in text if not each.isdigit() and each not in f"+-{',' if is_comma else form.decimal_separator}"
    }
    properties = ["decimalSeparator", ","] if is_comma else []
    if len(marks) == 1 and not form.thousands_separator:
        properties += ["thousandsSeparator", marks.pop()]
    return _declare(*properties) if properties else ""


def _declare(*properties: str) -> str:
    """The hint to declare properties, each followed by its value. The table then goes on by itself."""
    pairs = [f'"{name}": "{value}"' for name, value in zip(properties[::2], properties[1::2], strict=True)]
    return f"Declare {' and '.join(pairs)} in fileFormatTypeProperties of _metadata.json."


def _pattern_of(text: str, with_time: bool) -> str:
    """The first of some usual patterns that the text follows."""
    times = ("", " H:mm", " H:mm:ss", " h:mm a", " h:mm:ss a") if with_time else ("",)
    for date, time in itertools.product(_DATES, times):
        if re.match(date_pattern(date + time).expression, text):
            return date + time
    return ""


def _shown(separator: str) -> str:
    return "\\t" if separator == "\t" else separator
