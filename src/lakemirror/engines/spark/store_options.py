"""Sends the options of object stores to Spark's tasks, beside the plan and never in it.

    storage_options, --storage ─▶ classic: a broadcast variable          ─▶ carrier ─▶ connections of the worker
                               └▶ Connect: a file artifact of the session ┘

The function of a task holds the number of the broadcast or the name of the file. Neither value is in a plan, an event
log or a page of Spark's.
"""

from __future__ import annotations

import json
import tempfile
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakemirror.storage import connections

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class StoreOptions:
    """The options that this process was given, for the tasks of a session. For several threads."""

    def __init__(self, session: SparkSession, *, is_remote: bool) -> None:
        self._session = session
        self._is_remote = is_remote
        self._lock = threading.Lock()
        self._sent: dict[str, dict[str, str]] = {}
        self._reference: Any = None

    def reference(self) -> Any:
        """What a task finds the options by: a Broadcast, or the name of a file; None where no options were given.

        Options are sent once, and again after they have changed.
        """
        with self._lock:
            options = connections.given_options()
            if options != self._sent:
                self._reference = self._send(options) if options else None
                self._sent = options
            return self._reference

    def _send(self, options: dict[str, dict[str, str]]) -> Any:
        if not self._is_remote:
            return self._session.sparkContext.broadcast(options)
        with tempfile.TemporaryDirectory(prefix="lakemirror-") as folder:  # only this user may enter it
            path = Path(folder) / f"lakemirror-store-{uuid.uuid4().hex}.json"
            path.write_text(json.dumps(options), "utf-8")
            self._session.addArtifacts(str(path), file=True)
        return path.name
