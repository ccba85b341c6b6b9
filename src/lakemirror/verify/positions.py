"""Checks position and manifests of a mirrored table: each applied file is in exactly one commit (section 9).

commits ─▶ manifests, in order ─▶ first follows last? ─▶ position equals the last? ─▶ identity equals the marker's?
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from lakemirror.mirror.position import Manifest, Position, current_position, parse_app_id, parse_manifest
from lakemirror.verify.finding import Finding
from lakemirror.verify.log_replay import Commit, Replay

_IDENTITY_PROPERTY = "lakemirror.identity"
_RESTORES = ("RESTORE",)


@dataclass(frozen=True)
class Folder:
    """What the landing zone says of the table's folder. `identity`: of its marker; None if it has none.

    `files`: path below the folder, size and modified time of the files that are in it.
    `quarantined`: numbers of one plain sequence that were set aside and never applied.
    """

    identity: str | None = None
    files: Collection[tuple[str, int, int]] = ()
    quarantined: Collection[int] = ()


def check_positions(state: Replay, table: str, folder: Folder | None, *, begins_later: bool = False) -> list[Finding]:
    """Findings about the position; `folder` None: the landing zone has no folder of this table. `begins_later`: files
    that were applied before the table began are not missing in it."""
    return list(_findings(state, table, folder, begins_later))


def check_not_behind(state: Replay, mirrored: Replay, table: str) -> list[Finding]:
    """A finding where a history table lacks files that its mirrored table has: they may be archived, and lost to it.

    `mirrored` must have been read before `state`.
    """
    mine, its = position_of(state), position_of(mirrored)
    if mine is None or its is None or mine.identity != its.identity or mine.number >= its.number:
        return []
    message = f"its position is {mine.number}, that of the mirrored table {its.number}"
    return [Finding("verify-position-behind", table, message)]


def begin_of(state: Replay) -> int | None:
    """The number of the first file that is in the table; None where that is not known, where rows of an earlier table
    folder are in it too, or where it lacks files in between, because its option was off."""
    positions = [parse_app_id(app, number) for app, number in state.transactions.items()]
    manifests = [manifest for commit in state.commits if (manifest := _manifest(commit)) is not None]
    if len([each for each in positions if each is not None]) != 1 or not manifests:
        return None
    built = [index for index, manifest in enumerate(manifests) if manifest.built]
    manifests = manifests[built[-1] :] if built else manifests
    if state.commits[0].version and not built:
        return None
    if not all(manifest.file for manifest in manifests[1:]):
        return None
    return manifests[0].first + (not manifests[0].file)


def applied_times(state: Replay, numbers: Iterable[int]) -> list[int | None]:
    """When the files of these numbers were applied, in microseconds since the epoch; None where the log does not say
    it any more. Not for tables whose partitions count their files each."""
    position = position_of(state)
    its = [(commit, manifest) for commit in state.commits if (manifest := _manifest(commit)) is not None]
    its = [each for each in its if position is not None and each[1].identity == position.identity and each[1].file]
    lasts, found = [manifest.last for _, manifest in its], list[int | None]()
    for number in numbers:
        at = bisect_left(lasts, number)
        told = its[at][0].info.get("timestamp") if at < len(its) and its[at][1].first <= number else None
        found.append(told * 1000 if isinstance(told, int) else None)
    return found


def position_of(state: Replay) -> Position | None:
    """The table's position at its newest version."""
    return current_position(state.transactions)


def _findings(state: Replay, table: str, folder: Folder | None, begins_later: bool) -> Iterator[Finding]:
    position = position_of(state)
    if position is None:
        yield Finding(
            "verify-position-missing", table, "the table has no position: lakemirror did not make it, or it is lost"
        )
        return
    applied = [(commit, manifest) for commit in state.commits if (manifest := _manifest(commit)) is not None]
    ours = [(commit, manifest) for commit, manifest in applied if manifest.identity == position.identity]
    yield from _each_commit(applied, table)
    begin = ours[0][1].first if ours and begins_later else 1
    yield from _order(ours, table, _quarantined(folder, position), begin)
    if ours:
        yield from _last(ours[-1][1], position, table)
    yield from _identity(state, position, table, folder, ours[-1][1] if ours else None)
    yield from _by_others(state.commits, ours[-1][0].version if ours else -1, table)


def _manifest(commit: Commit) -> Manifest | None:
    return parse_manifest(commit.info.get("userMetadata"))


def _each_commit(applied: Sequence[tuple[Commit, Manifest]], table: str) -> Iterator[Finding]:
    """Checks that position and manifest of one commit agree."""
    for commit, manifest in applied:
        logged = f"_delta_log/{commit.version:020}.json"
        position = current_position(commit.transactions)
        if position is None:
            message = (
                f"version {commit.version} has a manifest (files {manifest.first} to {manifest.last}) and no position"
            )
            yield Finding("verify-position-differs", table, message, logged)
        elif (position.identity, position.number) != (manifest.identity, manifest.last):
            message = (
                f"version {commit.version} sets position {position.number} of {position.identity}, its manifest ends "
                f"at {manifest.last} of {manifest.identity}"
            )
            yield Finding("verify-position-differs", table, message, logged)
        elif manifest.first > manifest.last:
            message = f"version {commit.version}: its manifest goes from {manifest.first} to {manifest.last}"
            yield Finding("verify-position-differs", table, message, logged)


def _quarantined(folder: Folder | None, position: Position) -> set[int] | None:
    """The numbers that were set aside; None where nobody knows: the folder that the table was filled from is gone, and
    what was set aside with it."""
    if folder is None or folder.identity != position.identity:
        return None
    return set(folder.quarantined)


def _order(
    applied: Sequence[tuple[Commit, Manifest]], table: str, quarantined: set[int] | None, begin: int
) -> Iterator[Finding]:
    """Checks that every number from `begin` on is covered once: a manifest begins where the one before ends."""
    before = begin - 1
    begun = False
    last: Manifest | None = None
    for commit, manifest in applied:
        if manifest == last and commit.info.get("operation") == "UPDATE":
            continue  # it ends open versions, and has the manifest of the apply before it
        last = manifest
        logged = f"_delta_log/{commit.version:020}.json"
        if manifest.built or not manifest.file:  # a history table begins, or was made again
            before, begun = max(before, manifest.last), True
            continue
        is_first_of_all = not begun and commit.version > 0 and manifest.first > 1
        if begun and manifest.first <= before:
            message = f"version {commit.version} applies files {manifest.first} to {manifest.last} after file {before}"
            yield Finding("verify-applied-twice", table, message, logged)
        elif quarantined is not None and not (is_first_of_all and applied[0][0].version != 0):
            missing = [number for number in range(before + 1, manifest.first) if number not in quarantined][:5]
            if missing:
                named = ", ".join(map(str, missing))
                message = f"version {commit.version} begins at file {manifest.first}; no commit applies {named}"
                yield Finding("verify-applied-gap", table, message, logged)
        before, begun = max(before, manifest.last), True
    numbers: dict[str, int] = {}
    for commit, _ in applied:
        for app, number in commit.transactions.items():
            position = parse_app_id(app, number)
            if position is not None and number < numbers.get(app, number):
                message = f"version {commit.version} moves the position back from {numbers[app]} to {number}"
                yield Finding("verify-position-back", table, message, f"_delta_log/{commit.version:020}.json")
            numbers[app] = number


def _last(manifest: Manifest, position: Position, table: str) -> Iterator[Finding]:
    if position.number < manifest.last:
        message = (
            f"the position is {position.number}, the last manifest ends at {manifest.last}: files are applied twice"
        )
        yield Finding("verify-position-back", table, message)
    elif position.number > manifest.last:
        message = f"the position is {position.number}, the last manifest ends at {manifest.last}: files are skipped"
        yield Finding("verify-position-ahead", table, message)
    name = manifest.file.rpartition("/")[2][:20]
    plain = not manifest.detection and "/" not in manifest.file
    if plain and name.isdigit() and len(name) == 20 and int(name) != manifest.last:
        code = "verify-position-ahead" if manifest.last > int(name) else "verify-position-back"
        yield Finding(code, table, f"the last manifest ends at {manifest.last} and names file {manifest.file}")


def _identity(
    state: Replay, position: Position, table: str, folder: Folder | None, last: Manifest | None
) -> Iterator[Finding]:
    """A folder that was made again has another identity until its first apply; its last applied file is gone then."""
    named = (state.metadata.get("configuration") or {}).get(_IDENTITY_PROPERTY)
    if named and named != position.identity:
        message = f"the position is of folder {position.identity}, the table's property names {named}"
        yield Finding("verify-identity-foreign", table, message)
    if folder is None or folder.identity is None or folder.identity == position.identity:
        return
    if last is None or (last.file, last.size, last.modified) in folder.files:
        message = f"the table was filled from folder {position.identity}, the folder's marker says {folder.identity}"
        yield Finding("verify-identity-foreign", table, message, "_mirror.json")


def _by_others(commits: Sequence[Commit], last_ours: int, table: str) -> Iterator[Finding]:
    for commit in commits:
        operation = str(commit.info.get("operation", "unknown operation"))
        logged = f"_delta_log/{commit.version:020}.json"
        if operation in _RESTORES and commit.version > last_ours:
            message = f"version {commit.version} restores an older version: rows and position no longer belong together"
            yield Finding("verify-restored", table, message, logged)
        elif commit.changes_data and _manifest(commit) is None and not _is_ours(commit):
            who = commit.info.get("engineInfo") or "an unknown writer"
            yield Finding(
                "verify-changed-by-others",
                table,
                f"version {commit.version}: {operation} by {who} changes data",
                logged,
            )


def _is_ours(commit: Commit) -> bool:
    """True where lakemirror removed remembered changes that were older than `late_days`, or deleted rows on request."""
    parameters = commit.info.get("operationParameters")
    predicate = str(parameters.get("predicate", "")) if isinstance(parameters, dict) else ""
    return commit.info.get("engineInfo") == "lakemirror" and predicate.startswith(("late_days", '["__deleted"]'))
