"""Where a table is that the user names as the catalog of a Spark session does: `catalog.schema.table`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lakemirror.errors import LakemirrorError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PART = r"(?:`(?:[^`]|``)+`|[^`.\s]+)"
_NAME = re.compile(rf"{_PART}(?:\.{_PART})*")


def path_of(session: SparkSession, name: str) -> str:
    """The folder or the address of a Delta table. `name`: one to several parts, with backticks where Spark needs them.

    LakemirrorError `table-unreadable` for a name that the catalog does not have, a view, or a table of another format.
    """
    if not _NAME.fullmatch(name):
        raise LakemirrorError("table-unreadable", f"{name!r} is not the name of a table, such as catalog.schema.table")
    parts = [part[1:-1].replace("``", "`") if part[0] == "`" else part for part in re.findall(_PART, name)]
    quoted = ".".join("`" + part.replace("`", "``") + "`" for part in parts)
    try:
        rows = session.sql(f"DESCRIBE TABLE EXTENDED {quoted}").collect()
    except Exception as error:
        lines = str(error).strip().splitlines()
        why = lines[0] if lines else type(error).__name__
        raise LakemirrorError("table-unreadable", f"the catalog does not show {name}: {why}", table=name) from error
    told = {row["col_name"]: row["data_type"] or "" for row in rows}
    location, provider = told.get("Location", ""), told.get("Provider", "").lower()
    if not location or provider != "delta":
        what = f"a table of the format {provider}" if location else "no table with files of its own"
        raise LakemirrorError("table-unreadable", f"{name} is {what}, not a Delta table", table=name)
    return re.sub("^file:/+", "/", location)  # as Spark shows it, nothing in it is encoded
