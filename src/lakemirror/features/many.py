"""Turns a request into wishes for tables: a client's needs, a statement, a folder of many tables."""

from __future__ import annotations

import re

from lakemirror.delta.feature_names import features_of, implied
from lakemirror.delta.log import Snapshot
from lakemirror.delta.log_folder import tables_below
from lakemirror.errors import LakemirrorError
from lakemirror.failures import coded
from lakemirror.features.catalogue import BY_NAME, dependents
from lakemirror.features.compatibility import Client, blocking
from lakemirror.features.plan import Wish
from lakemirror.storage.place import Place, place

_STATEMENT = re.compile(
    r"\s*ALTER\s+TABLE\s+(?P<table>.+?)\s+DROP\s+FEATURE\s+(?P<feature>`[^`]+`|[\w.-]+)"
    r"(?P<truncate>\s+TRUNCATE\s+HISTORY)?\s*;?\s*",
    re.IGNORECASE | re.DOTALL,
)


def tables_of(path: str | Place) -> list[Place]:
    """The Delta tables of a path, in order of name: the path itself, or all tables below it.

    A folder that cannot be listed is among them, so that it is reported like a table that cannot be read. Errors:
    `table-unreadable` if there is no table, `storage-unavailable` if the path itself cannot be listed.
    """
    try:
        folder = place(path).absolute()
        if (folder / "_delta_log").is_dir():
            return [folder]
        top = folder / "Tables" if (folder / "Tables").is_dir() else folder
        found = sorted(tables_below(top)) if top.is_dir() else []
    except OSError as failure:
        raise coded(failure) from failure
    if not found:
        raise LakemirrorError("table-unreadable", f"there is no Delta table in {folder}", table=str(folder))
    return found


def wish_for(snapshot: Snapshot, wanted: list[Client], mode: str) -> Wish:
    """The features to drop so that these clients can read a table, or write it.

    If one of them writes and does not know checkpointProtection, that is dropped too, as soon as the retention allows.
    """
    present = features_of(snapshot.protocol)
    gone = set(blocking(snapshot, wanted, mode)) & present
    writers = [client for client in wanted if mode == "write"]
    numbers_only = [client for client in writers if not client.writer_features]
    for client in numbers_only:
        gone -= implied(client.reader, client.writer)
    if all(client.writer_features for client in writers):  # what a number implies may go by listing the rest
        gone -= {name for name in gone if name not in BY_NAME}
    for name in sorted(gone):
        gone.update(dependents(name, present))
    unprotect = any("checkpointProtection" not in client.writer_features for client in writers)
    gone.discard("checkpointProtection" if unprotect else "")
    return Wish(tuple(sorted(gone)), unprotect=unprotect, as_numbers=bool(numbers_only))


def parse_statement(text: str) -> tuple[Place, Wish]:
    """The table and the wish of `ALTER TABLE <table> DROP FEATURE <feature> [TRUNCATE HISTORY]`.

    A table is a path, quoted or not, with or without `delta.` before it. Raises `statement-invalid`.
    """
    match = _STATEMENT.fullmatch(text)
    if match is None:
        hint = None
        if text.split(None, 1)[:1] and text.split(None, 1)[0].lower() in ("select", "with"):
            hint = "This command drops features. `lakemirror tables DB TABLE` prints how each tool queries a table."
        raise LakemirrorError("statement-invalid", f"this is no statement to drop a feature: {text.strip()}", hint=hint)
    table = match["table"].strip()
    quoted = re.fullmatch(r"(?:delta\.)?[`'\"](.+)[`'\"]", table, re.IGNORECASE)
    return place(quoted[1] if quoted else table), Wish((match["feature"].strip("`"),), bool(match["truncate"]))
