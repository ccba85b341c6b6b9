"""Metrics in the text format of Prometheus (specification of the service, section 8)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from lakemirror.service.host import EngineHost
from lakemirror.service.rest.database_status import status_of
from lakemirror.service.rest.registry import FolderRegistry
from lakemirror.status import TableStatus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds

disable_created_metrics()  # type: ignore[no-untyped-call]


class ServiceMetrics:
    """Every metric of one service. What is counted about requests is counted by one thread, the event loop's."""

    def __init__(self, version: str, registry: FolderRegistry, host: EngineHost) -> None:
        """`version`: the one that runs."""
        own = CollectorRegistry()
        Gauge("lakemirror_build_info", "The version that runs.", ["version"], registry=own).labels(version).set(1)
        staged = Gauge("lakemirror_staged_bytes", "Bytes of uploads that are not published.", registry=own)
        staged.set_function(lambda: _size(registry.staging))
        ProcessCollector(registry=own)
        own.register(_Tables(registry, host))
        self._requests = Counter(
            "lakemirror_http_requests", "Requests that were answered.", ["plane", "operation", "status"], registry=own
        )
        self._seconds = Histogram(
            "lakemirror_http_request_seconds",
            "Seconds from the headers of a request to the end of its answer.",
            ["plane"],
            buckets=BUCKETS,
            registry=own,
        )
        self._in_flight = Gauge("lakemirror_http_in_flight", "Requests under way.", registry=own)
        self._refused = Counter(
            "lakemirror_auth_failures", "Requests whose caller was refused.", ["reason"], registry=own
        )
        self._uploaded = Counter(
            "lakemirror_uploaded_bytes",
            "Bytes of body taken in by the storage endpoint.",
            ["workspace", "database"],
            registry=own,
        )
        self._registry = own

    def note(self, plane: str, operation: str, status: int, seconds: float) -> None:
        """One request that was answered."""
        self._requests.labels(plane, operation, str(status)).inc()
        self._seconds.labels(plane).observe(seconds)

    def refused(self, reason: str) -> None:
        """One request whose caller was not accepted."""
        self._refused.labels(reason).inc()

    def uploaded(self, workspace: str, database: str, size: int) -> None:
        """Bytes of body that were taken in for a database."""
        self._uploaded.labels(_text(workspace), _text(database)).inc(size)

    def text(self, in_flight: int) -> bytes:
        """All metrics as Prometheus reads them. May wait for the disk."""
        self._in_flight.set(in_flight)
        return generate_latest(self._registry)


class _Tables(Collector):
    """The metrics of databases and tables, made at each look."""

    def __init__(self, registry: FolderRegistry, host: EngineHost) -> None:
        self._databases, self._host = registry, host

    def describe(self) -> list[Metric]:
        """Nothing: a registry would ask `collect` otherwise, before there is a database."""
        return []

    def collect(self) -> Iterator[Metric]:
        state_of = GaugeMetricFamily(
            "lakemirror_databases", "1 for the state that a database is in.", labels=["workspace", "database", "state"]
        )
        tables: list[tuple[list[str], TableStatus]] = []
        for database in self._databases.all_databases():
            state, _ = self._host.state(database)
            named = [_text(database.workspace.name if database.workspace else ""), _text(database.display_name)]
            state_of.add_metric([*named, state], 1)
            for table in status_of(database, state).tables:
                tables.append(([*named, _text(table.schema), _text(table.table)], table))
        yield state_of
        yield from _of_tables(tables)


_Family = type[CounterMetricFamily | GaugeMetricFamily]
_OF_TABLES: tuple[tuple[_Family, str, str, Callable[[TableStatus, float], float]], ...] = (
    (CounterMetricFamily, "lakemirror_table_rows", "Changes that were applied to a table.",
     lambda t, now: t.processed_rows),
    (CounterMetricFamily, "lakemirror_table_bytes", "Bytes of change files that were applied to a table.",
     lambda t, now: t.processed_bytes),
    (GaugeMetricFamily, "lakemirror_table_pending_files", "Change files that arrived and are not applied.",
     lambda t, now: t.pending_files),
    (GaugeMetricFamily, "lakemirror_table_lag_seconds", "Age of the oldest change file that is not applied.",
     lambda t, now: t.lag(now)),
    (GaugeMetricFamily, "lakemirror_table_last_commit_timestamp_seconds", "When the last commit of a table was made.",
     lambda t, now: t.last_sync or 0),
)  # fmt: skip
"""The metrics of a table: kind, name, meaning, and the value of a table now."""


def _of_tables(tables: Sequence[tuple[list[str], TableStatus]]) -> Iterator[Metric]:
    labels = ["workspace", "database", "schema", "table"]
    state = GaugeMetricFamily(
        "lakemirror_table_state", "1 for the state that a table is in.", labels=[*labels, "state"]
    )
    for named, table in tables:
        state.add_metric([*named, table.status], 1)
    yield state
    now = time.time()
    for kind, name, meaning, value in _OF_TABLES:
        metric = kind(name, meaning, labels=labels)
        for named, table in tables:
            metric.add_metric(named, value(table, now))
        yield metric


def _size(folder: Path) -> int:
    """Bytes of the files in a folder; what disappears meanwhile counts nothing."""
    total = 0
    for path in folder.rglob("*"):
        try:
            found = path.lstat()
        except OSError:
            continue
        total += found.st_size if not path.is_dir() else 0
    return total


def _text(name: str) -> str:
    """A name as UTF-8 can hold it: the name of a folder may have bytes that are none."""
    return name.encode("utf-8", "backslashreplace").decode()


__all__ = ["CONTENT_TYPE", "ServiceMetrics"]
