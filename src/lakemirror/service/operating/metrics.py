"""Metrics in the text format of Prometheus (specification of the service, section 8)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import generate_latest

from lakemirror.service.captures.capture_host import CaptureHost
from lakemirror.service.host import EngineHost
from lakemirror.service.operating.capture_metrics import CaptureMetrics
from lakemirror.service.rest.database_status import status_of
from lakemirror.service.rest.registry import FolderRegistry
from lakemirror.status.table_metrics import CONTENT_TYPE, DatabaseSeen, TableMetrics, as_utf8

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds

disable_created_metrics()  # type: ignore[no-untyped-call]


class ServiceMetrics:
    """Every metric of one service. What is counted about requests is counted by one thread, the event loop's."""

    def __init__(self, version: str, registry: FolderRegistry, host: EngineHost, captures: CaptureHost) -> None:
        """`version`: the one that runs."""
        own = CollectorRegistry()
        Gauge("lakemirror_build_info", "The version that runs.", ["version"], registry=own).labels(version).set(1)
        staged = Gauge("lakemirror_staged_bytes", "Bytes of uploads that are not published.", registry=own)
        staged.set_function(lambda: _size(registry.staging))
        ProcessCollector(registry=own)
        own.register(TableMetrics(lambda: _seen(registry, host)))
        own.register(CaptureMetrics(registry, captures))
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
        self._uploaded.labels(as_utf8(workspace), as_utf8(database)).inc(size)

    def text(self, in_flight: int) -> bytes:
        """All metrics as Prometheus reads them. May wait for the disk."""
        self._in_flight.set(in_flight)
        return generate_latest(self._registry)


def _seen(registry: FolderRegistry, host: EngineHost) -> Iterator[DatabaseSeen]:
    for database in registry.all_databases():
        state, _ = host.state(database)
        workspace = database.workspace.name if database.workspace else ""
        found = status_of(database, state, host.status(database.id))
        yield DatabaseSeen(workspace, database.display_name, state, found.tables)


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


__all__ = ["CONTENT_TYPE", "ServiceMetrics"]
