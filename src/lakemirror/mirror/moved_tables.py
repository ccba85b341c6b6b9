"""A table moves when the default schema changes; it is not filled again (contract section 1).

    Tables/orders ─▶ default schema `dbo` ─▶ Tables/dbo/orders     one atomic rename of the folder

The table's position and the folder's marker say which Delta table belongs to a table folder, never a name.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from lakemirror import failpoints
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.identity import marker_place, parse_marker, read_marker
from lakemirror.landing_zone.zone import MARKER, TableName
from lakemirror.mirror.nested_tables import check_no_table_around
from lakemirror.mirror.table_log import read_table_log
from lakemirror.storage import Storage

log = logging.getLogger("lakemirror")
BETWEEN = "Tables/_moved"
"""Where a table is while it moves out of a folder into one of the same name. What is there after a crash moves on."""


def move_here(storage: Storage, name: TableName, target: str) -> bool:
    """Moves the folder's Delta table from where another default schema put it to `target`, where nothing is.

    True if it moved. If another engine was faster, nothing is left to move, which is no error.
    """
    if name.schema:
        return False
    content = read_marker(storage, f"{name.folder}/{MARKER}")
    marker = parse_marker(content) if content is not None else None
    if marker is None or marker.folder != marker_place(name):
        return False
    for place in _elsewhere(storage, name, target):
        try:
            found = read_table_log(storage.uri(place))
        except LakemirrorError:
            continue
        if found is not None and found.position is not None and found.position.identity == marker.id:
            check_no_table_around(storage, target, marker.id)
            failpoints.reach("move.before-move")
            try:
                if f"{target}/".startswith(f"{place}/") or f"{place}/".startswith(f"{target}/"):
                    # one folder is in the other: default schema and table have one name
                    between = f"{BETWEEN}/{name.table}"
                    storage.move(place, between)
                    place = between
                storage.move(place, target)
            except (OSError, LakemirrorError) as error:
                raise LakemirrorError("concurrent-commit", f"{place} is being moved to {target}: {error}") from error
            log.info("%s is now %s, by the default schema", place, target)
            return True
    return False


def was_filled_from(storage: Storage, name: TableName, target: str) -> bool:
    """True if the marker of the table folder has the identity of the Delta table at `target`, or one cannot be read."""
    try:
        content = read_marker(storage, f"{name.folder}/{MARKER}")
        found = read_table_log(storage.uri(target))
    except LakemirrorError:
        return True
    marker = parse_marker(content) if content is not None else None
    position = found.position if found is not None else None
    return marker is not None and position is not None and position.identity == marker.id


def _elsewhere(storage: Storage, name: TableName, target: str) -> Iterator[str]:
    """Where a table without schema folder may be: directly under Tables/, or in any schema."""
    places = [f"Tables/{name.table}"]
    try:
        listing = storage.list("Tables", lambda path: path.count("/") < 2 and not storage.exists(f"{path}/_delta_log"))
    except FileNotFoundError:
        return
    places += [path for path in sorted(listing.folders) if path.count("/") == 2 and path.endswith(f"/{name.table}")]
    yield from (place for place in places if place != target and storage.exists(f"{place}/_delta_log"))
