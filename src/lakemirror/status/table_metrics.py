"""The metrics of databases and tables for Prometheus, the same of the service and of `lakemirror run`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lakemirror.status.status import TableStatus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class DatabaseSeen:
    """One database at a look. `workspace`: empty outside a service."""

    workspace: str
    name: str
    state: str
    tables: tuple[TableStatus, ...]


class TableMetrics(Collector):
    """The metrics of databases and tables, made at each look. `look` may wait for the disk."""

    def __init__(self, look: Callable[[], Iterable[DatabaseSeen]]) -> None:
        self._look = look

    def describe(self) -> list[Metric]:
        """Nothing: a registry would ask `collect` otherwise, before there is a database."""
        return []

    def collect(self) -> Iterator[Metric]:
        state_of = GaugeMetricFamily(
            "lakemirror_databases", "1 for the state that a database is in.", labels=["workspace", "database", "state"]
        )
        tables: list[tuple[list[str], TableStatus]] = []
        for seen in self._look():
            named = [as_utf8(seen.workspace), as_utf8(seen.name)]
            state_of.add_metric([*named, seen.state], 1)
            for table in seen.tables:
                tables.append(([*named, as_utf8(table.schema), as_utf8(table.table)], table))
        yield state_of
        yield from _of_tables(tables)


_Family = type[CounterMetricFamily | GaugeMetricFamily]
_OF_TABLES: tuple[tuple[_Family, str, str, Callable[[TableStatus, float], float]], ...] = (
    (CounterMetricFamily, "lakemirror_table_rows", "Changes that were applied to a table.",
     lambda t, now: t.processed_rows),
    (CounterMetricFamily, "lakemirror_table_bytes", "Bytes of change files that were applied to a table.",
     lambda t, now: t.processed_bytes),
    (CounterMetricFamily, "lakemirror_table_late_changes", "Changes that came too late for the mirrored table.",
     lambda t, now: t.late_changes),
    (CounterMetricFamily, "lakemirror_table_ignored_deletes", "Deletes that were counted and not applied.",
     lambda t, now: t.ignored_deletes),
    (GaugeMetricFamily, "lakemirror_table_pending_files", "Change files that arrived and are not applied.",
     lambda t, now: t.pending_files),
    (GaugeMetricFamily, "lakemirror_table_lag_seconds", "Age of the oldest change file that is not applied.",
     lambda t, now: t.lag(now)),
    (GaugeMetricFamily, "lakemirror_table_freshness_goal_seconds", "Seconds to apply a change file in; 0: no goal.",
     lambda t, now: t.freshness),
    (GaugeMetricFamily, "lakemirror_table_freshness_missed", "1 while a change file waits for longer than the goal.",
     lambda t, now: float(t.misses_goal(now))),
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


def as_utf8(name: str) -> str:
    """A name as UTF-8 can hold it: the name of a folder may have bytes that are none."""
    return name.encode("utf-8", "backslashreplace").decode()
