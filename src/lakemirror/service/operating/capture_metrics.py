"""The metrics of captures: what each keeps back in its source, how far it is behind, the rows that it has loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lakemirror.service.captures.capture_host import CaptureHost
from lakemirror.service.rest.registry import FolderRegistry
from lakemirror.status.table_metrics import as_utf8

_LABELS = ("workspace", "database", "capture")


class CaptureMetrics(Collector):
    """Made at each look from what the captures reported last."""

    def __init__(self, registry: FolderRegistry, captures: CaptureHost) -> None:
        self._registry, self._captures = registry, captures

    def describe(self) -> list[Metric]:
        """Nothing: a registry would ask `collect` otherwise, before there is a database."""
        return []

    def collect(self) -> Iterator[Metric]:
        state = GaugeMetricFamily("lakemirror_captures", "1 for the state of a capture.", labels=[*_LABELS, "state"])
        restarts = CounterMetricFamily("lakemirror_capture_restarts", "Starts after a capture ended.", labels=_LABELS)
        kept = GaugeMetricFamily(
            "lakemirror_capture_log_kept_back_bytes",
            "Bytes of log that the source keeps for a capture.",
            labels=_LABELS,
        )
        behind = GaugeMetricFamily(
            "lakemirror_capture_seconds_behind", "Age of the newest transaction that is published.", labels=_LABELS
        )
        of_table = [*_LABELS, "table"]
        rows = GaugeMetricFamily("lakemirror_capture_loaded_rows", "Rows of the load of a table.", labels=of_table)
        phase = GaugeMetricFamily(
            "lakemirror_capture_table_phase", "1 for the phase of a table.", labels=[*of_table, "phase"]
        )
        for database in self._registry.all_databases():
            workspace = database.workspace.name if database.workspace else ""
            for seen in self._captures.seen(database):
                named = [as_utf8(workspace), as_utf8(database.display_name), seen.declaration.name]
                state.add_metric([*named, seen.state], 1)
                restarts.add_metric(named, seen.restarts)
                report = seen.report or {}
                _add(kept, named, report.get("logKeptBackBytes"))
                tables: list[Mapping[str, Any]] = report.get("tables") or []
                _add(behind, named, max((each.get("secondsBehind") or 0 for each in tables), default=None))
                for each in tables:
                    of = [*named, as_utf8(str(each.get("table")))]
                    _add(rows, of, each.get("rowsLoaded"))
                    phase.add_metric([*of, str(each.get("phase"))], 1)
        yield from (state, restarts, kept, behind, rows, phase)


def _add(metric: GaugeMetricFamily, labels: list[str], value: Any) -> None:
    """A value that is known."""
    if isinstance(value, int | float):
        metric.add_metric(labels, value)
