"""A numbered batch of several change files, published exactly once: for sources that repeat a batch after a crash.

    files written under `_…` names ─▶ the batch's plan, on the disk ─▶ a number for each file ─▶ the plan is done

A batch that comes again finds its plan: what was not published yet is published, the new files are deleted. The plan of
a query is one small file in the table folder, `_batch-<query>.json`; it holds the last batch alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.errors import LakemirrorError
from lakemirror.failpoints import reach
from lakemirror.publisher import sequence

if TYPE_CHECKING:
    from lakemirror.publisher.landing import LandingTable

TOKEN = "lakemirror.file"  # in a file's footer: the name under which it was written


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
    path = table.folder / f"_batch-{hashlib.sha256(query.encode()).hexdigest()[:16]}.json"
    with numbers.locked():
        last = _read(path, query)
        published = 0
        if last is not None and not last.done:
            published = _finish(numbers, last, path)
        if last is not None and last.batch >= batch:
            discard(table, [file for file in files if file.name not in last.names])
            return published
        plan = _Plan(query, batch, tuple(file.name for file in files), numbers.newest() + 1, False)
        _write(path, plan)
        reach("batch.planned")
        return published + _finish(numbers, plan, path)


def publish_prepared(table: LandingTable, files: Sequence[Prepared]) -> int:
    """Publishes files in their order, once: for a source that does not repeat itself."""
    numbers, _ = table.opened()
    with numbers.locked():
        for file in files:
            numbers.take(table.folder / file.name)
    return len(files)


def discard(table: LandingTable, files: Sequence[Prepared]) -> None:
    """Deletes files that were prepared and not published."""
    for file in files:
        (table.folder / file.name).unlink(missing_ok=True)


def _finish(numbers: sequence.Sequence, plan: _Plan, path: Path) -> int:
    """Publishes what of a plan is not published yet; the caller holds the lock."""
    published = 0
    for number, name in enumerate(plan.names, start=plan.first):
        temporary = numbers.folder / name
        if not temporary.exists():
            continue  # a file loses this name once it has a number
        found = numbers.find(number)
        if found is not None and _token(found) == name:
            temporary.unlink(missing_ok=True)
            continue
        try:
            numbers.take(temporary, number if found is None and number > numbers.newest() else None)
        except LakemirrorError as error:
            if error.code != "publish-conflict" or not numbers.folder.is_dir():
                raise
            numbers.take(temporary)  # another program took the number
        published += 1
        reach("batch.file-published")
    _write(path, replace(plan, done=True))
    return published


def _token(path: Path) -> str:
    try:
        kept = pq.read_metadata(path).metadata or {}
    except (OSError, pa.ArrowException):
        return ""
    return bytes(kept.get(TOKEN.encode(), b"")).decode()


def _read(path: Path, query: str) -> _Plan | None:
    with suppress(FileNotFoundError):
        kept = json.loads(path.read_bytes())
        if kept["query"] == query:
            return _Plan(**{**kept, "names": tuple(kept["names"])})
    return None


def _write(path: Path, plan: _Plan) -> None:
    sequence.write_whole(path, json.dumps(asdict(plan)).encode())


__all__ = ["TOKEN", "Prepared", "discard", "publish_batch", "publish_prepared"]
