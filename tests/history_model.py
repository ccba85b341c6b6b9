"""The contract of history in plain Python: what every table of a table folder must hold after change files.

change files, in order of arrival ─▶ events of each key, in the order of the contract ─▶ the current rows, every change,
the versions with their intervals

Nothing here is kept from file to file: each table is computed from all events anew. So with a sequence the result does
not depend on the order of arrival by construction, and the engine, which sees a few files at a time, is held to that.
Memory has no end here: `late_days` is not modelled.

A table folder that is made again begins a new story. Its events order among themselves alone, and its versions are cut
off where those of the folder before end: right after the highest sequence that is in the table of versions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from tests.model import Row, canonical

INSERT, UPDATE, DELETE, UPSERT = 0, 1, 2, 4
OPERATIONS = {INSERT: "insert", UPDATE: "update", DELETE: "delete", UPSERT: "upsert"}
DELETED, DELETED_AT = "__deleted", "__deleted_at"
START_AT, END_AT = "__START_AT", "__END_AT"
APPLY_TIME = "the time of the apply"  # the model knows no clock: readers replace the value of a table by this
_TICK = timedelta(microseconds=1)


@dataclass(frozen=True)
class Change:
    """One row of a change file. `marker` None: the file says none. `at`: its `__sourceTimestamp__`."""

    marker: int | None
    row: Row
    unchanged: tuple[str, ...] = ()
    at: datetime | None = None


@dataclass(frozen=True)
class ChangeFile:
    """`columns`: those of the file, without ours. `modified`: when it was last written."""

    name: str
    columns: tuple[str, ...]
    changes: tuple[Change, ...]
    modified: datetime = datetime(2026, 1, 1)


@dataclass(frozen=True)
class Event:
    """A change that has arrived; its row is complete unless it is a delete. `late`: its key had a higher sequence."""

    marker: int
    key: tuple[Any, ...]
    row: dict[str, Any]
    file: str
    place: int
    modified: datetime
    at: datetime | None
    unchanged: tuple[str, ...] = ()
    late: bool = False


class SequenceNull(Exception):
    """A change of a table with a sequence has none."""


class PartialRowMissing(Exception):
    """A partial row for a key that has no row."""


@dataclass
class HistoryModel:
    """The tables of one table folder. `options`: as under `lakemirror` in `_metadata.json`. `null_if_missing`: what a
    partial row leaves out is NULL where its key has no row."""

    keys: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    upsert_by_default: bool = False
    null_if_missing: bool = False
    columns: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    earlier_columns: list[str] = field(default_factory=list)
    earlier_events: list[Event] = field(default_factory=list)
    earlier_versions: list[dict[str, Any]] = field(default_factory=list)
    since: tuple[Any, ...] = ()
    first_versions: list[Event] = field(default_factory=list)
    rows_beside: dict[Any, list[dict[str, Any]]] = field(default_factory=dict)

    def switched_on(self, options: Mapping[str, Any], moment: datetime) -> None:
        """Versions begin after these files, at `moment` or at the sequences of the rows. Of several rows of a key that
        inserts made, the last is the version; the others stay in the table until the key changes."""
        rows = {key: self._rows_after(events) for key, events in self._by_key().items()}
        self.options = options
        for key, its in rows.items():
            events = [Event(UPSERT, key, row, "", 0, moment, None) for row in its]
            events.sort(key=self._order)
            self.first_versions += events[-1:]
            self.rows_beside[key] = [event.row for event in events[:-1]]
        self.events = []

    def apply(self, file: ChangeFile) -> None:
        """Takes the next file that arrives."""
        self.columns += [name for name in file.columns if name not in self.columns]
        default = UPSERT if self.upsert_by_default else INSERT
        for place, change in enumerate(file.changes):
            marker = default if change.marker is None else change.marker
            row = {name: change.row.get(name) for name in self.columns}  # what the file lacks is NULL
            event = Event(marker, self._key(row), row, file.name, place, file.modified, change.at, change.unchanged)
            if any(value is None for value in self._sequence_values(event)):
                raise SequenceNull(f"{file.name}, row {place}")
            self.events.append(self._completed(event))

    def made_again(self, next_value: Callable[[Any], Any]) -> None:
        """The table folder is deleted and made again: with a sequence, all versions end at one place. `next_value`:
        gives the least higher value of the last column of the sequence."""
        versions = self._versions()
        seen = [self._parts(row[START_AT]) for row in versions if row[END_AT] is None]
        seen += [tuple(row[name] for name in self.sequence) for row in versions if row[END_AT] is None]
        ends = [self._parts(row[END_AT]) for row in versions if row[END_AT] is not None]
        if seen:
            *first, last = max(seen, key=_sortable)
            ends.append((*first, next_value(last)))
        if ends:
            self.since = max(ends, key=_sortable)
        for row in versions:
            row[END_AT] = self._place_of(self.since) if row[END_AT] is None else row[END_AT]
        self.earlier_versions = versions
        self.earlier_columns, self.columns = self.history_columns, []
        self.earlier_events += self.events
        self.events = []

    @property
    def history_columns(self) -> list[str]:
        """The columns of the history tables: those of earlier folders stay."""
        return [*self.earlier_columns, *(name for name in self.columns if name not in self.earlier_columns)]

    # What the options say

    @property
    def deletes(self) -> str:
        return str(self.options.get("deletes", "hard"))

    @property
    def sequence(self) -> tuple[str, ...]:
        given = self.options.get("sequence", ())
        return (given,) if isinstance(given, str) else tuple(given)

    def history(self, mode: str) -> dict[str, Any] | None:
        """The options of that history; None where it is not asked for."""
        given = self.options.get("history", ())
        for one in given if isinstance(given, list | tuple) else [given]:
            as_object = {"mode": one} if isinstance(one, str) else one
            if as_object["mode"] == mode:
                return dict(as_object)
        return None

    @property
    def inserts_replace(self) -> bool:
        """Marker 0 is an upsert on keyed tables with a sequence or versions."""
        return bool(self.keys) and (bool(self.sequence) or self.history("scd2") is not None)

    @property
    def tracked(self) -> list[str]:
        track = (self.history("scd2") or {}).get("track") or ()
        chosen = [track] if isinstance(track, str) else list(track)
        return chosen or [name for name in self.history_columns if name not in self.sequence]

    # The tables

    def current(self) -> Counter[tuple[Any, ...]]:
        """The rows of the mirrored table, order-free; with soft deletes `__deleted` and `__deleted_at` come last."""
        rows = [row for events in self._by_key().values() for row in self._rows_after(events)]
        changed = {event.key for event in self.events}
        rows += [row for key, beside in self.rows_beside.items() if key not in changed for row in beside]
        return self._bag(rows, (*self.columns, *((DELETED, DELETED_AT) if self.deletes == "soft" else ())))

    def changes(self) -> Counter[tuple[Any, ...]]:
        """The rows of the table of changes, without the time of the apply: columns, `__operation`, `__file`, `__row`,
        `__unchanged`."""
        found = Counter[tuple[Any, ...]]()
        for event in (*self.earlier_events, *self.events):
            row = {name: None if name in event.unchanged else event.row.get(name) for name in self.history_columns}
            values = tuple(canonical(value) for value in row.values())
            found[(*values, OPERATIONS[event.marker], event.file, event.place, event.unchanged or None)] += 1
        return found

    def versions(self) -> Counter[tuple[Any, ...]]:
        """The rows of the table of versions, order-free: columns, `__START_AT`, `__END_AT`."""
        return self._bag(self._versions(), (*self.history_columns, START_AT, END_AT))

    def late_changes(self) -> int:
        """How many changes came too late for the current table."""
        return sum(event.late for event in self.events)

    def ignored_deletes(self) -> int:
        """How many deletes were counted and not applied."""
        return sum(event.marker == DELETE for event in self.events) if self.deletes == "ignore" else 0

    # How events become rows

    def _by_key(self) -> dict[Any, list[Event]]:
        """The events of each key, in their order: by sequence, else as they came. Python's sort is stable."""
        found: dict[Any, list[Event]] = {}
        for event in (*self.first_versions, *self.events):
            if not self._is_ignored(event):
                found.setdefault(event.key, []).append(event)
        return {key: sorted(events, key=self._order) for key, events in found.items()}

    def _completed(self, event: Event) -> Event:
        """The event as it arrives: late or not; a partial row with the values that its key has at its place by now."""
        if self._is_ignored(event):
            return event
        before: dict[str, Any] | None = None
        late = False
        same = [other for other in self.events if other.key == event.key and not self._is_ignored(other)]
        for other in sorted(same, key=self._order):
            if self._order(other) > self._order(event):
                late = True
            elif other.marker != DELETE:
                before = other.row
            elif self.deletes != "soft":
                before = None
        row = event.row
        if event.unchanged:
            if before is None and not late and not self.null_if_missing:
                raise PartialRowMissing(f"{event.file}, row {event.place}")
            row = {**row, **{name: (before or {}).get(name) for name in event.unchanged}}
        return replace(event, row=row, late=late)

    def _is_ignored(self, event: Event) -> bool:
        return event.marker == DELETE and self.deletes == "ignore"

    def _rows_after(self, events: Iterable[Event]) -> list[dict[str, Any]]:
        """The rows of one key."""
        rows: list[dict[str, Any]] = []
        for event in events:
            appends = event.marker == INSERT and not self.inserts_replace
            if event.marker == DELETE and self.deletes == "soft":
                dead_since = APPLY_TIME if event.at is None else event.at
                rows = [row if row[DELETED] else {**row, DELETED: True, DELETED_AT: dead_since} for row in rows[-1:]]
            elif event.marker == DELETE:
                rows = []
            else:
                before = [row for row in rows if not row[DELETED]] if appends else []
                rows = [*before, {**event.row, DELETED: False, DELETED_AT: None}]
        return rows

    def _versions(self) -> list[dict[str, Any]]:
        rows = [row for events in self._by_key().values() for row in self._versions_of(events)]
        if not self.since:
            return rows
        since, found = _sortable(self.since), list(self.earlier_versions)
        for row in rows:
            if row[END_AT] is not None and _sortable(self._parts(row[END_AT])) <= since:
                continue
            is_cut = _sortable(self._parts(row[START_AT])) < since
            found.append({**row, START_AT: self._place_of(self.since)} if is_cut else row)
        return found

    def _versions_of(self, events: Sequence[Event]) -> list[dict[str, Any]]:
        """The versions of one key: each begins with a change of the tracked columns and ends at the next one."""
        versions: list[dict[str, Any]] = []
        open_: dict[str, Any] | None = None
        for event, at in self._placed(events):
            if event.marker != DELETE and open_ is not None and self._is_same(open_, event.row):
                open_ |= {name: event.row.get(name) for name in self.columns}
                continue
            if open_ is not None:
                open_[END_AT] = at
                open_ = None
            if event.marker != DELETE:
                open_ = {**event.row, START_AT: at, END_AT: None}
                versions.append(open_)
        return versions

    def _placed(self, events: Sequence[Event]) -> list[tuple[Event, Any]]:
        """The events of one key that make versions, with their place in time.

        By sequence: of several with one sequence the last. Without: the source's time, else the file's, strictly
        increasing from one version to the next.
        """
        if self.sequence:
            last = {self._order(event): event for event in events}
            return [(last[order], self._place(last[order])) for order in sorted(last)]
        found: list[tuple[Event, Any]] = []
        before: datetime | None = None
        open_: dict[str, Any] | None = None
        for event in events:
            at = event.modified if event.at is None else event.at
            if event.marker == DELETE and open_ is None:
                continue
            if event.marker != DELETE and open_ is not None and self._is_same(open_, event.row):
                found.append((event, at))  # extends the open version: its time is not used
                continue
            at = at if before is None or at > before else before + _TICK
            before, open_ = at, None if event.marker == DELETE else event.row
            found.append((event, at))
        return found

    def _is_same(self, one: Row, other: Row) -> bool:
        return all(canonical(one.get(name)) == canonical(other.get(name)) for name in self.tracked)

    def _place(self, event: Event) -> Any:
        return self._place_of(self._sequence_values(event))

    def _place_of(self, values: tuple[Any, ...]) -> Any:
        return values[0] if len(values) == 1 else dict(zip(self.sequence, values, strict=True))

    def _parts(self, place: Any) -> tuple[Any, ...]:
        return tuple(place.values()) if isinstance(place, dict) else (place,)

    def _sequence_values(self, event: Event) -> tuple[Any, ...]:
        return tuple(event.row.get(name) for name in self.sequence)

    def _order(self, event: Event) -> tuple[Any, ...]:
        return _sortable(self._sequence_values(event))

    def _key(self, row: Row) -> tuple[Any, ...]:
        return tuple(canonical(row.get(name)) for name in self.keys)

    def _bag(self, rows: Iterable[Row], names: Sequence[str]) -> Counter[tuple[Any, ...]]:
        return Counter(tuple(hashable(row.get(name)) for name in names) for row in rows)


def _sortable(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(sortable(value) for value in values)


def sortable(value: Any) -> Any:
    """A value of a sequence so that it compares as the contract says: texts by bytes, NaN above every number."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    assert value is None or isinstance(value, int | Decimal | date | datetime), value
    return value


def hashable(value: Any) -> Any:
    """As `canonical`, and a struct as its values."""
    return (
        tuple((name, canonical(part)) for name, part in value.items()) if isinstance(value, dict) else canonical(value)
    )
