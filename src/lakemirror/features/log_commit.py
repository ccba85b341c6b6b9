"""Makes the commits of a drop from the newest state; if another commit is faster, they are built again.

build(snapshot) ─▶ actions ─▶ delta/commit.py puts them at version N + 1
     ▲                            │ taken: another commit was faster
     └──── read the log again ◀───┘
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lakemirror.delta.commit import commit as put_commit
from lakemirror.delta.commit_info import commit_info, newest_info
from lakemirror.delta.feature_names import features_of
from lakemirror.delta.log import Action, Metadata, Snapshot, read_snapshot
from lakemirror.errors import LakemirrorError
from lakemirror.features.catalogue import BY_NAME
from lakemirror.storage.place import Place

ATTEMPTS = 100
_NOT_OURS = ("catalogManaged", "adaptiveMetadata-preview")
_COORDINATOR = "delta.coordinatedCommits.commitCoordinator-preview"


@dataclass(frozen=True)
class Commit:
    """The content of a commit: its actions, and the operation that the table's history shows."""

    operation: str
    parameters: Mapping[str, Any]
    actions: tuple[Action, ...]


Build = Callable[[Snapshot], Commit | None]
"""Builds the commit that follows a state; None if nothing is left to do."""


def commit(table: Place, build: Build, attempts: int = ATTEMPTS) -> Snapshot:
    """Commits the actions that `build` makes from the newest state. Returns the state after it; unchanged if None.

    If another commit takes the version, `build` is called again with the state that includes it. Raises
    `features-unsafe` for a table that lakemirror may not write, `concurrent-commit` after `attempts` lost races.
    """
    winner = -1
    for attempt in range(attempts):
        snapshot = existing(table)
        wanted = build(snapshot)
        if wanted is None:
            return snapshot
        check_writable(snapshot)
        info = commit_info(snapshot, wanted.operation, wanted.parameters)
        try:
            put_commit(table, snapshot, [{"commitInfo": info}, *wanted.actions], keep_log=False, recount=True)
        except LakemirrorError as error:
            if error.code != "concurrent-commit":
                raise
            winner = snapshot.version + 1
            time.sleep(random.uniform(0, 0.002 * min(attempt + 1, 50)))
            continue
        return existing(table, snapshot.version + 1)
    raise LakemirrorError(
        "concurrent-commit",
        f"others commit to {table} all the time: commit {winner} was the last of {attempts} that came first",
        table=str(table),
    )


def existing(table: Place, version: int | None = None) -> Snapshot:
    """The state of the table, at its newest or the given version. Error: `table-unreadable` if it is no Delta table."""
    snapshot = read_snapshot(table, version)
    if snapshot is None:
        raise LakemirrorError("table-unreadable", f"there is no Delta table in {table}", table=str(table))
    return snapshot


def check_writable(snapshot: Snapshot) -> None:
    """Raises `features-unsafe` if a commit by lakemirror could break a rule of the table's features."""
    names = features_of(snapshot.protocol)
    unknown = sorted(name for name in names if name not in BY_NAME)
    if unknown:
        raise LakemirrorError(
            "features-unsafe",
            f"{snapshot.table} has features that lakemirror does not know: {', '.join(unknown)}; it is not changed",
            table=str(snapshot.table),
        )
    managed = sorted(names & set(_NOT_OURS))
    if managed or snapshot.metadata.configuration.get(_COORDINATOR):
        raise LakemirrorError(
            "features-unsafe",
            f"the commits of {snapshot.table} are decided elsewhere "
            f"({', '.join(managed) or 'coordinatedCommits-preview'}); it is not changed",
            table=str(snapshot.table),
        )


def newest_commit(snapshot: Snapshot) -> str:
    """The newest commit in words: `commit 12 (WRITE by Apache-Spark/4.2.0 Delta-Lake/4.4.0)`."""
    info = newest_info(snapshot)
    return f"commit {snapshot.version} ({info.get('operation', 'unknown')} by {info.get('engineInfo', 'unknown')})"


def metadata_action(metadata: Metadata, *, configuration: Mapping[str, str], schema: Mapping[str, Any]) -> Action:
    """The `metaData` action with another configuration and schema, everything else as it is."""
    text = metadata.value.get("schemaString")
    if schema != metadata.schema:
        text = json.dumps(schema, separators=(",", ":"), ensure_ascii=False)
    return {"metaData": {**metadata.value, "configuration": dict(configuration), "schemaString": text}}
