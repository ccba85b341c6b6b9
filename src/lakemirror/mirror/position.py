"""A mirrored table's position, as the table itself records it: its `txn` action, and the manifest beside it.

A Delta `txn` action holds an application id and a number. The application id names the identity of the table folder
and its generation, which grows with every recreation: the highest generation is the current one, whatever clocks say.
The number is the last applied file's (contract section 9). Where each partition folder has a sequence of its own, a
further application id each, with the folder at its end, holds the last number of that sequence.

    lakemirror:<generation>:<identity>              files applied so far
    lakemirror:<generation>:<identity>:region=eu    last number of that partition
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakemirror.landing_zone.metadata import Warned

_PREFIX = "lakemirror"
_CONVERTED = "value-converted"
_LINE = "\n"
_NOTED = ("column-mapping", "column-added-again", "separator-doubtful", "text-looks-typed")


@dataclass(frozen=True)
class Position:
    """The last applied file of one table folder; `number` 0 where none is applied."""

    identity: str
    generation: int
    number: int

    @property
    def app_id(self) -> str:
        return f"{_PREFIX}:{self.generation}:{self.identity}"

    def partition_app_id(self, partition: str) -> str:
        return f"{self.app_id}:{partition}"


def current_position(transactions: Mapping[str, int]) -> Position | None:
    """The table's position from its `txn` actions (number by application id); None where none is ours."""
    found: Position | None = None
    for app_id, number in transactions.items():
        position = parse_app_id(app_id, number)
        if position is not None and (found is None or position.generation > found.generation):
            found = position
    return found


def parse_app_id(app_id: str, number: int) -> Position | None:
    """The position in a `txn` action; None for another application's, and for a partition's."""
    prefix, _, rest = app_id.partition(":")
    generation, _, identity = rest.partition(":")
    if prefix != _PREFIX or not generation.isdigit() or not identity or ":" in identity:
        return None
    return Position(identity, int(generation), number)


def sequences(transactions: Mapping[str, int], position: Position) -> dict[str, int]:
    """The last number of each partition folder, from a table's `txn` actions."""
    prefix = f"{position.app_id}:"
    return {app[len(prefix) :]: number for app, number in transactions.items() if app.startswith(prefix)}


@dataclass(frozen=True)
class Manifest:  # 13 fields: the members of the JSON object in a commit
    """What one apply covered, as its commit records it (`userMetadata`).

    `first` and `last` are the numbers of the batch's files. `file` (its path below the table folder), `size` and
    `modified` (nanoseconds) describe the last one, to know it again; in a store its ETag, `tag`, does. `key_columns` as
    declared. `rows` and `bytes` count all applies of this identity, `notes`: values of its files that the table could
    not keep as they were. `detection`: the table's record of how its files are found, as in its property
    (`applied_record.py`).
    """

    identity: str
    first: int
    last: int
    file: str
    size: int
    modified: int
    key_columns: tuple[str, ...] = ()
    rows: int = 0
    bytes: int = 0
    committed: float = 0.0  # of the newest change file: seconds since the epoch, 0 unknown
    notes: tuple[str, ...] = ()
    detection: str = ""
    tag: str = ""

    def to_json(self) -> str:
        content = {**self.__dict__, "key_columns": list(self.key_columns), "notes": list(self.notes)}
        if not self.tag:
            del content["tag"]
        return json.dumps({_PREFIX: content}, separators=(",", ":"))


def with_notes(before: Sequence[str], warnings: Sequence[Warned], most: int) -> tuple[str, ...]:
    """The notes of a manifest: the earlier ones and the new warnings, each once with its first file.

    A note is a warning as a manifest keeps it: `code: message`, a line break, the file. `value-converted` goes without
    its code; notes of older versions have no file.
    """
    kept = {note.partition(_LINE)[0]: note for note in before}
    for warned in warnings:
        text = warned.message if warned.code == _CONVERTED else f"{warned.code}: {warned.message}"
        text = text.replace(_LINE, " ")
        kept.setdefault(text, f"{text}{_LINE}{warned.file}")
    return tuple(kept.values())[:most]


def from_note(note: str) -> Warned:
    """The warning that a manifest keeps."""
    text, _, file = note.partition(_LINE)
    code, _, message = text.partition(": ")
    return Warned(code, message, file) if code in _NOTED else Warned(_CONVERTED, text, file)


def parse_manifest(text: Any) -> Manifest | None:
    """The manifest in a commit's `userMetadata`; None where there is none of ours."""
    try:
        content = json.loads(text)[_PREFIX]
        lists = {name: tuple(content.get(name, ())) for name in ("key_columns", "notes")}
        return Manifest(**{**content, **lists})
    except (TypeError, ValueError, KeyError, AttributeError):
        return None
