"""By which options the files of a table were applied, as the properties of the table record it (history.md).

properties ─▶ options of earlier files, options of the last ones ─▶ phases: files in a row with one meaning
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lakemirror.landing_zone.metadata import UPSERT_BY_DEFAULT
from lakemirror.landing_zone.table_options import HARD, IGNORE, LATE_DAYS, SCD2, SOFT
from lakemirror.mirror.history.row_options import OPTIONS_PROPERTY, earlier_kept
from lakemirror.verify.archived_files import AppliedFile, NotComparable

_TRACK = "lakemirror.track"
FILE_BITS = 40
"""So many bits of a place number the rows of a file."""


@dataclass(frozen=True)
class Meaning:
    """What changes of a table mean. `versions`: it has a table of versions. `track`: the columns whose changes begin
    one; empty: all but the sequence. `upsert_by_default`: a row without a marker is an upsert."""

    keys: tuple[str, ...]
    deletes: str = HARD
    sequence: tuple[str, ...] = ()
    versions: bool = False
    track: tuple[str, ...] = ()
    upsert_by_default: bool = False

    @property
    def is_soft(self) -> bool:
        """True if deleted rows stay."""
        return self.deletes == SOFT

    @property
    def inserts_replace(self) -> bool:
        """True if marker 0 is an upsert."""
        return bool(self.sequence) or self.versions

    @property
    def is_plain(self) -> bool:
        """True if changes fold as in a table without options."""
        return self.deletes == HARD and not self.inserts_replace

    @property
    def remembers(self) -> bool:
        """True if there is a table that remembers changes for late ones."""
        return bool(self.sequence) and (self.deletes != IGNORE or self.versions)


@dataclass(frozen=True)
class Phase:
    """Changes that were applied by one set of options. `end`: the place after the last of them. `purged`: then the
    deleted rows were removed. `remembered`: the columns of what is remembered of them for late changes; None: all.
    `forgets`: deletes that were remembered before it act on none of them."""

    meaning: Meaning
    end: int = 1 << 63
    purged: bool = False
    remembered: frozenset[str] | None = frozenset()
    forgets: bool = False


def phases_of(
    configuration: Mapping[str, str], files: Sequence[AppliedFile], keys: Sequence[str], spelled: Mapping[str, str],
    *, in_order: bool,
) -> tuple[Phase, ...]:  # fmt: skip
    """The phases of all files, one at least. `configuration`: the properties of the table. `spelled`: its columns, by
    their names in lower case. `in_order`: the numbers of the files are the order in which they were applied.

    NotComparable where it is not known which files were applied by which options.
    """
    track = json.loads(configuration.get(_TRACK, "[]"))

    def meaning(options: Mapping[str, Any]) -> Meaning:
        names = [[spelled.get(name.lower(), name) for name in each] for each in (options.get("sequence", ()), track)]
        versions = any(each["mode"] == SCD2 for each in options.get("history", ()))
        of_keys = tuple(spelled.get(name.lower(), name) for name in keys)
        upserts = bool(options.get(UPSERT_BY_DEFAULT))
        return Meaning(of_keys, options.get("deletes", HARD), tuple(names[0]), versions, tuple(names[1]), upserts)

    found: list[Phase] = []
    for each in earlier_kept(configuration):
        if each["options"] is None:
            raise NotComparable("options were changed so often that those of the first files are not known any more")
        end = sum(file.number <= each["last"] for file in files) << FILE_BITS
        found.append(Phase(meaning(each["options"]), end, each.get("purged", False)))
    found.append(Phase(meaning(json.loads(configuration.get(OPTIONS_PROPERTY, "{}")))))
    phases = [
        phase for phase, after in zip(found, [*found[1:], None], strict=True)
        if after is None or phase.purged or phase.meaning != after.meaning
    ]  # fmt: skip
    if len(phases) > 1 and not in_order:
        raise NotComparable("its options were changed, and the archive does not show in which order the files came")
    return _with_remembered(phases)


def fewest_late_days(configuration: Mapping[str, str]) -> int:
    """For how many days at least what late changes need was always remembered."""
    earlier = [each["options"] or {} for each in earlier_kept(configuration)]
    kept = [*earlier, json.loads(configuration.get(OPTIONS_PROPERTY, "{}"))]
    days = (int(each.get("late_days", LATE_DAYS)) for each in kept if each.get("sequence"))
    return min(days, default=LATE_DAYS)


def _with_remembered(phases: Sequence[Phase]) -> tuple[Phase, ...]:
    """The phases with what is remembered: the table that remembers keeps its columns. What was last by several columns
    was last by the first of them."""
    known: frozenset[str] | None = frozenset()
    found: list[Phase] = []
    for phase in phases:
        meaning, before = phase.meaning, found[-1].meaning if found else Meaning(())
        by_this = before.sequence[: len(meaning.sequence)] == meaning.sequence != ()
        forgets = not by_this or IGNORE in (before.deletes, meaning.deletes)
        if meaning.remembers and known is not None:
            known = None if meaning.versions else known | {*meaning.keys, *meaning.sequence}
        found.append(replace(phase, remembered=known, forgets=forgets))
    return tuple(found)
