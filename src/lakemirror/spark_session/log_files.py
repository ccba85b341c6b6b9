"""Where Spark's errors go: one file for each process that starts Spark, kept for LOG_DAYS."""

from __future__ import annotations

import os
import re
import time
from datetime import datetime, timezone
from pathlib import Path

from lakemirror.storage.own_files import entries, remove_own_file

LOG_DAYS = 14

_LOG_NAME = re.compile(r"spark-[0-9]{8}T[0-9]{6}-[0-9]+\.(log(\.1)?|crash)")
_LOG_BEGINS = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\.[0-9]{3}|#\n# |\Z")  # of log4j2.properties, of Java


def new_log_file(folder: Path) -> Path | None:
    """A new path for this process's log; removes logs of earlier days. None if nothing can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in entries(folder):
            if old.lstat().st_mtime < time.time() - LOG_DAYS * 86400:
                remove_own_file(old, _LOG_NAME, lambda head: _LOG_BEGINS.match(head) is not None)
    except OSError:
        return None
    return folder / f"spark-{datetime.now(timezone.utc):%Y%m%dT%H%M%S}-{os.getpid()}.log"
