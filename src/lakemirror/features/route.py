"""Who rewrites the data files of a drop, and why: decided once, for the plan that is shown and for the drop that acts.

    snapshot + files to rewrite ─▶ the kernels, in one commit          every type and feature that they know
                                ─▶ Delta Spark, in a JVM               the rest of the local tables
                                ─▶ nobody                              the rest of the tables in object stores

`route_of` reads the footers of the files, and nothing else of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import pyarrow as pa

from lakemirror.delta.log import Snapshot
from lakemirror.engines.kernels.rewrite import Unreadable, unsupported_file
from lakemirror.engines.row_work import Target
from lakemirror.engines.target import target_of, unsupported_reason
from lakemirror.errors import LakemirrorError
from lakemirror.keys.look_up import read_footer
from lakemirror.storage.place import local_path

_AT_ONCE = 8  # footers that are read at the same time
_REMEMBERED = 16 * 1024  # files in the cache: a drop plans again after each of its steps
_MODE = "delta.columnMapping.mode"


@dataclass(frozen=True)
class Route:
    """Who rewrites data files. `reason`: why the kernels cannot; empty where they can."""

    by: Literal["kernels", "Delta Spark", "nobody"]
    reason: str = ""

    @property
    def shown(self) -> str:
        """The route in words, for the line of a plan."""
        return f"by {self.by}, because {self.reason}" if self.reason else f"by {self.by}"


def route_of(snapshot: Snapshot, files: Sequence[Mapping[str, Any]], without: Collection[str] = ()) -> Route:
    """Who rewrites these files of a table. `without`: features that the table loses before.

    Errors: `table-unreadable` for a file that nobody can rewrite, `storage-unavailable`.
    """
    reason = unsupported_reason(snapshot, nested=True, without=without)
    return choose(local_path(snapshot.table) is not None, reason or _reason_of_files(snapshot, files))


def choose(is_local: bool, reason: str | None) -> Route:
    """The route of a table. `is_local`: Delta Spark can read and write it. `reason`: why the kernels cannot rewrite its
    files; None if they can. Pure."""
    if reason is None:
        return Route("kernels")
    return Route("Delta Spark" if is_local else "nobody", reason)


def _reason_of_files(snapshot: Snapshot, files: Sequence[Mapping[str, Any]]) -> str | None:
    """Why the kernels cannot rewrite one of the files; None if they can rewrite all."""
    source = target_of(str(snapshot.table), snapshot.metadata.value)
    by_id = snapshot.metadata.configuration.get(_MODE, "none") == "id"
    with ThreadPoolExecutor(max(1, min(_AT_ONCE, len(files)))) as pool:
        begun = [
            pool.submit(
                _reason_of, source, by_id, add["path"], add.get("stats"), add.get("size"), add.get("modificationTime")
            )
            for add in files
        ]
        try:
            return next((each.result() for each in begun if each.result() is not None), None)
        finally:
            pool.shutdown(cancel_futures=True)


@lru_cache(_REMEMBERED)
def _reason_of(
    source: Target, by_id: bool, path: str, stats: str | None, size: int | None, modified: int | None
) -> str | None:
    """Why the kernels cannot rewrite one file. `size`, `modified`: from the log, for the cache alone."""
    add = {"path": path, "stats": stats}
    try:
        reason = unsupported_file(add, read_footer(add, source), source, by_id=by_id)
    except FileNotFoundError as error:
        reason = Unreadable(f"the data file {path} does not exist: {error}")
    except OSError as error:
        if error.errno is not None:
            raise
        reason = Unreadable(f"the footer of {path} cannot be read: {error}")
    except pa.ArrowException as error:
        reason = Unreadable(f"the footer of {path} cannot be read: {error}")
    if isinstance(reason, Unreadable):
        raise LakemirrorError("table-unreadable", f"{source.path}: {reason.reason}", table=source.path)
    return reason
