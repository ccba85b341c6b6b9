"""Metrics in the text format of Prometheus (specification of the service, section 8)."""

from __future__ import annotations

import os
import resource
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lakemirror.status import TableStatus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds
_STARTED = time.time()


@dataclass(frozen=True)
class DatabaseFigures:
    """One database as the metrics show it. `state`: as the REST interface has it."""

    workspace: str
    database: str
    state: str
    tables: tuple[TableStatus, ...]


class RequestMetrics:
    """What is counted about requests. For one thread, the event loop's."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, str]] = Counter()
        self._seconds: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}
        self._refused: Counter[str] = Counter()
        self._uploaded: Counter[tuple[str, str]] = Counter()

    def note(self, plane: str, operation: str, status: int, seconds: float) -> None:
        """One request that was answered."""
        self._requests[plane, operation, str(status)] += 1
        counts = self._seconds.setdefault(plane, [0] * (len(BUCKETS) + 1))
        counts[next((n for n, most in enumerate(BUCKETS) if seconds <= most), len(BUCKETS))] += 1
        self._sums[plane] = self._sums.get(plane, 0.0) + seconds

    def refused(self, reason: str) -> None:
        """One request whose caller was not accepted."""
        self._refused[reason] += 1

    def uploaded(self, workspace: str, database: str, size: int) -> None:
        """Bytes of body that were taken in for a database."""
        self._uploaded[workspace, database] += size

    def lines(self, in_flight: int) -> list[str]:
        lines = _head("lakemirror_http_requests_total", "counter", "Requests that were answered.")
        for (plane, operation, status), count in sorted(self._requests.items()):
            labels = {"plane": plane, "operation": operation, "status": status}
            lines.append(_line("lakemirror_http_requests_total", labels, count))
        name = "lakemirror_http_request_seconds"
        lines += _head(name, "histogram", "Seconds from the headers of a request to the end of its answer.")
        for plane, counts in sorted(self._seconds.items()):
            total = 0
            for most, count in zip((*BUCKETS, "+Inf"), counts, strict=True):
                total += count
                lines.append(_line(f"{name}_bucket", {"plane": plane, "le": str(most)}, total))
            lines.append(_line(f"{name}_sum", {"plane": plane}, self._sums[plane]))
            lines.append(_line(f"{name}_count", {"plane": plane}, total))
        lines += _head("lakemirror_http_in_flight", "gauge", "Requests under way.")
        lines.append(_line("lakemirror_http_in_flight", {}, in_flight))
        lines += _head("lakemirror_auth_failures_total", "counter", "Requests whose caller was refused.")
        lines += [_line("lakemirror_auth_failures_total", {"reason": r}, n) for r, n in sorted(self._refused.items())]
        lines += _head("lakemirror_uploaded_bytes_total", "counter", "Bytes of body taken in by the storage endpoint.")
        for (workspace, database), size in sorted(self._uploaded.items()):
            lines.append(_line("lakemirror_uploaded_bytes_total", {"workspace": workspace, "database": database}, size))
        return lines


def database_lines(databases: Iterable[DatabaseFigures], now: float) -> list[str]:
    """The metrics of databases and tables. `now` in seconds since the epoch."""
    found = list(databases)
    lines = _head("lakemirror_databases", "gauge", "1 for the state that a database is in.")
    for each in found:
        labels = {"workspace": each.workspace, "database": each.database, "state": each.state}
        lines.append(_line("lakemirror_databases", labels, 1))
    families: list[tuple[str, str, str, list[str]]] = [
        ("lakemirror_table_state", "gauge", "1 for the state that a table is in.", []),
        ("lakemirror_table_rows_total", "counter", "Changes that were applied to a table.", []),
        ("lakemirror_table_bytes_total", "counter", "Bytes of change files that were applied to a table.", []),
        ("lakemirror_table_pending_files", "gauge", "Change files that arrived and are not applied.", []),
        ("lakemirror_table_lag_seconds", "gauge", "Age of the oldest change file that is not applied.", []),
        ("lakemirror_table_last_commit_timestamp_seconds", "gauge", "When the last commit of a table was made.", []),
    ]
    for each in found:
        for table in each.tables:
            labels = {
                "workspace": each.workspace, "database": each.database, "schema": table.schema, "table": table.table,
            }  # fmt: skip
            values: list[float] = [
                1, table.processed_rows, table.processed_bytes, table.pending_files, table.lag(now),
                table.last_sync or 0,
            ]  # fmt: skip
            for (name, _, _, own), value in zip(families, values, strict=True):
                state = {"state": table.status} if name == "lakemirror_table_state" else {}
                own.append(_line(name, {**labels, **state}, value))
    for name, kind, text, own in families:
        lines += [*_head(name, kind, text), *own]
    return lines


def process_lines(version: str, staged: int) -> list[str]:
    """The metrics of the process, and of the folder of uploads that are not published."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    pages = [int(word) for word in Path("/proc/self/statm").read_text().split()[:2]]
    size = os.sysconf("SC_PAGE_SIZE")
    values: list[tuple[str, str, str, float]] = [
        ("lakemirror_staged_bytes", "gauge", "Bytes of uploads that are not published.", staged),
        ("process_cpu_seconds_total", "counter", "Processor time of the process.", usage.ru_utime + usage.ru_stime),
        ("process_resident_memory_bytes", "gauge", "Memory of the process.", pages[1] * size),
        ("process_virtual_memory_bytes", "gauge", "Address space of the process.", pages[0] * size),
        ("process_open_fds", "gauge", "Open files of the process.", len(list(Path("/proc/self/fd").iterdir()))),
        ("process_max_fds", "gauge", "Files it may open.", resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        ("process_start_time_seconds", "gauge", "When the process started.", _STARTED),
    ]
    lines = _head("lakemirror_build_info", "gauge", "The version that runs.")
    lines.append(_line("lakemirror_build_info", {"version": version}, 1))
    for name, kind, text, value in values:
        lines += [*_head(name, kind, text), _line(name, {}, value)]
    return lines


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{inside}}} {value:.17g}" if inside else f"{name} {value:.17g}"


def _escaped(text: str) -> str:
    safe = text.encode("utf-8", "backslashreplace").decode()
    return safe.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


__all__ = ["CONTENT_TYPE", "DatabaseFigures", "RequestMetrics", "database_lines", "process_lines"]
