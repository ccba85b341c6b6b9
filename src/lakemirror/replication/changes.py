"""Row markers and the net effect (contract section 3), as Spark expressions.

For one key, changes in order fold to `(replace, rows)`: a marker 0 appends its row, 1 and 4 set `(true, [row])`, 2
sets `(true, [])`. So of each key only the last marker other than 0 matters, with what was inserted after it:

    checked ─▶ folded ─▶ clears: the keys whose rows in the table go
                    └──▶ survivors: the rows that come
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from lakemirror.errors import TableError
from lakemirror.landing_zone.formats import FILE, MARKER, ROW, quoted
from lakemirror.landing_zone.row_markers import DELETE, INSERT, UPDATE, UPSERT
from lakemirror.replication.batch import UntrueStatistics


def checked(changes: DataFrame, default_marker: int, key_columns: Sequence[str], absent: Sequence[int]) -> DataFrame:
    """The changes with MARKER as a number; reading it fails at a row that the contract refuses.

    `default_marker` stands for NULL and for a missing marker column. `absent`: numbers of the files that lack a key
    column, where a marker other than 0 is refused. Such a failure is a message that `refused_row` reads back.
    """
    text = F.trim(F.col(MARKER))
    number = F.when(F.col(MARKER).isNull(), F.lit(default_marker)).otherwise(text.try_cast("int"))
    marker = (
        F.when(number.isNull() | ~number.isin(INSERT, UPDATE, DELETE, UPSERT), _refuse("row-marker-invalid", text))
        .when((number != INSERT) & F.lit(not key_columns), _refuse("key-columns-missing", text))
        .otherwise(number)
    )
    if absent and key_columns:
        lacking = F.col(FILE).isin(*absent)
        marker = F.when((number != INSERT) & lacking, _refuse("key-column-absent", text)).otherwise(marker)
    return changes.withColumn(MARKER, marker)


def inserts(changes: DataFrame) -> DataFrame:
    """The rows of changes that are inserts by their footers; fails with `marker-statistics` where one is not.

    Footers can be wrong: the marker column is read and compared all the same.
    """
    refused = F.when(F.col(MARKER) != INSERT, _refuse("marker-statistics", F.col(MARKER).cast("string")))
    return changes.where(refused.otherwise(F.lit(INSERT)) == INSERT).drop(FILE, ROW, MARKER)


def folded(changes: DataFrame, key_columns: Sequence[str]) -> DataFrame:
    """Of each key the last marker other than 0, with its row, and the inserts after it; nothing else.

    Columns as in `changes`. Grouping compares keys as the contract does: NULL equals NULL, NaN equals NaN, -0.0
    equals 0.0.
    """
    place = F.struct(FILE, ROW)
    by_key = Window.partitionBy(*(F.col(quoted(key)) for key in key_columns))
    last = F.max(F.when(F.col(MARKER) != INSERT, place)).over(by_key)
    return (
        changes.withColumn("__last__", last)
        .where(F.col("__last__").isNull() | (place >= F.col("__last__")))
        .drop("__last__")
    )


def clears(folded_changes: DataFrame, key_columns: Sequence[str]) -> DataFrame:
    """The keys whose rows in the table are deleted: one row per key, key columns alone."""
    return folded_changes.where(F.col(MARKER) != INSERT).select(*(F.col(quoted(key)) for key in key_columns))


def survivors(folded_changes: DataFrame) -> DataFrame:
    """The rows that are inserted; with FILE, ROW and MARKER still on them."""
    return folded_changes.where(F.col(MARKER) != DELETE)


def refused_row(message: str, path_of: dict[int, str]) -> TableError | None:
    """The error behind a failed Spark job, if a row was refused; `path_of` gives the file of a number."""
    found = _REFUSED.search(message)
    if found is None:
        return None
    code, number, row, value = found["code"], int(found["file"]), int(found["row"]) + 1, found["value"]
    file = path_of.get(number, str(number))
    sentence = {
        "row-marker-invalid": f"row marker {value!r} is none of 0, 1, 2, 4",
        "key-columns-missing": f"row marker {value!r} needs key columns, and _metadata.json declares none",
        "key-column-absent": f"row marker {value!r} needs every key column, and the file lacks one",
        "marker-statistics": f"row marker {value!r} contradicts the footer's statistics",
    }[code]
    if code == "marker-statistics":
        return UntrueStatistics("row-marker-invalid", f"{file}, row {row}: {sentence}", file=file, row=row)
    return TableError(code, f"{file}, row {row}: {sentence}", file=file, row=row)


_REFUSED = re.compile(r"<lakemirror (?P<code>[a-z-]+) file=(?P<file>\d+) row=(?P<row>\d+) value=(?P<value>[^>]*)>")


def _refuse(code: str, value: SparkColumn) -> SparkColumn:
    shown = F.substring(F.regexp_replace(F.coalesce(value, F.lit("NULL")), "[^ -=?-~]", "?"), 1, 100)
    message = F.concat(
        F.lit(f"<lakemirror {code} file="), F.col(FILE).cast("string"), F.lit(" row="), F.col(ROW).cast("string"),
        F.lit(" value="), shown, F.lit(">"),
    )  # fmt: skip
    return F.raise_error(message).cast("int")
