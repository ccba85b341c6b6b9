"""Data files made of row groups that were encoded by publishers (`copy_chunks`): their bytes, and a footer of ours.

Form, Piece ─▶ one open file per form ─▶ `add` actions, with statistics of the rows
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

from lakemirror.delta import exact_json
from lakemirror.delta.data_files import logged_path, new_name
from lakemirror.delta.schema import Column
from lakemirror.delta.statistics import Tally
from lakemirror.engines.kernels.nested_types import indexed_leaves
from lakemirror.engines.kernels.write import CALENDAR, FileSizes, file_schema
from lakemirror.engines.row_work import Action, Target, TargetColumn
from lakemirror.errors import LakemirrorError
from lakemirror.parquet.copied_chunks import MAGIC, CopiedGroup, Footers
from lakemirror.storage.durable import NewFile, abandoned, completed, created, make_folders, writing
from lakemirror.storage.place import Place, place


class Form(NamedTuple):
    """How a file has the table's columns. `required`: those without NULL in their encoding. `partition`: its values."""

    columns: tuple[TargetColumn, ...]
    required: tuple[bool, ...]
    partition: tuple[str | None, ...]


class Piece(NamedTuple):
    """A row group, as a file of its own (`data`), and the counts of its rows."""

    group: CopiedGroup
    data: bytes
    tally: Tally


@lru_cache(64)
def footers_of(columns: tuple[TargetColumn, ...], required: tuple[bool, ...]) -> Footers:
    """The footers of files with these columns of the table."""
    fields = file_schema(Target("", columns))
    nullable = [each.with_nullable(not is_required) for each, is_required in zip(fields, required, strict=True)]
    return Footers(pa.schema(nullable), CALENDAR)


def counted_columns(target: Target) -> list[Column]:
    """The columns of the table's files, with their names there."""
    held = [each for each in target.columns if each.stored and each.name not in target.partition_columns]
    return [Column(each.physical_name, each.type) for each in held]


@dataclass
class _Copy:
    """A data file that is being written."""

    path: Place
    target: NewFile
    sink: Any
    below: str
    partition: Mapping[str, str | None]
    footers: Footers
    tally: Tally
    groups: list[CopiedGroup] = field(default_factory=list)
    size: int = len(MAGIC)


class CopiedFiles:
    """The data files with copied row groups: one that is open for each form, and the actions of complete ones."""

    def __init__(self, target: Target, sizes: FileSizes) -> None:
        self._target, self._sizes, self._folder = target, sizes, place(target.path)
        self._counted = counted_columns(target)
        self._indexed = {leaf.name for leaf in indexed_leaves(target)}
        self._open: dict[Form, _Copy] = {}
        self._made: list[Place] = []
        self._done: list[Action] = []

    def add(self, form: Form, piece: Piece) -> None:
        """Writes a row group."""
        copy = self._open.get(form)
        group = piece.group
        if copy is not None and self._is_full(copy, group):
            self._complete(form)
            copy = None
        if copy is None:
            if len(self._open) >= self._sizes.most_open:
                self._complete(max(self._open, key=lambda each: self._open[each].size))
            copy = self._open[form] = self._begun(form)
        stored = sum(chunk.stored for chunk in group.chunks)
        copy.sink.write(memoryview(piece.data)[len(MAGIC) : len(MAGIC) + stored])
        copy.groups.append(group._replace(begin=copy.size))
        copy.tally.join(piece.tally)
        copy.size += stored

    def close(self) -> list[Action]:
        """Completes all files. Returns the actions of all files."""
        for form in list(self._open):
            self._complete(form)
        return self._done

    def remove(self) -> None:
        """Removes all files, complete or not."""
        for copy in self._open.values():
            abandoned(copy.target)
            if copy.sink is not copy.target:
                with contextlib.suppress(OSError):
                    copy.sink.close()
        for path in self._made:
            with contextlib.suppress(OSError, LakemirrorError):
                path.unlink(missing_ok=True)

    def _is_full(self, copy: _Copy, group: CopiedGroup) -> bool:
        rows = sum(each.rows for each in copy.groups)
        return rows + group.rows // 2 > self._sizes.rows_a_file or copy.size >= self._sizes.bytes_a_file

    def _begun(self, form: Form) -> _Copy:
        physical = {column.name: column.physical_name for column in self._target.columns}
        names = [physical[name] for name in self._target.partition_columns]
        partition = dict(zip(names, form.partition, strict=True))
        below = new_name(partition, codec="", version=self._target.version)
        path = self._folder / below
        if "/" in below:
            make_folders(path.parent, self._folder)
        self._made.append(path)
        target = created(path)
        sink = writing(target)
        sink.write(MAGIC)
        return _Copy(
            path, target, sink, below, partition, footers_of(form.columns, form.required), Tally(self._counted)
        )

    def _complete(self, form: Form) -> None:
        copy = self._open[form]
        copy.sink.write(copy.footers.footer(copy.groups))
        if copy.sink is not copy.target:
            copy.sink.close()
        size, modified = completed(copy.target)
        del self._open[form]
        self._done.append(
            {
                "path": logged_path(copy.below),
                "partitionValues": dict(copy.partition),
                "size": size,
                "modificationTime": int(modified * 1000),
                "dataChange": True,
                "stats": exact_json.text(copy.tally.stats(self._indexed)),
            }
        )
