"""Acts of an operator on one table: pause, resume, resync, replay, restore.

An interrupted act is finished by repeating it. Each act leaves the table in a state that the contract defines, so a
running engine needs no message. Each act is recorded in `Files/Monitoring/acts.jsonl`.

    pause, resume   `_paused.json` in the table folder
    resync          the folder gets another identity, and its applied files come back: section 7, "recreated"
    replay          a quarantined file comes back; where the table is past its number, a resync brings it in order
    restore         a dropped table comes back, with a folder that waits for number 1
"""

from __future__ import annotations

import contextlib
import getpass
import json
import logging
import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from lakemirror import failpoints
from lakemirror.delta.log import read_snapshot
from lakemirror.errors import LakemirrorError, counted
from lakemirror.landing_zone.archive import REASON_SUFFIX
from lakemirror.landing_zone.change_file import TableFiles
from lakemirror.landing_zone.identity import Marker, marker_of, path_in_zone
from lakemirror.landing_zone.metadata import SEQUENTIAL, UPSERT_BY_DEFAULT, TableMetadata
from lakemirror.landing_zone.option_patterns import OptionPatterns
from lakemirror.landing_zone.pending import numbers_aside
from lakemirror.landing_zone.table_options import SOFT
from lakemirror.landing_zone.zone import (
    MARKER,
    METADATA,
    PAUSED,
    PROCESSED,
    QUARANTINED,
    TableFolder,
    TableName,
    check_name,
    read_metadata,
    scan,
    scan_table,
)
from lakemirror.mirror.dropped_tables import DROPPED, dropped
from lakemirror.mirror.history.history_tables import named_tables
from lakemirror.mirror.history.row_options import options_kept
from lakemirror.mirror.standstill import beat_applies, paused_for, take_over
from lakemirror.mirror.table_log import TableLog, read_sequences, read_table_log
from lakemirror.mirror.table_places import tables_near
from lakemirror.storage import Entry, Storage

log = logging.getLogger("lakemirror")

NOTED = "Files/Monitoring/acts.jsonl"
_MOST_NOTED = 1000  # acts that are kept
_MOST_BYTES = 4 * 1024**2  # of the noted acts
_ROUNDS = 5  # looks for files that an engine moved meanwhile


@dataclass(frozen=True)
class Outcome:
    """What an operation did, as a sentence. `changed` False: there was nothing to do. `files`: change files moved."""

    text: str
    changed: bool = True
    files: int = 0


def pause(storage: Storage, table: str) -> Outcome:
    """Stops every engine from applying the table's change files after the current batch, until `resume`."""
    name = folder_named(storage, table).name
    failpoints.reach("pause.before-note")
    path, content = f"{name.folder}/{PAUSED}", json.dumps({"since": int(time.time()), "by": _user()}).encode() + b"\n"
    if not storage.write_new(path, content) and not take_over("replay", storage, path, content):
        return Outcome(f"{name} is paused already", changed=False)
    return note(storage, "pause", name, Outcome(f"{name} is paused"))


def resume(storage: Storage, table: str) -> Outcome:
    """Ends a pause: the table continues at its position."""
    name = folder_named(storage, table).name
    if not storage.exists(f"{name.folder}/{PAUSED}"):
        return Outcome(f"{name} is not paused", changed=False)
    failpoints.reach("resume.before-removal")
    storage.delete(f"{name.folder}/{PAUSED}")
    return note(storage, "resume", name, Outcome(f"{name} goes on"))


def resync(storage: Storage, table: str, default_schema: str = "") -> Outcome:
    """Makes the next pass build the table again from its applied files. Readers see the old rows until its first
    commit.

    Error: `archive-incomplete`, without any change, if an applied file is gone or their order is unknown. Then the
    publisher must send the table again.
    """
    folder = folder_named(storage, table)
    _check_archive(storage, folder, default_schema)
    _mark_anew(storage, folder.name, _log_of(storage, folder.name, default_schema))
    failpoints.reach("resync.before-return")
    moved = _bring_back(storage, folder.name)
    text = f"{folder.name} is applied again from number 1: {counted(moved, 'file')} came back from {PROCESSED}"
    return note(storage, "resync", folder.name, Outcome(text, files=moved))


def purge_deleted(storage: Storage, table: str, default_schema: str = "", patterns: OptionPatterns = ()) -> Outcome:
    """Removes the rows that soft deletes keep, in one commit; then other deletes may be declared.

    Errors: `table-unknown`; `concurrent-commit` if an engine committed meanwhile; `table-feature-unsupported`.
    """
    from lakemirror.mirror.history import purge_deleted as purge  # reads and writes rows; no other act does

    folder = folder_named(storage, table)
    stays_soft = read_metadata(storage, folder, patterns).options.deletes == SOFT
    target = folder.name.target(default_schema)
    done = purge.purge_deleted(storage.uri(target), target, stays_soft=stays_soft)
    if done is None:
        return Outcome(f"{folder.name} has no soft deletes", changed=False)
    text = f"{folder.name}: removed {counted(done.rows, 'deleted row')}, wrote {counted(done.files, 'data file')} again"
    return note(storage, "purge deleted", folder.name, Outcome(text, changed=bool(done.files)))


def replay(
    storage: Storage, table: str, file: str = "", default_schema: str = "", patterns: OptionPatterns = ()
) -> Outcome:
    """Makes the next pass apply quarantined files in their order: all files of the table, or the one with this name.

    If the table is past a file's number, it is resynced, so that later changes stay later. Errors, without any change:
    `archive-incomplete` if it cannot be resynced, `history-has-no-place` if a history table is past it,
    `concurrent-commit`. A file whose name is taken in the folder stays in quarantine. `patterns`: options for many
    tables. No apply goes on meanwhile (`standstill.py`). If it is killed, the table is paused until it is repeated. Of
    two at once, the later one goes on; the other ends with `concurrent-commit` and has moved some files, or none.
    """
    name = folder_named(storage, table).name
    with paused_for("replay", storage, name) as check:
        failpoints.reach("replay.before-commit")
        return _replay(storage, table, file, default_schema, patterns, check)


def _replay(
    storage: Storage, table: str, file: str, default_schema: str, patterns: OptionPatterns, check: Callable[[], None]
) -> Outcome:
    folder = folder_named(storage, table)
    chosen = [
        entry
        for entry in folder.quarantined
        if not entry.name.endswith(REASON_SUFFIX) and (not file or entry.name == file)
    ]
    metadata, log_ = read_metadata(storage, folder, patterns), _log_of(storage, folder.name, default_schema)
    _remove_orphans(storage, folder, chosen)
    begun = _is_marked_anew(storage, folder.name, log_)  # perhaps by a replay that was interrupted
    if not chosen and not (begun and _archived(folder)):
        what = f"no file {file} is" if file else "no file is"
        return Outcome(f"{what} in quarantine in {folder.name}", changed=False)
    target = folder.name.target(default_schema)
    tables = [target, *(each.target for each in named_tables(folder.name, target, metadata))]
    for path in tables:
        beat_applies("replay", storage, path)
        failpoints.reach("replay.after-commit")
    positions = [_positions(storage, folder, path, metadata) for path in tables]
    late = any(_number(entry.name) <= at.get(_place(entry, folder.name), 0) for entry in chosen for at in positions)
    if late and metadata.options.history:
        raise LakemirrorError(
            "history-has-no-place",
            f"{folder.name} has history tables, which are past the file's number: a file of an earlier number has no "
            "place in them",
            table=str(folder.name),
        )
    check()
    if late:
        _check_archive(storage, folder, default_schema)
        _mark_anew(storage, folder.name, log_)  # first: at its old place the file would count as applied
    moved = 0
    for entry in chosen:
        home = _home(entry, QUARANTINED)
        failpoints.reach("replay.before-return")
        check()
        if not storage.exists(home):
            storage.move(entry.path, home)
            failpoints.reach("replay.before-reason")
            storage.delete(entry.path + REASON_SUFFIX)
            moved += 1
    back = _bring_back(storage, folder.name) if late or begun else 0
    text = f"{folder.name}: {moved} of {counted(len(chosen), 'file')} came back from {QUARANTINED}"
    if back:
        text += f"; the table is applied again from number 1, with {counted(back, 'file')} from {PROCESSED}"
    return note(storage, "replay", folder.name, Outcome(text, changed=bool(moved or back), files=moved))


def restore(storage: Storage, table: str, default_schema: str = "") -> Outcome:
    """Moves the newest dropped Delta table of that name back to `Tables/`, and makes its table folder.

    The folder is new: its publisher begins at number 1, and the first file replaces the rows. Its keys and options are
    those of the table. A table of history gets no folder, and goes on with its mirrored table. Error: `table-unknown`
    if no such table was dropped, `table-name-ambiguous` if it would be in another table, or another one in it.
    """
    schema, _, short = table.rpartition(".")
    name = TableName(schema, short)
    check_name(name)
    target = name.target(default_schema)
    rival = next(tables_near(storage, target), None)
    if rival is not None:
        raise LakemirrorError("table-name-ambiguous", f"{name} cannot come back beside {rival}", table=table)
    if storage.exists(target):
        return Outcome(f"{name} is in {target}", changed=False)
    found = [path for original, path in dropped(storage) if original == target]
    if not found:
        raise LakemirrorError("table-unknown", f"no dropped table {name} in {DROPPED}", table=table)
    newest = max(found)
    kept = read_table_log(storage.uri(newest))
    if kept is not None and kept.history:  # its table folder is that of the mirrored table
        storage.move(newest, target)
        return note(storage, "restore", name, Outcome(f"{name} is back in {target}"))
    failpoints.reach("restore.before-folder")
    if not storage.exists(name.folder):  # first: a table without a folder is dropped again
        place = f"{name.folder}/{METADATA}"
        snapshot = read_snapshot(storage.uri(newest))
        declared: dict[str, object] = {"keyColumns": list(kept.key_columns) if kept else []}
        if snapshot is not None and (options := options_kept(snapshot.metadata.configuration)):
            declared |= {name: options.pop(name) for name in (UPSERT_BY_DEFAULT,) if name in options}
            declared |= {"lakemirror": options} if options else {}
        storage.write(place, json.dumps(declared).encode())
    failpoints.reach("restore.before-move")
    storage.move(newest, target)
    return note(storage, "restore", name, Outcome(f"{name} is back in {target}; its publisher begins at number 1"))


def _remove_orphans(storage: Storage, folder: TableFolder, chosen: Sequence[Entry]) -> None:
    """Removes the recorded reasons of files that an interrupted replay has moved back."""
    there = {entry.path for entry in folder.quarantined} - {entry.path for entry in chosen}
    for path in there:
        file = path.removesuffix(REASON_SUFFIX)
        if file != path and file not in there and not storage.exists(file):
            storage.delete(path)


def folder_named(storage: Storage, table: str) -> TableFolder:
    """The table folder of that name, as `TABLE` or `SCHEMA.TABLE`; LakemirrorError `table-unknown`."""
    folder = next((each for name, each in scan(storage).tables.items() if str(name) == table), None)
    if folder is None:
        raise LakemirrorError("table-unknown", f"the landing zone has no table {table}", table=table)
    check_name(folder.name)
    return folder


def _check_archive(storage: Storage, folder: TableFolder, default_schema: str) -> None:
    """LakemirrorError `archive-incomplete` if the table cannot be built again from its files."""
    metadata = read_metadata(storage, folder)
    if metadata.file_detection_strategy != SEQUENTIAL:
        reason = "its files have no numbers, and in which order they were applied is not kept"
        raise LakemirrorError("archive-incomplete", f"{folder.name}: {reason}", table=str(folder.name))
    held = TableFiles(_with_archive(folder), metadata).by_partition
    archived = TableFiles(_with_archive(replace(folder, files=[])), metadata).by_partition
    ends = {partition: max(numbers) for partition, numbers in archived.items()}
    for partition, number in _positions(storage, folder, folder.name.target(default_schema), metadata).items():
        ends[partition] = max(number, ends.get(partition, 0))
    for partition, last in sorted(ends.items()):
        there = held.get(partition, {}).keys() | numbers_aside(folder.quarantined, folder, partition)
        gone = [number for number in range(1, last + 1) if number not in there]
        if gone:
            where = f" of {partition}" if partition else ""
            message = f"{folder.name}: {len(gone)} of {last} applied files{where} are gone, first number {gone[0]}"
            raise LakemirrorError("archive-incomplete", message, table=str(folder.name))


def _positions(storage: Storage, folder: TableFolder, target: str, metadata: TableMetadata) -> Mapping[str, int]:
    """The last number of each sequence of this folder that a table of it has; empty if the folder was recreated or has
    no such table. A history table goes on after a resync."""
    found, marker = read_table_log(storage.uri(target)), marker_of(storage, folder.name)
    if found is None or found.position is None:
        return {}
    if marker and found.position.identity not in (marker.id, *(marker.resync_of if found.history else ())):
        return {}
    if not metadata.partitioned:
        return {"": found.position.number}
    return read_sequences(storage.uri(target), found.position)


def _log_of(storage: Storage, name: TableName, default_schema: str) -> TableLog | None:
    return read_table_log(storage.uri(name.target(default_schema)))


def _is_marked_anew(storage: Storage, name: TableName, found: TableLog | None) -> bool:
    """True if the folder was recreated since the table was filled."""
    marker = marker_of(storage, name)
    at = found.position if found is not None else None
    return marker is not None and at is not None and marker.id != at.identity


def _mark_anew(storage: Storage, name: TableName, found: TableLog | None) -> None:
    """Gives the folder a new identity, so that its files replace the table. LakemirrorError `concurrent-commit`.

    One that an interrupted operation has given it stays: without a marker for a moment, the folder could get that of
    the table again, and a file that has come back from quarantine would count as applied.
    """
    if _is_marked_anew(storage, name, found):
        return
    path = f"{name.folder}/{MARKER}"
    before = marker_of(storage, name)
    earlier = (before.id, *before.resync_of)[:_MOST_RESYNCS] if before is not None else ()
    marker = Marker(uuid.uuid4().hex, path_in_zone(name), resync_of=earlier)
    for _ in range(_ROUNDS):
        storage.delete(path)
        failpoints.reach("resync.before-marker")
        try:
            if storage.write_new(path, marker.to_json()):
                return
        except FileNotFoundError:
            break
    raise LakemirrorError("concurrent-commit", f"{name.folder} changed while it was marked")


def _bring_back(storage: Storage, name: TableName) -> int:
    """Moves archived files back to where they were published. Returns their number. Repeats until no engine moves them
    away.

    The first numbers come last: after an interruption the table waits for number 1, and keeps its rows.
    """
    brought: set[str] = set()
    for _ in range(_ROUNDS):
        folder = scan_table(storage, name)
        if folder is None:
            break
        there = {entry.path for entry in folder.files}
        waits = sorted(
            (-_number(home), home, entry.path)
            for entry in _archived(folder)
            if (home := _home(entry, PROCESSED)) not in there | brought
        )
        if not waits:
            break
        for _, home, path in waits:
            with contextlib.suppress(FileNotFoundError):
                storage.move(path, home)
                brought.add(home)
                failpoints.reach("resync.between-returns")
    return len(brought)


def _archived(folder: TableFolder) -> list[Entry]:
    """The archived files, without those that were published a second time."""
    return [entry for entry in folder.processed if not _SECOND.fullmatch(entry.name)]


def _with_archive(folder: TableFolder) -> TableFolder:
    """The folder as if its applied files had not been moved."""
    home = {_home(entry, PROCESSED): entry for entry in _archived(folder)}
    files = {entry.path: entry for entry in folder.files}
    entries = [Entry(path, each.size, each.modified) for path, each in {**home, **files}.items()]
    return TableFolder(folder.name, entries)


def _home(entry: Entry, aside: str) -> str:
    """The path at which an archived file was published."""
    return entry.path.replace(f"/{aside}/", "/", 1)


def _place(entry: Entry, name: TableName) -> str:
    """The partition folders that a quarantined file was published in."""
    return _home(entry, QUARANTINED)[len(name.folder) + 1 :].rpartition("/")[0]


def _number(path: str) -> int:
    match = _NUMBERED.match(path.rpartition("/")[2])
    return int(match[1]) if match else 0


_MOST_RESYNCS = 100  # identities that a marker names
_NUMBERED = re.compile(r"([0-9]{20})\.")
_SECOND = re.compile(r"[0-9]{20}\..+\.[0-9]+")


def note(storage: Storage, what: str, name: TableName, act: Outcome) -> Outcome:
    """Records an act in the log and in `acts.jsonl`. The act is done even if this fails."""
    log.info("%s", act.text)
    line = {"time": int(time.time()), "act": what, "table": str(name), "by": _user(), "what": act.text}
    with contextlib.suppress(OSError, LakemirrorError, ValueError):
        failpoints.reach("act.before-record")
        before: list[bytes] = []
        with contextlib.suppress(FileNotFoundError):
            before = storage.read(NOTED, _MOST_BYTES).splitlines()
        text = json.dumps(line, ensure_ascii=False).encode("utf-8", "backslashreplace")
        storage.write(NOTED, b"\n".join([*before[-_MOST_NOTED + 1 :], text]) + b"\n")
    return act


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""
