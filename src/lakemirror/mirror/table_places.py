"""Where a Delta table is in the database, and what may not be around it (contract section 1).

    Tables/orders ─▶ default schema `dbo` ─▶ Tables/dbo/orders     one atomic rename; the table is not filled again

The table's position and the folder's marker say which Delta table belongs to a table folder, never a name.

No Delta table is made in another one's folder: VACUUM or a drop of the outer table would take the inner files. The
listing shows names that exclude each other (`zone.collisions`). A table whose folder is gone is still there until it is
dropped: `Tables/sales` when a schema `sales` has taken the name, or the other way round. The new table waits.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from lakemirror import failpoints
from lakemirror.errors import LakemirrorError, TableError
from lakemirror.landing_zone.identity import marker_of, path_in_zone
from lakemirror.landing_zone.zone import TableName
from lakemirror.mirror.table_log import read_table_log
from lakemirror.storage import Storage

log = logging.getLogger("lakemirror")
BETWEEN = "Tables/_moved"
"""Where a table is while it moves out of a folder into one of the same name. What is there after a crash moves on."""

OWN = "Tables/_lakemirror"
"""Tables of lakemirror's own, which mirror nothing."""


def move_here(storage: Storage, name: TableName, target: str) -> bool:
    """Moves the folder's Delta table from where another default schema put it to `target`, where nothing is.

    True if it moved. If another engine was faster, nothing is left to move, which is no error.
    """
    if name.schema:
        return False
    marker = marker_of(storage, name)
    if marker is None or marker.folder != path_in_zone(name):
        return False
    for path in _elsewhere(storage, name, target):
        try:
            table = read_table_log(storage.uri(path))
        except LakemirrorError:
            continue
        if table is not None and table.position is not None and table.position.identity == marker.id:
            check_no_table_around(storage, target, marker.id)
            failpoints.reach("move.before-move")
            try:
                if f"{target}/".startswith(f"{path}/") or f"{path}/".startswith(f"{target}/"):
                    # one folder is in the other: default schema and table have one name
                    between = f"{BETWEEN}/{name.table}"
                    storage.move(path, between)
                    path = between
                storage.move(path, target)
            except (OSError, LakemirrorError) as error:
                raise LakemirrorError("concurrent-commit", f"{path} is being moved to {target}: {error}") from error
            log.info("%s is now %s, by the default schema", path, target)
            return True
    return False


def was_filled_from(storage: Storage, name: TableName, target: str) -> bool:
    """True if the marker of the table folder has the identity of the Delta table at `target`, or one cannot be read."""
    try:
        marker = marker_of(storage, name)
        table = read_table_log(storage.uri(target))
    except LakemirrorError:
        return True
    position = table.position if table is not None else None
    return marker is not None and position is not None and position.identity == marker.id


def check_no_table_around(storage: Storage, target: str, identity: str = "") -> None:
    """Raises an error if another Delta table is around `target` or in it. `identity`: of the table folder, whose own
    table, made under another default schema, is not in the way.

    LakemirrorError `concurrent-commit` if that table will be dropped, TableError `target-foreign` if it is not ours.
    """
    for path in tables_near(storage, target):
        table = read_table_log(storage.uri(path))
        if table is None or (identity and table.position is not None and table.position.identity == identity):
            continue
        where = "around" if target.startswith(f"{path}/") else "in"
        if table.position is None:
            raise TableError(
                "target-foreign",
                f"{path}, {where} the place of {target}, is a Delta table that lakemirror did not make",
                hint=f"Move {path} away, or rename the table folder.",
                file=path,
            )
        message = f"{path}, {where} the place of {target}, is a table that is not dropped yet"
        raise LakemirrorError("concurrent-commit", message)


def in_other_case(storage: Storage, target: str) -> str | None:
    """The Delta table whose place differs from `target` in case alone."""
    with contextlib.suppress(FileNotFoundError):
        for path in storage.list(target.rpartition("/")[0], lambda _: False).folders:
            if path != target and path.lower() == target.lower() and storage.exists(f"{path}/_delta_log"):
                return path
    return None


def tables_near(storage: Storage, target: str) -> Iterator[str]:
    """The Delta tables around a place of a table, or in it."""
    above = target.rpartition("/")[0]
    if "/" not in above:
        yield from tables_in(storage, target)
    elif storage.exists(f"{above}/_delta_log"):
        yield above


def tables_in(storage: Storage, target: str) -> Iterator[str]:
    """The Delta tables directly below a folder of `Tables/`."""
    try:
        folders = storage.list(target, lambda _: False).folders
    except FileNotFoundError:
        return
    for path in folders:
        name = path.rpartition("/")[2]
        # partition folders are left out: a table may have thousands
        if "=" not in name and not name.startswith("_") and storage.exists(f"{path}/_delta_log"):
            yield path


def _elsewhere(storage: Storage, name: TableName, target: str) -> Iterator[str]:
    """Where a table without schema folder may be: directly under Tables/, or in any schema."""
    paths = [f"Tables/{name.table}"]
    try:
        listing = storage.list("Tables", lambda path: path.count("/") < 2 and not storage.exists(f"{path}/_delta_log"))
    except FileNotFoundError:
        return
    folders = [path for path in sorted(listing.folders) if not path.startswith(f"{OWN}/")]
    paths += [path for path in folders if path.count("/") == 2 and path.endswith(f"/{name.table}")]
    yield from (path for path in paths if path != target and storage.exists(f"{path}/_delta_log"))
