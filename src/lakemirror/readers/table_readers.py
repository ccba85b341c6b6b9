"""How to read a database's Delta tables: where they are, and what to paste into the tool at hand. Starts no JVM."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

from lakemirror.delta.log import read_snapshot
from lakemirror.delta.log_folder import tables_below
from lakemirror.errors import LakemirrorError
from lakemirror.features.compatibility import newest_clients, verdicts
from lakemirror.landing_zone.database_folder import missing_database
from lakemirror.landing_zone.zone import LANDING_ZONE
from lakemirror.mirror.table_log import is_for_late_changes
from lakemirror.storage.place import Place, place


@dataclass(frozen=True)
class ReadableTable:
    """One Delta table of a database. `name`: `orders`, or `sales.customers`. `path` is absolute.

    `has_vectors`: some of its files have deletion vectors, which not every reader knows. `unreadable_by`: the clients
    whose newest version cannot read it. `error`: why its log cannot be read; empty where it can.
    """

    name: str
    path: str
    version: int = 0
    columns: tuple[str, ...] = ()
    has_vectors: bool = False
    unreadable_by: tuple[str, ...] = ()
    error: str = ""

    def snippets(self, version: int | None = None) -> dict[str, str]:
        """For each tool the lines that read this table. `version`: that one; None: the newest."""
        path = repr(self.path)
        frame = re.sub(r"\W|^(?=\d)", "_", self.name)
        given, option, clause = "", "", ""
        if version is not None:
            given, option, clause = (
                f", version={version}",
                f'.option("versionAsOf", {version})',
                f" VERSION AS OF {version}",
            )
        scan = f"SELECT * FROM delta_scan('{_sql(self.path)}'{given})"
        return {
            "duckdb": f'import duckdb\n{frame} = duckdb.sql("{scan}")',
            "polars": f"import polars\n{frame} = polars.scan_delta({path}{given}).collect()",
            "pandas": (
                "from deltalake import DeltaTable, QueryBuilder\nimport pyarrow\n"
                f'rows = QueryBuilder().register("t", DeltaTable({path}{given})).execute("SELECT * FROM t")\n'
                f"{frame} = pyarrow.table(rows).to_pandas()"
            ),
            "spark": f'{frame} = spark.read.format("delta"){option}.load({path})',
            "sql": f"SELECT * FROM delta.`{self.path}`{clause}",
        }

    def to_json(self) -> dict[str, Any]:
        """The table as `lakemirror tables --json` prints it."""
        return {
            "table": self.name, "path": self.path, "version": self.version, "columns": list(self.columns),
            "deletionVectors": self.has_vectors, "unreadableBy": list(self.unreadable_by),
            "error": self.error, "snippets": self.snippets(),
        }  # fmt: skip


def readable_tables(database: str | os.PathLike[str] | Place) -> list[ReadableTable]:
    """The Delta tables of a database by name; none before the first apply. `database-missing`."""
    top = place(database).absolute()
    if not (top / LANDING_ZONE).is_dir() and not (top / "Tables").is_dir():
        raise missing_database(str(top))
    begin = len(f"{top / 'Tables'}/")
    found = [table for table in sorted(tables_below(top / "Tables")) if not is_for_late_changes(str(table))]
    return [_look_at(table, str(table)[begin:].replace("/", ".")) for table in found]


def _look_at(folder: Place, name: str) -> ReadableTable:
    try:
        snapshot = read_snapshot(folder)
    except (LakemirrorError, OSError) as error:
        return ReadableTable(name, str(folder), error=str(error))
    if snapshot is None:
        return ReadableTable(name, str(folder), error="its log holds no version")
    columns = tuple(field["name"] for field in snapshot.metadata.schema["fields"])
    vectors = any(add.get("deletionVector") for add in snapshot.files.values())
    unreadable = tuple(each.client for each in verdicts(snapshot, newest_clients()) if each.read != "yes")
    return ReadableTable(name, str(folder), snapshot.version, columns, vectors, unreadable)


def _sql(text: str) -> str:
    return text.replace("'", "''")
