"""A numbered batch of several change files, published exactly once: for sources that repeat a batch after a crash.

    files written under `_…` names ─▶ the batch's plan, on the disk ─▶ a number for each file ─▶ the plan is done

A repeated batch finds its plan: files that are not published yet are published, the new files are deleted. The plan of
a query is one small file in the table folder, `_batch-<query>.json`; it holds the last batch alone, and the run that
numbered it: a stream that starts with a new checkpoint counts from 0 again, and its rows are not those of before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from lakemirror.errors import LakemirrorError
from lakemirror.failpoints import reach
from lakemirror.publisher.change_writer import token_of
from lakemirror.publisher.folders.table_folder import TableFolder, write_whole
from lakemirror.publisher.sequence import Sequence as Numbers
from lakemirror.publisher.table_writer import Prepared, TableWriter

_SAME, _NEW, _UNSAID = "same", "new", "unsaid"


@dataclass(frozen=True)
class Run:
    """Who numbered a batch. `stream`: the id that the stream's checkpoint holds; empty if unknown.

    `word`: what the user calls the run; another word than before means that another run goes on under the same name.
    """

    stream: str = ""
    word: str = ""

    def relation(self, last: _Plan, batch: int) -> str:
        """Whether a batch is of the run that made the last plan (`_SAME`), of a new one (`_NEW`), or of a new one that
        nobody announced (`_UNSAID`). Within a run numbers only grow, and the last one may be repeated.
        """
        known = bool(self.stream and last.stream)
        same = self.stream == last.stream if known else self.word == last.word
        if same and batch >= last.batch:
            return _SAME
        return _NEW if self.word != last.word else _UNSAID


@dataclass(frozen=True)
class _Plan:
    """What one batch of a query publishes: names of prepared files, and the first of their numbers."""

    query: str
    batch: int
    names: tuple[str, ...]
    first: int
    done: bool
    stream: str = ""
    word: str = ""


def publish_batch(table: TableWriter, query: str, batch: int, files: Sequence[Prepared], run: Run | None = None) -> int:
    """Publishes the files of one batch in their order, and returns how many; 0 where the batch was published before.

    `query` identifies whoever numbers the batches; its numbers only grow within a `run`. Called again with the same
    batch after a crash, it publishes what is missing. Files that are not needed are deleted.
    `stream-restarted` for a batch of a new run that nobody announced.
    """
    numbers, _ = table.opened()
    run = run or Run()
    with numbers.locked():
        last = _read(table.place, query)
        published = 0
        if last is not None and not last.done:
            published = _finish(table, numbers, last)
        relation = run.relation(last, batch) if last is not None else _NEW
        if last is not None and (relation == _UNSAID or (relation == _SAME and last.batch == batch)):
            discard(table, [file for file in files if file.name not in last.names])
            if relation == _UNSAID:
                raise _restarted(table, last, batch)
            return published
        newest = numbers.newest()
        names = tuple(table.renewed(file, newest) for file in files)
        stream = run.stream or (last.stream if last is not None and relation == _SAME else "")
        plan = _Plan(query, batch, names, newest + 1, False, stream, run.word)
        _write(table.place, plan)
        reach("batch.planned")
        return published + _finish(table, numbers, plan)


def _plan_name(query: str) -> str:
    return f"_batch-{hashlib.sha256(query.encode()).hexdigest()[:16]}.json"


def _restarted(table: TableWriter, last: _Plan, batch: int) -> LakemirrorError:
    message = (
        f"{table.name}: batch {batch} of the stream {last.query!r} is of another run than batch {last.batch}, which is "
        "published: its checkpoint is new, or older. Nothing of it was published"
    )
    return LakemirrorError("stream-restarted", message, table=str(table.name))


def publish_prepared(table: TableWriter, files: Sequence[Prepared]) -> int:
    """Publishes files in their order, once: for a source that does not repeat itself. No files make no table."""
    if not files:
        return 0
    numbers, _ = table.opened()
    with numbers.locked():
        for file in files:
            table.number(numbers, file)
    return len(files)


def discard(table: TableWriter, files: Sequence[Prepared]) -> None:
    """Deletes files that were prepared and not published."""
    for file in files:
        table.place.forget(file.name)


def abandon(table: TableWriter, query: str, files: Sequence[Prepared]) -> None:
    """Deletes what was prepared for a batch that failed, but for what its plan names: the next batch publishes that."""
    plan = _read(table.place, query)
    planned = plan.names if plan is not None and not plan.done else ()
    discard(table, [file for file in files if file.name not in planned])


def _finish(table: TableWriter, numbers: Numbers, plan: _Plan) -> int:
    """Publishes what of a plan is not published yet; the caller holds the lock.

    Where others take a planned number, which a lock prevents where there is one, the rest is planned again: after a
    crash the plan alone tells which file has a number.
    """
    published = place = 0
    while place < len(plan.names):
        name, number = plan.names[place], plan.first + place
        found = numbers.find(number) if table.place.is_kept(name) else None
        if found is not None and token_of(table.place, found) == name:
            table.place.forget(name)
        elif table.place.is_kept(name):  # a file loses this name once it has a number
            if found is not None or numbers.newest() >= number or not _takes(numbers, name, number):
                plan, place = _planned_again(table, numbers, plan, plan.names[place:]), 0
                continue
            published += 1
            reach("batch.file-published")
        place += 1
    _write(table.place, replace(plan, done=True))
    return published


def _takes(numbers: Numbers, name: str, number: int) -> bool:
    """True where the file got this number, False where another program did. `publish-conflict`: the folder is gone."""
    try:
        numbers.take(name, number)
    except LakemirrorError as error:
        if error.code != "publish-conflict" or not numbers.folder.is_there():
            raise
        return False
    return True


def _planned_again(table: TableWriter, numbers: Numbers, plan: _Plan, left: Sequence[str]) -> _Plan:
    """The plan of the files that have no number yet: the next numbers, in the types that the table has by now."""
    newest = numbers.newest()
    names = tuple(table.retyped(name, plan.first - 1, newest) for name in left)
    again = replace(plan, names=names, first=newest + 1)
    _write(table.place, again)
    for name in {*left} - {*names}:
        table.place.forget(name)
    return again


def _read(folder: TableFolder, query: str) -> _Plan | None:
    with suppress(FileNotFoundError), folder.open(_plan_name(query)) as file:
        kept = json.loads(file.read())
        if kept["query"] == query:
            return _Plan(**{**kept, "names": tuple(kept["names"])})
    return None


def _write(folder: TableFolder, plan: _Plan) -> None:
    write_whole(folder, _plan_name(plan.query), json.dumps(asdict(plan)).encode())
