"""Random texts through every input of the publisher: read back equal as text, or refused.

A failure prints its seed; `RANDOM_TEXTS_SEED` repeats it.
"""

from __future__ import annotations

import csv
import datetime as dt
import importlib.util
import json
import os
import random
import re
import sqlite3
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.publisher.published_contents import change_files
from tests.rounds import rounds

from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing, LandingTable
from lakemirror.publisher.sources.files import publish_files, read_file
from lakemirror.publisher.sources.text_types import KnownTypes
from lakemirror.publisher.sql import publish_sql

SEED = int(os.environ.get("RANDOM_TEXTS_SEED", random.SystemRandom().randrange(1 << 32)))
COLUMNS, ROWS = 40, 25  # of one file

ALPHABETS = [
    "0123456789",
    "01.,-+eE",
    " \"'\\,;\t",
    '\r\n"a,',
    "äßЖ中😀\u00a0\u200b\u0663\ufeff",
    "0x1fnatruelsNIF:-TZ ",
]

Texts = list[str | None]
Write = Callable[[Path, dict[str, Texts], random.Random], None]


@pytest.fixture(autouse=True)
def seed() -> None:
    print(f"RANDOM_TEXTS_SEED={SEED}")


def whole(r: random.Random) -> str:
    return str(r.randrange(-(10 ** r.randrange(1, 42)), 10 ** r.randrange(1, 42)))


def fraction(r: random.Random) -> str:
    return f"{r.randrange(-(10 ** r.randrange(1, 22)), 10**9)}.{''.join(r.choices('0123456789', k=r.randrange(1, 20)))}"


def moment(r: random.Random) -> str:
    value = dt.datetime(1, 1, 1) + dt.timedelta(microseconds=r.randrange(315_000_000_000_000_000))
    return value.isoformat(r.choice("T "), r.choice(["minutes", "seconds", "milliseconds", "microseconds"]))


def strange(r: random.Random) -> str:
    alphabet = r.choice(
        ["0123456789", "01.,-+eE", " \"'\\,;\t", '\r\n"a,', "äßЖ中😀\u00a0\u200b\u0663\ufeff", "0x1fnatruelsNIF:-TZ "]
    )
    return "".join(r.choices(alphabet, k=r.randrange(0, 12)))


FAMILIES: dict[str, Callable[[random.Random], str]] = {
    "small": lambda r: str(r.randrange(-100, 100)),
    "whole": whole,
    "digits": lambda r: "".join(r.choices("0123456789", k=r.randrange(1, 45))),
    "money": lambda r: f"{r.randrange(-9999, 10**r.randrange(1, 20))}.{r.randrange(100):02}",
    "fraction": fraction,
    "short": lambda r: repr(round(r.uniform(-1000, 1000), r.randrange(1, 4))),
    "double": lambda r: repr(r.uniform(-1, 1) * 10.0 ** r.randrange(-8, 22)),
    "exponent": lambda r: f"{r.randrange(1, 100)}{r.choice('eE')}{r.choice(['', '+', '-', '0'])}{r.randrange(0, 30)}",
    "truth": lambda r: r.choice(["true", "false"]),
    "word": lambda r: r.choice(["True", "FALSE", "nan", "NaN", "inf", "-Infinity", "null", "NA", "0x1F", "yes"]),
    "date": lambda r: (dt.date(1, 1, 1) + dt.timedelta(r.randrange(3_652_059))).isoformat(),
    "moment": moment,
    "second": lambda r: moment(r)[:10] + f" {r.randrange(24):02}:{r.randrange(61):02}:{r.randrange(61):02}",
    "zoned": lambda r: moment(r) + r.choice(["Z", "+01:00", ""]),
    "strange": strange,
}  # fmt: skip


def odd(text: str, r: random.Random) -> str:
    """The text, or one that resembles it."""
    return r.choice([
        text, "0" + text, "+" + text, "-" + text, " " + text, text + " ", text + "0", text + ".0", text[:-1],
        text.upper(), text + "Z", text + "e0", "", "0", "-0", "-0.0", "007", text.replace(".", ","), strange(r),
    ])  # fmt: skip


def column(r: random.Random) -> Texts:
    """Texts of one kind; in half of the columns a few resemble it only."""
    family = FAMILIES[r.choice(list(FAMILIES))]
    share = r.choice([0, 0, 0, 0.05, 0.5])
    texts: Texts = [odd(family(r), r) if r.random() < share else family(r) for _ in range(ROWS)]
    return [None if r.random() < 0.05 else text for text in texts] if r.random() < 0.2 else texts


def as_text(value: Any, texts: Texts) -> str:
    """The value's text in the form in which the column's texts are: `5` or `5.0`, times with `T` or a blank."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        text = format(Decimal(repr(value)), "f").removesuffix(".0")
        return text if "." in text or not any(each and each.endswith(".0") for each in texts) else f"{text}.0"
    if isinstance(value, dt.datetime):
        first = next(text for text in texts if text)
        digits = len(re.sub("^.*[.]|^[^.]*$", "", first.removesuffix("Z")))
        text = value.replace(tzinfo=None).isoformat(first[10], "microseconds")
        length = 19 + digits + (digits > 0) if first.count(":") == 2 else 16
        assert not text[length:].strip("0:.")
        return text[:length] + ("Z" if value.tzinfo else "")
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def published(table: LandingTable) -> pa.Table:
    files = change_files(table.folder)
    return pq.read_table(files[max(files)])


def compare(columns: dict[str, Texts], table: pa.Table) -> None:
    for name, texts in columns.items():
        found = table[name].to_pylist() if name in table.column_names else [None] * len(texts)
        assert [None if value is None else as_text(value, texts) for value in found] == texts, name


def contents(count: int) -> Iterator[tuple[dict[str, Texts], random.Random]]:
    """Columns of so many texts in all."""
    for number in range(max(1, count // (COLUMNS * ROWS))):
        r = random.Random(f"{SEED}-{number}")
        yield {f"c{place}": column(r) for place in range(COLUMNS)}, r


def write_csv(path: Path, columns: dict[str, Texts], r: random.Random) -> None:
    end = r.choice(["\n", "\r\n"])
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator=end).writerow(columns)
        for row in zip(*columns.values(), strict=True):
            fields = []
            for text in row:
                needs = text is not None and (text == "" or set(text) & set('",\r\n') or r.random() < 0.1)
                fields.append('"' + text.replace('"', '""') + '"' if needs and text is not None else text or "")
            file.write(",".join(fields) + end)


def write_json(path: Path, columns: dict[str, Texts], r: random.Random) -> None:
    """Columns whose texts all are JSON numbers are written as numbers."""
    numbers = {
        name for name, texts in columns.items() if all(text is None or JSON_NUMBER.fullmatch(text) for text in texts)
    }
    with path.open("w", encoding="utf-8") as file:
        for row in zip(*columns.values(), strict=True):
            fields = [
                f"{json.dumps(name)}: {text if name in numbers and text is not None else json.dumps(text)}"
                for name, text in zip(columns, row, strict=True)
                if text is not None or r.random() < 0.5
            ]
            file.write("{" + ", ".join(fields) + "}\n")


def write_workbook(path: Path, columns: dict[str, Texts], r: random.Random) -> None:
    """Columns whose texts all are numbers of a spreadsheet are written as numbers."""
    openpyxl = pytest.importorskip("openpyxl", reason="the publish extra is not installed")
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet()
    sheet.append(list(columns))
    kinds = {name: "n" if all(map(is_cell_number, texts)) else "s" for name, texts in columns.items()}
    for row in zip(*columns.values(), strict=True):
        cells = []
        for name, text in zip(columns, row, strict=True):
            cell = openpyxl.cell.WriteOnlyCell(sheet, text)
            if text is not None:
                cell.data_type = kinds[name]  # a number keeps its digits, and no text is a formula
            cells.append(cell)
        sheet.append(cells)
    book.save(path)


def is_cell_number(text: str | None) -> bool:
    """Tells whole numbers, and other numbers that a double has exactly as they are written."""
    if text is None or re.fullmatch("0|-?[1-9][0-9]*", text):
        return True
    return bool(re.fullmatch(r"-?[0-9]+\.[0-9]*[1-9]", text)) and repr(float(text)) == text


JSON_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


@pytest.mark.parametrize(
    ("suffix", "write"),
    [("csv", write_csv), ("jsonl", write_json), ("xlsx", write_workbook)],
    ids=["csv", "json", "xlsx"],
)
@pytest.mark.filterwarnings("ignore")
def test_files(tmp_path: Path, suffix: str, write: Write) -> None:
    table = Landing(tmp_path).table("t")
    for columns, r in contents(rounds(4_000, 100_000)):
        if suffix == "xlsx":  # which has no empty texts and no carriage returns
            columns = {
                name: [(text or "").replace("\r", "") or None for text in texts] for name, texts in columns.items()
            }
        columns = {"id": [f"r{row}" for row in range(ROWS)], **columns}
        table.recreate()
        write(tmp_path / f"t.{suffix}", columns, r)
        publish_files(table, [tmp_path / f"t.{suffix}"])
        compare(columns, published(table))


@pytest.mark.filterwarnings("ignore")
def test_rows(tmp_path: Path) -> None:
    table = Landing(tmp_path).table("t")
    for columns, _ in contents(rounds(4_000, 100_000)):
        table.recreate()
        table.insert([dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)])
        compare(columns, published(table))


@pytest.mark.skipif(not importlib.util.find_spec("adbc_driver_sqlite"), reason="the sql extra is not installed")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("declared", ["", "text", "varchar(10)"])
def test_sqlite(tmp_path: Path, declared: str) -> None:
    table = Landing(tmp_path).table("t")
    for columns, _ in contents(rounds(2_000, 100_000)):
        table.recreate()
        (tmp_path / "s.db").unlink(missing_ok=True)
        with sqlite3.connect(tmp_path / "s.db") as connection:
            connection.execute(f"create table t ({', '.join(f'{name} {declared}' for name in columns)})")
            marks = ", ".join("?" * len(columns))
            connection.executemany(f"insert into t values ({marks})", zip(*columns.values(), strict=True))
        connection.close()
        publish_sql(table, f"sqlite:///{tmp_path}/s.db", "select * from t", "insert")
        compare(columns, published(table))


@pytest.mark.filterwarnings("ignore")
def test_a_later_file_is_read_in_the_types_of_the_first_or_refused(tmp_path: Path) -> None:
    """Zeros at the end of a fraction, the case of truth values and the form of times may differ then."""
    path, refused = tmp_path / "t.csv", 0
    for number in range(rounds(200, 3_000)):
        r = random.Random(f"{SEED}-later-{number}")
        family = FAMILIES[r.choice(list(FAMILIES))]
        first, later = (
            [odd(family(r), r) if r.random() < share else family(r) for _ in range(3)] for share in (0, 0.2)
        )
        write_csv(path, {"id": ["a", "b", "c"], "v": first}, r)
        before = {field.name: field.type for field in read_file(path).schema if not pa.types.is_null(field.type)}
        write_csv(path, {"id": ["d", "e", "f"], "v": later}, r)
        try:
            values = read_file(path, KnownTypes(before=before)).read_all()["v"].to_pylist()
        except LakemirrorError as error:
            assert (error.code, error.column) == ("value-invalid", "v"), number
            refused += 1
            continue
        for value, text in zip(values, later, strict=True):
            assert is_same(value, text), (number, first, text, value)
    assert refused


def is_same(value: Any, text: str) -> bool:
    if isinstance(value, str):
        return value == text
    if isinstance(value, bool):
        return text.lower() == str(value).lower()
    if isinstance(value, dt.datetime):
        parsed = dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=value.tzinfo)) == value
    if isinstance(value, dt.date):
        return text == value.isoformat()
    plain = re.fullmatch(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", text)
    return plain is not None and Decimal(text) == Decimal(repr(value) if isinstance(value, float) else value)
