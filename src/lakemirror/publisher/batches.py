"""A numbered batch of several change files, published exactly once: for sources that repeat a batch after a crash.

    files written under `_…` names ─▶ the batch's plan, on the disk ─▶ a number for each file ─▶ the plan is done

A repeated batch finds its plan: files that are not published yet are published, the new files are deleted. The plan of
a query is one small file in the table folder, `_batch-<query>.json`; it holds the last batch alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from lakemirror.errors import LakemirrorError
from lakemirror.failpoints import reach
from lakemirror.publisher.change_writer import token_of
from lakemirror.publisher.sequence import Sequence as Numbers
from lakemirror.publisher.table_folder import TableFolder, write_whole

if TYPE_CHECKING:
    from lakemirror.publisher.landing_table import LandingTable


@dataclass(frozen=True)
class Prepared:
    """A complete change file that has no number yet: its name in the table folder, its rows."""

    name: str
    rows: int


@dataclass(frozen=True)
class _Plan:
    """What one batch of a query publishes: names of prepared files, and the first of their numbers."""

    query: str
    batch: int
    names: tuple[str, ...]
    first: int
    done: bool


def publish_batch(table: LandingTable, query: str, batch: int, files: Sequence[Prepared]) -> int:
    """Publishes the files of one batch in their order, and returns how many; 0 where the batch was published before.

    `query` identifies whoever numbers the batches; its numbers only grow. Called again with the same batch after a
    crash, it publishes what is missing. Files that are not needed are deleted.
    """
    numbers, _ = table.opened()
    plan_name = f"_batch-{hashlib.sha256(query.encode()).hexdigest()[:16]}.json"
    with numbers.locked():
        last = _read(table.place, plan_name, query)
        published = 0
        if last is not None and not last.done:
            published = _finish(numbers, last, plan_name)
        if last is not None and last.batch >= batch:
            discard(table, [file for file in files if file.name not in last.names])
            return published
        plan = _Plan(query, batch, tuple(file.name for file in files), numbers.newest() + 1, False)
        _write(table.place, plan_name, plan)
        reach("batch.planned")
        return published + _finish(numbers, plan, plan_name)


def publish_prepared(table: LandingTable, files: Sequence[Prepared]) -> int:
    """Publishes files in their order, once: for a source that does not repeat itself."""
    numbers, _ = table.opened()
    with numbers.locked():
        for file in files:
            numbers.take(file.name)
    return len(files)


def discard(table: LandingTable, files: Sequence[Prepared]) -> None:
    """Deletes files that were prepared and not published."""
    for file in files:
        table.place.forget(file.name)


def _finish(numbers: Numbers, plan: _Plan, plan_name: str) -> int:
    """Publishes what of a plan is not published yet; the caller holds the lock."""
    published = 0
    for number, name in enumerate(plan.names, start=plan.first):
        if not numbers.folder.is_kept(name):
            continue  # a file loses this name once it has a number
        found = numbers.find(number)
        if found is not None and token_of(numbers.folder, found) == name:
            numbers.folder.forget(name)
            continue
        try:
            numbers.take(name, number if found is None and number > numbers.newest() else None)
        except LakemirrorError as error:
            if error.code != "publish-conflict" or not numbers.folder.is_there():
                raise
            numbers.take(name)  # another program took the number
        published += 1
        reach("batch.file-published")
    _write(numbers.folder, plan_name, replace(plan, done=True))
    return published


def _read(folder: TableFolder, name: str, query: str) -> _Plan | None:
    with suppress(FileNotFoundError), folder.open(name) as file:
        kept = json.loads(file.read())
        if kept["query"] == query:
            return _Plan(**{**kept, "names": tuple(kept["names"])})
    return None


def _write(folder: TableFolder, name: str, plan: _Plan) -> None:
    write_whole(folder, name, json.dumps(asdict(plan)).encode())


__all__ = ["Prepared", "discard", "publish_batch", "publish_prepared"]
