"""What options of deletes and order mean for one commit of the mirrored table (history.md, sections 1 and 2); pure.

columns of the table ─▶ given: without ours ─▶ the batch ─▶ completed: with ours ─▶ ordered: what the row work does
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lakemirror.delta.log import Action, Snapshot
from lakemirror.delta.schema import Column, from_delta
from lakemirror.delta.statistics import parse_statistics, record_count
from lakemirror.engines.row_work import Ordering, RowWork
from lakemirror.errors import LakemirrorError, TableError
from lakemirror.landing_zone.findings import Warned
from lakemirror.landing_zone.metadata import UPSERT_BY_DEFAULT, TableMetadata
from lakemirror.landing_zone.reserved_columns import ADDED_COLUMNS, DELETED, DELETED_AT
from lakemirror.landing_zone.table_options import HARD, IGNORE, OPTION_NAMES, SOFT, TableOptions, as_declared
from lakemirror.mirror.next_batch import Batch
from lakemirror.mirror.schema_evolution import stored_names

DELETES_PROPERTY = "lakemirror.deletes"
OPTIONS_PROPERTY = "lakemirror.options"
"""The options as declared, with UPSERT_BY_DEFAULT where it is true: for a table that is dropped and comes back, whose
folder is gone then, and for `verify`."""
EARLIER_PROPERTY = "lakemirror.earlierOptions"
"""By which options earlier files were applied, in order: [{"last": 17, "options": {"deletes": "soft"}}]. `last`: the
number of the last of these files. `purged`: then the deleted rows were removed. `options` null: not known any more."""

RECORDS = frozenset({DELETES_PROPERTY, OPTIONS_PROPERTY, EARLIER_PROPERTY})
_MOST_EARLIER = 100  # changes of options

OWN_COLUMNS = (Column(DELETED, "boolean"), Column(DELETED_AT, "timestamp"))
OWN_NAMES = frozenset(column.name for column in OWN_COLUMNS)
_ADDED = frozenset(name.lower() for name in ADDED_COLUMNS)


@dataclass(frozen=True)
class RowOptions:
    """The options of one table. `columns`: all that it has before the batch. `may_have_dead`: it may have rows that are
    deleted and stay.
    """

    options: TableOptions
    columns: Sequence[Column]
    may_have_dead: bool

    @staticmethod
    def of(options: TableOptions, snapshot: Snapshot | None, columns: Sequence[Column]) -> RowOptions | None:
        """None for a table without such options. `snapshot`: of a table whose rows stay."""
        if options.deletes == HARD and not options.sequence:
            return None
        dead = options.deletes == SOFT and snapshot is not None and _may_have_dead(snapshot)
        return RowOptions(options, columns, dead)

    @property
    def given(self) -> Sequence[Column]:
        """The columns that the publisher made."""
        if self.options.deletes != SOFT:
            return self.columns
        return [column for column in self.columns if column.name not in OWN_NAMES]

    def completed(self, batch: Batch) -> Batch:
        """The batch with our columns, and append-only only if no insert can meet a row of its key."""
        is_append = batch.append_only and not self.may_have_dead and not self.options.sequence
        if self.options.deletes != SOFT:
            return replace(batch, append_only=is_append)
        by_name = {column.name: column for column in (*batch.columns, *OWN_COLUMNS)}
        names = dict.fromkeys([*(column.name for column in self.columns), *by_name])
        return replace(batch, append_only=is_append, columns=tuple(by_name[name] for name in names))

    def ordered(self, work: RowWork, table: str) -> RowWork:
        """The row work with these options. `table`: its name in messages.

        TableError `table-feature-unsupported` where a deleted row could not be written again.
        """
        target, options = work.target, self.options
        if options.deletes == SOFT and target.unwritten:
            column = target.unwritten[0]
            message = f"{table}: column {column.name!r} has the type {column.type[:80]}, which lakemirror cannot "
            raise TableError(
                "table-feature-unsupported", f"{message}write again, and deleted rows stay", table=table,
                column=column.name, hint="Drop the column, or declare other deletes than soft.",
            )  # fmt: skip
        names = {column.name.lower(): column.name for column in target.columns}
        sequence = tuple(names[name.lower()] for name in options.sequence)
        moment = time.time_ns() // 1000
        return replace(work, ordering=Ordering(options.deletes, sequence, moment, bool(sequence) or self.may_have_dead))


def check_none_added(metadata: Mapping[str, Any], table: str) -> None:
    """TableError `column-name-reserved` if a mirrored table, which has had no such options, has a column of the source
    with a name of ours. `metadata`: its `metaData` action; `table`: its name in messages."""
    own = OWN_NAMES if metadata["configuration"].get(DELETES_PROPERTY) == SOFT else frozenset()
    names = [each.name for each in from_delta(metadata["schemaString"])]
    taken = next((name for name in names if name.lower() in _ADDED and name not in own), None)
    if taken is not None:
        message = f"{table} has a column {taken!r} of the source, and lakemirror adds one with this name"
        hint = (
            "Take the option under lakemirror out of _metadata.json. Or rename the column at its source, delete the "
            "table folder, and publish it again."
        )
        raise TableError("column-name-reserved", message, hint=hint, table=table, column=taken)


def configuration_with(
    configuration: Mapping[str, str], declared: TableMetadata, before: Mapping[str, str], table: str, position: int
) -> dict[str, str]:
    """The table's properties with the record of its deletes and options. `before`: its properties where its rows stay;
    `position`: the number of the last file in them.

    TableError `deletes-mode-changed` for a table that keeps deleted rows and shall not any more.
    """
    options = declared.options
    if before.get(DELETES_PROPERTY) == SOFT != options.deletes:
        message = f"{table}: deletes were soft and are now {options.deletes} ({declared.file}), and the "
        raise TableError(
            "deletes-mode-changed", f"{message}table still has `{DELETED}`", table=table, file=declared.file
        )
    after = with_options(configuration, declared, before, position)
    if options.deletes != HARD or DELETES_PROPERTY in after:
        after[DELETES_PROPERTY] = options.deletes
    return after


def with_options(
    configuration: Mapping[str, str], metadata: TableMetadata, before: Mapping[str, str], position: int
) -> dict[str, str]:
    """A table's properties with the record of its options, now and for earlier files. `before`, `position`: as of
    `configuration_with`."""
    after = {name: value for name, value in configuration.items() if name not in (OPTIONS_PROPERTY, EARLIER_PROPERTY)}
    declared = {name: value for name, value in as_declared(metadata.options).items() if name in OPTION_NAMES}
    declared |= {UPSERT_BY_DEFAULT: True} if metadata.upsert_by_default else {}
    if declared:
        after[OPTIONS_PROPERTY] = json.dumps(declared)
    if before.get(OPTIONS_PROPERTY) != after.get(OPTIONS_PROPERTY):
        return after | with_earlier(before, position)
    return after | {name: before[name] for name in (EARLIER_PROPERTY,) if name in before}


def with_earlier(before: Mapping[str, str], position: int, *, purged: bool = False) -> dict[str, str]:
    """The record of earlier options once other ones follow, or `purged`: deleted rows are removed, after a file."""
    earlier = earlier_kept(before)
    if position > (earlier[-1]["last"] if earlier else 0):
        earlier.append({"last": position, "options": options_kept(before)})
    if purged and earlier:
        earlier[-1]["purged"] = True
    if len(earlier) > _MOST_EARLIER:
        earlier = earlier[1:]
        earlier[0]["options"] = None
    return {EARLIER_PROPERTY: json.dumps(earlier)} if earlier else {}


def options_kept(configuration: Mapping[str, str]) -> dict[str, Any]:
    """The options that a table was mirrored with, as `_metadata.json` has them; empty where they make no sense."""
    try:
        found = json.loads(configuration.get(OPTIONS_PROPERTY, "{}"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def earlier_kept(configuration: Mapping[str, str]) -> list[dict[str, Any]]:
    """The record of earlier options (EARLIER_PROPERTY). `table-unreadable` where it is not as lakemirror writes it."""
    with contextlib.suppress(ValueError, TypeError, LookupError, RecursionError):
        found: list[dict[str, Any]] = json.loads(configuration.get(EARLIER_PROPERTY, "[]"))
        if all(type(each["last"]) is int and isinstance(each["options"], dict | None) for each in found):
            return found
    hint = "Unset it: then all earlier files count as applied by the options of now."
    raise LakemirrorError("table-unreadable", f"the table property {EARLIER_PROPERTY} makes no sense", hint=hint)


def upserts_recorded(configuration: Mapping[str, str], position: int) -> list[tuple[int, bool | None]]:
    """Up to the file with which number a row without a marker was an upsert (True), or an insert; in order. None: not
    known any more."""
    earlier = [(each["last"], each["options"]) for each in earlier_kept(configuration)]
    found = [*earlier, (position, options_kept(configuration))]
    return [(last, None if its is None else bool(its.get(UPSERT_BY_DEFAULT))) for last, its in found]


def upserts_as_earlier(recorded: Sequence[tuple[int, bool | None]], now: bool) -> dict[str, str]:
    """The record of earlier options that says the same; empty where a row without a marker always was what it is."""
    if all(upserts == now for _, upserts in recorded):
        return {}
    options = [{"last": last, "options": {UPSERT_BY_DEFAULT: True} if its else {}} for last, its in recorded]
    return {EARLIER_PROPERTY: json.dumps(options)}


def another_sequence(before: Mapping[str, str], options: TableOptions, file: str) -> tuple[Warned, ...]:
    """A warning where the rows so far were ordered by another sequence. `before`: the table's properties; `file`: a
    change file of this apply."""
    kept, now = options_kept(before), options.sequence
    then = kept.get("sequence") or []
    if not then or not now or [each.lower() for each in then] == [each.lower() for each in now]:
        return ()
    forgets = ", and deletes that were remembered count no more" if _orders_otherwise(kept, now) else ""
    message = f"the sequence was {', '.join(then)}, and is {', '.join(now)}: rows are compared by their "
    return (Warned("sequence-changed", f"{message}values in it{forgets}", file),)


def ordered_since(before: Mapping[str, str], sequence: Sequence[str], position: int) -> int:
    """The number of the last file whose deletes say nothing in the order of this sequence, 0 if there is none: a row
    that is newer than them may be older by it. `before`, `position`: as of `configuration_with`. What another writer
    has put there says nothing of any file."""
    try:
        earlier = [*earlier_kept(before), {"last": position, "options": options_kept(before)}]
        options = [each["options"] or {} for each in earlier]
        next_ones = [*(each.get("sequence") or [] for each in options[1:]), sequence]
        changes = zip(earlier, options, next_ones, strict=True)
        return max((int(each["last"]) for each, its, after in changes if _orders_otherwise(its, after)), default=0)
    except (LakemirrorError, TypeError, AttributeError):
        return position


def _orders_otherwise(options: Mapping[str, Any], sequence: Sequence[str]) -> bool:
    """False if what was last by these options was last by the sequence: it was the same, or had more columns."""
    then = [name.lower() for name in options.get("sequence") or []]
    return then[: len(sequence)] != [name.lower() for name in sequence] or options.get("deletes") == IGNORE


def _may_have_dead(snapshot: Snapshot) -> bool:
    """False if the statistics of all data files say that no row is a deleted one."""
    name = stored_names(snapshot.metadata.value).get(DELETED_AT)
    return name is not None and any(_has_times(add, name) for add in snapshot.files.values())


def _has_times(add: Action, name: str) -> bool:
    rows, nulls = record_count(add), (parse_statistics(add).get("nullCount") or {}).get(name)
    return rows is None or nulls != rows
