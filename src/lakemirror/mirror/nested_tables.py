"""No Delta table is made in another one's folder: VACUUM or a drop of the outer table would take the inner files.

The listing shows names that exclude each other (`zone.collisions`). A table whose folder is gone is still there until
it is dropped: `Tables/sales` when a schema `sales` has taken the name, or the other way round. The new table waits.
"""

from __future__ import annotations

from collections.abc import Iterator

from lakemirror.errors import LakemirrorError, TableError
from lakemirror.mirror.table_log import read_table_log
from lakemirror.storage import Storage


def check_no_table_around(storage: Storage, target: str, identity: str = "") -> None:
    """Raises an error if another Delta table is around `target` or in it. `identity`: of the table folder, whose own
    table, made under another default schema, is not in the way.

    LakemirrorError `concurrent-commit` if that table will be dropped, TableError `target-foreign` if it is not ours.
    """
    for place in tables_near(storage, target):
        found = read_table_log(storage.uri(place))
        if found is None or (identity and found.position is not None and found.position.identity == identity):
            continue
        where = "around" if target.startswith(f"{place}/") else "in"
        if found.position is None:
            raise TableError(
                "target-foreign",
                f"{place}, {where} the place of {target}, is a Delta table that lakemirror did not make",
                hint=f"Move {place} away, or rename the table folder.",
                file=place,
            )
        message = f"{place}, {where} the place of {target}, is a table that is not dropped yet"
        raise LakemirrorError("concurrent-commit", message)


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


__all__ = ["check_no_table_around", "tables_in", "tables_near"]
