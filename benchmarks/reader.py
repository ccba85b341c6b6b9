"""How long Spark takes to read a Delta table, whoever wrote it: one plain Delta session for all of them.

python -m benchmarks.reader     a path a line in, JSON a line out

A table is read by the digest's query, over every row and column: once to warm the session, then the fastest of some
counts. Asked for `fresh`, the same is done in turn with a copy that Spark has just written; it has the feature
deletion vectors where the table has it, since Delta plans a read of such a table with a Spark job more.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import digest, process


class Reader:
    """The session in a process of its own, started when it is first asked."""

    def __init__(self, python: Path, variables: Mapping[str, str], where: Path) -> None:
        self._command = [str(python), "-m", "benchmarks.reader"]
        self._where = {"env": dict(variables), "cwd": where}
        self._child: subprocess.Popen[str] | None = None

    def read(self, table: str, extra: Sequence[str], *, fresh: bool, times: int) -> dict[str, Any]:
        """`digest`, `read` in seconds, and `fresh` in seconds where it was asked for. RuntimeError where it cannot."""
        if self._child is None:
            self._child = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                text=True, **self._where,
            )  # fmt: skip
        assert self._child.stdin is not None and self._child.stdout is not None
        try:
            self._child.stdin.write(
                json.dumps({"table": table, "extra": list(extra), "fresh": fresh, "times": times}) + "\n"
            )
            self._child.stdin.flush()
            found: dict[str, Any] = json.loads(self._child.stdout.readline())
        except (OSError, ValueError) as error:
            self.close()
            raise RuntimeError("the reader has ended") from error
        if "failed" in found:
            raise RuntimeError(found["failed"])
        return found

    def close(self) -> None:
        """Ends the session."""
        if self._child is not None:
            process.end(self._child.pid)
            self._child.wait()
            self._child = None


def main() -> None:
    from benchmarks.peers.delta import Plain

    peer = Plain(Path())
    peer.start(0)
    for line in sys.stdin:
        try:
            answer = _answer(peer.spark, **json.loads(line))
        except Exception as error:
            answer = {"failed": f"{type(error).__name__}: {str(error).splitlines()[0]}"[:300]}
        print(json.dumps(answer), flush=True)


def _answer(spark: Any, table: str, extra: Sequence[str], fresh: bool, times: int) -> dict[str, Any]:
    found, _ = _query(spark, table, extra)
    with tempfile.TemporaryDirectory(prefix="fresh-", dir=Path(table).parent) as copy:
        tables = [table]
        if fresh:
            found_there = spark.sql(f"show tblproperties delta.`{table}`").collect()
            vectors = {row["key"]: row["value"] for row in found_there}.get("delta.enableDeletionVectors", "false")
            writer = spark.read.format("delta").load(table).coalesce(4).write.format("delta").mode("overwrite")
            writer.option("delta.enableDeletionVectors", vectors).save(copy)
            tables.append(copy)
            _query(spark, copy, extra)
        seconds = [[_query(spark, each, extra)[1] for each in tables] for _ in range(times)]
    fastest = [min(times) for times in zip(*seconds, strict=True)]
    return {"digest": found, "read": fastest[0], **({"fresh": fastest[1]} if fresh else {})}


def _query(spark: Any, table: str, extra: Sequence[str]) -> tuple[list[int], float]:
    begun = time.perf_counter()
    row = spark.sql(digest.sql(f"delta.`{table}`", extra)).collect()[0]
    return digest.numbers(row), time.perf_counter() - begun


if __name__ == "__main__":
    main()
