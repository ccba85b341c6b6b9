"""OpenLineage events and OpenTelemetry spans of what happens, where the packages are installed and configured.

    Execution ─▶ a queue of this process ─▶ one thread ─▶ OpenLineage: START and COMPLETE or FAIL of an apply
                 full: it is left out                  └▶ OpenTelemetry: one span

Both are configured by their own environment variables alone. Nobody waits for them, and no failure of theirs stops
anything.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
from collections.abc import Callable
from datetime import datetime, timezone
from functools import cache
from typing import Any, NamedTuple

from lakemirror.executions.execution import FAIL, REPLICATING, SNAPSHOTTING, Execution
from lakemirror.landing_zone.zone import TableName

log = logging.getLogger("lakemirror")

_MOST_WAITING = 10_000
_PATIENCE = 5.0  # seconds that a process waits at its end for what is not sent
_PRODUCER = "lakemirror"
_OTLP = ("otlp", "otlp_proto_http", "otlp_proto_grpc")  # names under which packages offer this exporter
_Send = Callable[[str, Execution], None]


def configured(database: str) -> tuple[Callable[[Execution], None], ...]:
    """Who else gets the executions of a database: nobody, or the sender of this process. `database`: its address."""
    if not (wants_lineage() or wants_traces()):
        return ()
    return (lambda execution: _sender().give(database, execution),)


def wants_lineage() -> bool:
    """True if the environment says where OpenLineage events go."""
    if os.environ.get("OPENLINEAGE_DISABLED", "").lower() == "true":
        return False
    named = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG")
    return any(os.environ.get(name) for name in named) or any(name.startswith("OPENLINEAGE__") for name in os.environ)


def wants_traces() -> bool:
    """True if the environment says where OpenTelemetry's traces go."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = os.environ.get("OTEL_TRACES_EXPORTER", "")
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    return exporter != "none" and bool(exporter or any(os.environ.get(name) for name in endpoints))


class _Target(NamedTuple):
    """Where executions are sent; `end` sends what it keeps."""

    send: _Send
    end: Callable[[], None]


class Sender:
    """Sends executions from a thread of its own, which also imports what it needs."""

    def __init__(self, targets: Callable[[], list[_Target]]) -> None:
        self._targets = targets
        self._waiting: queue.Queue[tuple[str, Execution] | None] = queue.Queue(_MOST_WAITING)
        self._said: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self._thread.start()
        atexit.register(self.end)

    def give(self, database: str, execution: Execution) -> None:
        """Takes an execution. Does not wait; leaves it out where too much waits."""
        try:
            self._waiting.put_nowait((database, execution))
        except queue.Full:
            self._say("full", "events of OpenLineage and OpenTelemetry are left out: too many wait to be sent")

    def end(self, patience: float = _PATIENCE) -> None:
        """Sends what waits, for at most so many seconds."""
        try:
            self._waiting.put(None, timeout=patience)
        except queue.Full:
            return
        self._thread.join(patience)

    def _run(self) -> None:
        targets = self._targets()
        while (item := self._waiting.get()) is not None:
            for send, _ in targets:
                try:
                    send(*item)
                except Exception as failure:
                    self._say(type(failure).__name__, f"an event was not sent: {failure}")
        for _, end in targets:
            try:
                end()
            except Exception as failure:
                self._say(type(failure).__name__, f"events were not sent: {failure}")

    def _say(self, kind: str, message: str) -> None:
        if kind not in self._said:
            self._said.add(kind)
            log.warning("%s; tables go on", message)


@cache
def _sender() -> Sender:
    """The sender of this process."""
    return Sender(_targets)


def _targets() -> list[_Target]:
    """What is installed and configured."""
    targets = []
    for is_wanted, make, package in (
        (wants_lineage(), _lineage, "openlineage-python"),
        (wants_traces(), _traces, "opentelemetry-sdk and an exporter"),
    ):
        try:
            if is_wanted:
                targets.append(make())
        except ImportError as error:
            log.warning("%s is configured and not installed: %s; tables go on", package, error)
        except Exception as failure:
            log.warning("%s cannot be used: %s; tables go on", package, failure)
    return targets


def _lineage() -> _Target:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import error_message_run, output_statistics_output_dataset
    from openlineage.client.uuid import generate_new_uuid

    client = OpenLineageClient()
    namespace = os.environ.get("OPENLINEAGE_NAMESPACE", "lakemirror")

    def send(database: str, each: Execution) -> None:
        if each.operation not in (SNAPSHOTTING, REPLICATING, FAIL):
            return
        root, path = _dataset(database)
        run_id, job = str(generate_new_uuid()), Job(namespace, f"{path.rpartition('/')[2]}.{each.name}")
        inputs = [InputDataset(root, f"{path}/{TableName(each.schema, each.table).folder}")]
        counted = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(each.rows, each.size)
        table = "/".join(part for part in (f"{path}/Tables", each.schema, each.table) if part)
        outputs = [OutputDataset(root, table, {"outputStatistics": counted} if not each.error_code else {})]
        facets: dict[str, Any] = {}
        if each.error_code:
            why = f"{each.error_code}: {each.error_message}"
            facets = {"errorMessage": error_message_run.ErrorMessageRunFacet(why, "python")}
        ends = RunState.FAIL if each.error_code else RunState.COMPLETE
        for state, moment in ((RunState.START, each.ended - each.seconds), (ends, each.ended)):
            run = Run(run_id, {} if state == RunState.START else facets)
            when = datetime.fromtimestamp(moment, timezone.utc).isoformat()
            client.emit(
                RunEvent(
                    eventType=state, eventTime=when, run=run, job=job, producer=_PRODUCER,
                    inputs=inputs, outputs=[] if state == RunState.START else outputs,
                )
            )  # fmt: skip

    return _Target(send, lambda: client.close(_PATIENCE))


def _dataset(database: str) -> tuple[str, str]:
    """Namespace and path of a database, by OpenLineage's rules for names: `file` and a path, or `s3://bucket`."""
    scheme, colon, rest = database.partition("://")
    if not colon:
        return "file", database
    bucket, _, key = rest.partition("/")
    return f"{scheme}://{bucket}", key


def _traces() -> _Target:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    provider: Any = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider):  # nobody in this process has set one up
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "lakemirror")})
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)  # `Sender.end` comes later
        provider.add_span_processor(BatchSpanProcessor(_exporter()))
    tracer = provider.get_tracer("lakemirror")

    def send(database: str, each: Execution) -> None:
        known = {
            "lakemirror.database": database, "lakemirror.table": each.name, "lakemirror.rows": each.rows,
            "lakemirror.bytes": each.size, "lakemirror.lag_seconds": each.lag, "lakemirror.position": each.last or None,
            "lakemirror.version": each.version if each.version >= 0 else None, "lakemirror.engine": each.engine,
            "error.type": each.error_code,
        }  # fmt: skip
        attributes = {name: value for name, value in known.items() if value not in (None, "")}
        begun = round((each.ended - each.seconds) * 1e9)
        span = tracer.start_span(f"{each.operation} {each.name}".strip(), start_time=begun, attributes=attributes)
        if each.error_code:
            span.set_status(trace.Status(trace.StatusCode.ERROR, each.error_message))
        span.end(round(each.ended * 1e9))

    flush = getattr(provider, "force_flush", lambda _: None)
    return _Target(send, lambda: flush(round(_PATIENCE * 1000)))


def _exporter() -> Any:
    """The exporter that OTEL_TRACES_EXPORTER names; ImportError where no package offers it."""
    from importlib.metadata import entry_points  # 20 ms, which few processes need

    wanted = os.environ.get("OTEL_TRACES_EXPORTER", "") or "otlp"
    offered = {each.name: each for each in entry_points(group="opentelemetry_traces_exporter")}
    for name in _OTLP if wanted == "otlp" else (wanted,):
        if name in offered:
            return offered[name].load()()
    raise ImportError(f"no package offers the exporter {wanted}")
