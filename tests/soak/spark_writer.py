"""Spark as another writer: one small session, which compacts, vacuums, restores, updates and alters mirrored tables."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Any

from lakemirror.delta.log import read_snapshot
from lakemirror.settings.settings import Settings

CONSTRAINT = "soak"
_SMALL = Settings(
    master="local[1]",
    driver_memory="1g",
    spark=(
        ("spark.sql.shuffle.partitions", "1"),
        ("spark.databricks.delta.snapshotPartitions", "1"),
        ("spark.sql.sources.parallelPartitionDiscovery.parallelism", "1"),  # of a VACUUM
    ),
)
_ACTS = (
    "optimize", "vacuum", "restore", "update in place", "update", "add column", "add constraint", "drop constraint",
    "append only", "not append only",
)  # fmt: skip


class SparkWriter:
    """Acts of a colleague with Spark. `changed`: tables whose rows are not what was published any more."""

    def __init__(self) -> None:
        self.changed: set[str] = set()
        self._session: Any = None

    def act(self, name: str, table: Path, chance: random.Random) -> str:
        """One random act; what it was, and what came of it. Never raises: to be refused is an outcome, too."""
        act, number = chance.choice(_ACTS), chance.randrange(1000)
        try:
            if read_snapshot(table) is None:
                return f"{act}: no table yet"
            return f"{act}: {self._do(act, name, f'delta.`{table}`', number)}"
        except KeyboardInterrupt:
            raise
        except Exception as error:
            return f"{act}: refused: {type(error).__name__}: {str(error).splitlines()[0][:160]}"

    def take_back(self, table: Path) -> None:
        """Removes what keeps an engine from applying: constraints, and the property that forbids deletes."""
        snapshot = read_snapshot(table)
        if snapshot is None or self._session is None:
            return
        configuration = snapshot.metadata.configuration
        if f"delta.constraints.{CONSTRAINT}" in configuration:
            self._sql(f"ALTER TABLE delta.`{table}` DROP CONSTRAINT {CONSTRAINT}")
        if "delta.appendOnly" in configuration:
            self._sql(f"ALTER TABLE delta.`{table}` UNSET TBLPROPERTIES ('delta.appendOnly')")

    def stop(self) -> None:
        """Ends the session."""
        if self._session is not None:
            from lakemirror.spark_session import session

            session.stop(self._session)
            self._session = None

    def _do(self, act: str, name: str, table: str, number: int) -> str:
        if act == "optimize":
            return str(self._sql(f"OPTIMIZE {table}")[0]["metrics"]["numFilesAdded"])
        if act == "vacuum":
            return str(len(self._sql(f"VACUUM {table} RETAIN 720 HOURS")))
        if act == "restore":
            version = self._sql(f"DESCRIBE HISTORY {table} LIMIT 1")[0]["version"]
            back = max(0, version - 1 - number % 3)
            self._sql(f"RESTORE TABLE {table} TO VERSION AS OF {back}")
            return f"to version {back} of {version}"
        if act == "add column":
            self._sql(f"ALTER TABLE {table} ADD COLUMNS (extra{number} INT)")
        elif act == "add constraint":
            rule = "true" if number % 3 else "length(v) < 60"  # which some of what is published does not keep
            self._sql(f"ALTER TABLE {table} ADD CONSTRAINT {CONSTRAINT} CHECK (v IS NULL OR {rule})")
        elif act == "drop constraint":
            self._sql(f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {CONSTRAINT}")
        elif act == "append only":
            self._sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
        elif act == "not append only":
            self._sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES IF EXISTS ('delta.appendOnly')")
        elif act == "update in place":
            self._sql(f"UPDATE {table} SET v = v WHERE v LIKE '%{number % 10}'")
        else:
            self.changed.add(name)
            self._sql(f"UPDATE {table} SET v = 'by somebody else' WHERE v LIKE '%{number % 10}'")
        return "done"

    def _sql(self, statement: str) -> Any:
        if self._session is None:
            from lakemirror.spark_session import session

            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            self._session = session.start(_SMALL, delta=True, short=True)
        return self._session.sql(statement).collect()
