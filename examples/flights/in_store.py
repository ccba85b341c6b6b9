"""`lakemirror demo --on s3://…`: the flights arrive in a bucket, and their tables are in it.

steps ─▶ publisher (a thread) ─▶ bucket ─▶ engine (a thread) ─▶ tables in the bucket ─▶ compared with the source
"""

from __future__ import annotations

import threading
import time
from typing import Any

from rich.console import Console

from flights import show
from flights.performance import Watch, follow
from flights.source import FlightsSource
from flights.tables_compared import compared
from lakemirror.api import MirroredDatabase
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.database_folder import create_database
from lakemirror.publisher import Landing
from lakemirror.storage.place import Place, files_below, requests_sent, storage_of

_MINE = "mirrored-by-lakemirror-demo"


def mirror_in_store(database: Place, days: int | None = None, **settings: Any) -> bool:
    """Publishes and mirrors the flights below an address in a store, prints what came of it; True where all figures are
    right. What an earlier demo made there is replaced.

    LakemirrorError `setting-invalid` where something else is there, SetupError `demo-data-missing`, and what the store
    raises.
    """
    console = Console(highlight=False)
    source = FlightsSource(days)
    _clear(database)
    (database / _MINE).write_bytes(b"")
    create_database(database)
    console.print(f"Publishing flights into {database}, mirroring them into {database}/Tables", style="bold")
    steps = list(source.steps())
    watch, stop = Watch(), threading.Event()
    failures: list[BaseException] = []

    def publish() -> None:
        landing = Landing(str(database))
        for step in steps:
            if stop.is_set():
                return
            watch.first.setdefault(step.table, time.monotonic())
            source.publish(landing, step)

    def mirror() -> None:
        MirroredDatabase(database, **{"engine": "local", **settings}).run(stop, watch)

    def guarded(work: Any) -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(work,), name=work.__name__) for work in (publish, mirror)]
    for each in threads:
        each.start()
    try:
        follow("change files applied", lambda: watch.total, len(steps), failures, lambda: watch.error is not None)
    finally:
        stop.set()
        for each in threads:
            each.join()
    for failure in [*failures, *([watch.error] if watch.error is not None else [])]:
        raise failure
    found = compared(database, source, days)
    right = found.print(console, show.in_all(found.counts, watch.seconds))
    requests = ", ".join(f"{count:,} {verb}" for verb, count in sorted(requests_sent(database).items()))
    console.print(f"{watch.total} change files; requests: {requests}")
    return right


def _clear(database: Place) -> None:
    if any(files_below(database, lambda _: True)) and not (database / _MINE).is_file():
        raise LakemirrorError(
            "setting-invalid", f"{database} holds objects and no demo made them", hint="Name another folder: --on"
        )
    storage_of(database).delete("")


__all__ = ["mirror_in_store"]
