"""The catalog of a Spark session: Hive's metastore, or any catalog that Spark knows, by SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakemirror.errors import LakemirrorError
from lakemirror.readers.catalog_entries import Entry, Name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class CatalogOfSpark:
    """One catalog of a session. It reads the columns of Delta tables from their logs, so entries have none."""

    def __init__(self, spark: SparkSession, name: str = "") -> None:
        """`name`: empty: the session's current one."""
        self._spark = spark
        self.name = name or str(self._sql("SELECT current_catalog()")[0][0])

    def namespaces(self) -> set[str]:
        return {str(row[0]) for row in self._sql(f"SHOW NAMESPACES IN {_quoted(self.name)}")}

    def entries(self, namespace: str) -> list[Entry]:
        rows = self._sql(f"SHOW TABLE EXTENDED IN {_quoted(self.name, namespace)} LIKE '*'")
        return [_entry(namespace, row["tableName"], row["information"]) for row in rows if not row["isTemporary"]]

    def columns(self, path: str) -> str:
        return ""

    def make_namespace(self, namespace: str) -> None:
        self._sql(f"CREATE SCHEMA IF NOT EXISTS {_quoted(self.name, namespace)}")

    def make(self, name: Name, path: str, comment: str) -> None:
        title = _quoted(self.name, *name)
        self._sql(f"CREATE TABLE {title} USING delta COMMENT {_text(comment)} LOCATION {_text(path)}")

    def set_columns(self, name: Name, path: str) -> bool:
        return False

    def drop(self, name: Name) -> None:
        self._sql(f"DROP TABLE {_quoted(self.name, *name)}")

    def _sql(self, statement: str) -> list[Any]:
        try:
            return self._spark.sql(statement).collect()
        except Exception as error:  # Spark has no class for what its catalogs refuse
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise LakemirrorError("catalog-refused", f"the catalog refused `{statement}`: {first}") from error


def _entry(namespace: str, table: str, information: str) -> Entry:
    """An entry from the text of `SHOW TABLE EXTENDED`: a line for each fact, such as `Comment: …`."""
    told: dict[str, str] = {}
    for line in information.splitlines():
        key, _, value = line.partition(": ")
        told.setdefault(key, value)
    kind = told.get("Type", "entry").lower()
    return Entry((namespace, table), kind, told.get("Comment", ""), told.get("Location", ""))


def _quoted(*parts: str) -> str:
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def _text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
