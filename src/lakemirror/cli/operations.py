"""`lakemirror pause|resume|resync|replay|restore DB TABLE`: acts on one table, while an engine runs or not. No JVM."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from lakemirror.cli.options import Database, StorageOptions
from lakemirror.cli.printable import printable
from lakemirror.errors import LakemirrorError

if TYPE_CHECKING:
    from lakemirror.api import MirroredDatabase
    from lakemirror.mirror.operations import Outcome
    from lakemirror.storage import Place

Table = Annotated[str, typer.Argument(help="The table, as TABLE or SCHEMA.TABLE.")]


def pause(database: Database, table: Table, storage: StorageOptions = None) -> None:
    """Stop applying one table's change files, until `resume`. Other tables and all publishers continue.

    A running commit ends first. The pause also holds for engines that are started later.

    Example: lakemirror pause shop orders
    """
    _act(database, lambda opened: opened.pause(table))


def resume(database: Database, table: Table, storage: StorageOptions = None) -> None:
    """End a pause: the table continues at its position.

    Example: lakemirror resume shop orders
    """
    _act(database, lambda opened: opened.resume(table))


def resync(
    database: Database,
    table: Table,
    purge_deleted: Annotated[
        bool,
        typer.Option("--purge-deleted", help="Only remove the rows that soft deletes keep, at once; the rest stays."),
    ] = False,
    storage: StorageOptions = None,
) -> None:
    """Make a table again from its applied files: after another program's RESTORE, or if its rows are in doubt.

    Readers see the old rows until the next pass of `sync` or `run` replaces them. If applied files are gone, nothing is
    changed: then the publisher must send the table again.

    Example: lakemirror resync shop orders

    Example: lakemirror resync shop orders --purge-deleted
    """
    _act(database, lambda opened: opened.resync(table, purge_deleted=purge_deleted))


def replay(
    database: Database,
    table: Table,
    file: Annotated[str, typer.Argument(help="Name of one file in _QuarantinedFiles; empty: all of them.")] = "",
    storage: StorageOptions = None,
) -> None:
    """Apply quarantined files in their order, once the cause is fixed: a setting is raised, or the file is corrected.

    A table that is past the file's number is made again from its applied files, as by `resync`.

    Example: lakemirror replay shop orders
    """
    _act(database, lambda opened: opened.replay(table, file))


def restore(database: Database, table: Table, storage: StorageOptions = None) -> None:
    """Move a dropped table back to Tables/. Its publisher begins again at number 1.

    Example: lakemirror restore shop orders
    """
    _act(database, lambda opened: opened.restore(table))


def _act(database: Place, act: Callable[[MirroredDatabase], Outcome]) -> None:
    from lakemirror.api import MirroredDatabase

    if not database.is_dir():
        raise LakemirrorError("database-missing", f"there is no folder {database}")
    done = act(MirroredDatabase(database))
    print(printable(done.text))
