"""What one commit will do, from footers, metadata and a snapshot; pure, opens no file.

ApplyStart + change files + snapshot ─▶ batch ─▶ metadata, protocol ─▶ units, target ─▶ engine ─▶ ApplyPlan
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lakemirror.delta.log import Snapshot
from lakemirror.delta.protocol import spark_checks
from lakemirror.delta.schema import from_delta
from lakemirror.engines.engine import LOCAL, Choice, Preference, choose
from lakemirror.engines.kernels import add_files
from lakemirror.engines.row_work import ChangeUnit, RowWork, Target
from lakemirror.engines.target import apply_target, target_of
from lakemirror.errors import LakemirrorError, TableError
from lakemirror.landing_zone.change_file import ChangeFile
from lakemirror.landing_zone.row_markers import INSERT, UPSERT
from lakemirror.mirror import table_commit
from lakemirror.mirror.apply_plan import ApplyPlan, ApplyStart, Limits
from lakemirror.mirror.next_batch import Batch, BatchFile
from lakemirror.mirror.position import current_position
from lakemirror.mirror.stored_columns import check_key_columns, missing_key_columns
from lakemirror.storage import Entry

ROWS_A_UNIT = 512 * 1024  # a larger change file is several units, of row groups


def plan(
    start: ApplyStart,
    files: Sequence[ChangeFile],
    snapshot: Snapshot | None,
    path: str,
    *,
    path_of: Callable[[str], str],
    limits: Limits,
    preference: Preference,
    trust_statistics: bool = True,
    trust_footers: bool = False,
    as_they_are: bool = True,
) -> ApplyPlan | TableError:
    """The plan of the next commit, of the longest run of `files` that one commit may take; or the error of the first
    file.

    `path`: the table's folder. `path_of` gives the local path of a file of the database. `trust_statistics` False:
    bounds of row markers are ignored. `as_they_are` False: no change file becomes a data file.

    LakemirrorError `concurrent-commit` where the table is not where `start` says. TableError where no batch can go
    into this table: `target-foreign`, `key-columns-missing-in-table`, `column-name-invalid`,
    `table-feature-unsupported`, `table-append-only`, `spark-needed`.
    """
    transactions = snapshot.transactions if snapshot else {}
    found = current_position({app: txn.version for app, txn in transactions.items()})
    table_commit.check_expected(start, found, path, exists=snapshot is not None)
    before = dict(snapshot.metadata.value) if snapshot else {}
    if before and not start.replaces:
        check_key_columns(missing_key_columns(before), path)
    columns = from_delta(before["schemaString"]) if snapshot and not start.replaces else ()
    start = table_commit.with_reserved(start, before, columns, path)
    batch, error = table_commit.next_of(start, files, columns, limits, trust_statistics)
    if batch is None:
        assert error is not None
        return error
    metadata = table_commit.metadata(before, start, batch, start.detection)
    version = snapshot.version + 1 if snapshot else 0
    target = replace(apply_target(target_of(path, metadata, start.key_columns)), version=version)
    units = tuple(unit for item in batch.files for unit in units_of(item, path_of))
    exists = snapshot is not None and not start.replaces
    mixed = bool(batch.rows) and not batch.append_only and bool(start.key_columns)
    table_commit.check_writable(metadata, snapshot, path, deletes=start.replaces)
    if exists and mixed:
        table_commit.check_kept(target)
    work = RowWork(
        target,
        units,
        batch.append_only,
        UPSERT if start.upsert_by_default else INSERT,
        tuple(snapshot.files.values()) if snapshot is not None and exists and mixed else (),
    )
    taken = as_they_are and _as_they_are(batch, metadata, target, path_of, trust_footers)
    return ApplyPlan(
        start,
        batch,
        snapshot,
        metadata,
        tuple(snapshot.files.values()) if snapshot is not None and start.replaces else (),
        work if batch.rows else None,
        taken,
        _choice(preference, units, metadata, path) if batch.rows and not taken else Choice(LOCAL, "no row is read"),
        error,
    )


def units_of(item: BatchFile, path_of: Callable[[str], str], most_rows: int = ROWS_A_UNIT) -> Iterator[ChangeUnit]:
    """The units of a change file: the file, or runs of its row groups if it has more than `most_rows` rows."""
    file, footer = item.file, item.file.footer
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    sizes = [max(0, group.total_byte_size) for group in groups]
    whole = ChangeUnit(
        path_of(file.path), file.entry.path, file.number, item.columns, footer.num_rows,
        max(sum(sizes), file.entry.size), file.constants, listed=_listed(file),
    )  # fmt: skip
    if footer.num_rows <= most_rows or len(groups) < 2:
        yield whole
        return
    begin = 0
    for first, end in _runs([group.num_rows for group in groups], most_rows):
        rows = sum(group.num_rows for group in groups[first:end])
        size = max(1, sum(sizes[first:end]))
        yield ChangeUnit(
            whole.path, whole.name, whole.number, whole.columns, rows, size, whole.constants,
            tuple(range(first, end)), begin, whole.listed,
        )  # fmt: skip
        begin += rows


def whole_unit(item: BatchFile, path_of: Callable[[str], str]) -> ChangeUnit:
    """A change file as one unit, as it becomes a data file."""
    file = item.file
    return ChangeUnit(
        path_of(file.path), file.entry.path, file.number, item.columns, file.footer.num_rows, file.entry.size,
        file.constants, listed=_listed(file),
    )  # fmt: skip


def _listed(file: ChangeFile) -> Entry | None:
    """The listed change file; None where its rows are read from a converted copy, which lakemirror wrote."""
    return None if file.read_from else file.entry


def _runs(rows: Sequence[int], most_rows: int) -> Iterator[tuple[int, int]]:
    """Neighbouring row groups with at most `most_rows` rows together (or one group): from and to."""
    first = total = 0
    for place, count in enumerate(rows):
        if total and total + count > most_rows:
            yield first, place
            first, total = place, 0
        total += count
    yield first, len(rows)


def _as_they_are(
    batch: Batch, metadata: Mapping[str, Any], target: Target, path_of: Callable[[str], str], trust_footers: bool
) -> bool:
    """True if, by its footers, every file of the batch may become a data file."""
    if not batch.append_only or not batch.rows or spark_checks(metadata) is not None:
        return False
    if not add_files.large_enough([item.file.entry.size for item in batch.files]):
        return False
    return all(
        add_files.unsupported_reason(whole_unit(item, path_of), target, item.file.footer, trust_footer=trust_footers)
        is None
        for item in batch.files
    )


def _choice(preference: Preference, units: Sequence[ChangeUnit], metadata: Mapping[str, Any], path: str) -> Choice:
    checks = spark_checks(metadata)
    needs = f"the table has the constraint {min(checks.expressions)}" if checks is not None else ""
    choice = choose(preference, sum(unit.bytes for unit in units), needs_spark=needs)
    if needs and choice.engine == LOCAL:
        raise LakemirrorError("spark-needed", f"{path}: {needs}, which only Spark can check")
    return choice


__all__ = ["plan", "units_of", "whole_unit"]
