"""Named places where a test kills the process or lets the disk fail, to prove that no data is lost.

`LAKEMIRROR_FAILPOINT=name` or `name:3` kills the process the first or the third time it reaches that place.
`name:3:error` raises OSError (EIO) there instead, as a failing disk does; `name:1+:error` every time from the first on.
Without the variable a failpoint costs one dictionary look-up.
"""

from __future__ import annotations

import errno
import os
import signal

NAMES: dict[str, str] = {
    "identity.before-marker": "A table folder is looked at; its marker is not written yet.",
    "apply.before-write": "A batch is planned; nothing is written.",
    "apply.before-commit": "Data files and vectors are written; no commit names them.",
    "commit.before-checksum": "The commit is made; its checksum and checkpoint are not.",
    "apply.after-commit": "The commit is complete; no change file is archived.",
    "archive.before-move": "Applied files are about to be archived.",
    "archive.between-moves": "One applied file is archived, others are not.",
    "quarantine.after-move": "A bad file is quarantined; the reason is not recorded yet.",
    "move.before-move": "A table is about to move to another schema's folder.",
    "drop.before-move": "A dropped table is about to be moved away.",
    "drop.after-move": "A dropped table is moved away; the pass does not know yet.",
    "soft-deletes.before-commit": "Deletes become soft: data files are written again; no commit names them.",
    "merge.before-commit": "Small files are merged, or an idle table is compacted; no commit names the new files.",
    "status.before-write": "The status files are about to be written.",
}
"""The places of an engine, in the order in which an apply meets them."""

HISTORY_NAMES: dict[str, str] = {
    "history.after-commit": "A commit to one history table is complete; the tables after it do not have the batch.",
    "history.keys-read": "A table of versions is about to begin: hashes of the keys are in a work folder of its own.",
    "history.before-begin": "A history table is about to begin; no commit names its first or changed versions.",
    "history.after-begin": "A history table has begun; those after it have not.",
    "history.before-end": "The versions of a folder that is gone or made again are about to end; no commit says so.",
    "purge.before-commit": "Deleted rows are about to be removed; no commit names the new files.",
}
"""The places of history tables, and of soft deletes that end."""

STORE_NAMES: dict[str, str] = {
    "store.after-copy": "An applied file in a store is copied to its archive and not deleted; others are not copied.",
    "store.before-delete": "All applied files of a batch in a store are copied to their archive; none is deleted.",
}
"""The places of an archive in an object store, where a move is a copy and a delete."""

OPERATION_NAMES: dict[str, str] = {
    "pause.before-note": "A table is about to be paused.",
    "resume.before-removal": "A pause is about to end.",
    "resync.before-marker": "The folder's old marker is removed; the new one is not written.",
    "resync.before-return": "The folder has another identity; no applied file came back.",
    "resync.between-returns": "One applied file came back, others did not.",
    "replay.before-commit": "A table is paused for a replay; nothing else is done.",
    "replay.after-commit": "An empty commit of one table has ended applies that began before; its others have none.",
    "replay.before-return": "A quarantined file is about to come back; for a late one the folder has another identity.",
    "replay.before-reason": "A quarantined file came back; the reason beside it is not removed.",
    "restore.before-folder": "A dropped table is about to come back; no table folder declares it.",
    "restore.before-move": "A table folder declares the dropped table, which is not back yet.",
    "act.before-record": "An operation is done; `acts.jsonl` does not have it.",
}
"""The places of an operator's acts (`mirror/operations.py`)."""

PUBLISHER_NAMES: dict[str, str] = {
    "publish.metadata-written": "`_metadata.json` is written; no change file is.",
    "publish.file-written": "A change file is written under a temporary name.",
    "publish.before-link": "The change file is about to get its number.",
    "publish.after-link": "The change file has its number; its temporary name is still there.",
    "publish.done": "The change file is published; its caller does not know yet.",
    "snapshot.before-state": "The differences are published; what was published is not noted.",
    "snapshot.between-states": "The new state is noted; what is left of the old one is not removed.",
    "watermark.before-state": "Rows are published; the watermark is not noted.",
    "publish.retyped": "A change file is written again in types that came meanwhile; the first one is still there.",
    "publish.recreated": "A table folder is deleted and made again for rows that are checked; they have no number yet.",
    "publish.dropped": "A table folder is renamed for its removal; it is not removed yet.",
}
"""The places of a publisher."""

# and those that an upload meets at the service's storage plane
STORAGE_NAMES = (
    "upload.created",
    "upload.written",
    "upload.counted",
    "block.staged",
    "publish.synced",
    "publish.renamed",
    "publish.durable",
    "rename.done",
    "remove.done",
)

INDEX_NAMES: dict[str, str] = {
    "index.before-rename": "The key index of a data file is written under a temporary name.",
    "rows.before-rename": "A copy of the rows of a data file is written under a temporary name.",
    "index.before-drop": "A key index is about to be removed: it is damaged, or there is no room for it.",
}
"""The places of the key index, which a thread beside the applies reaches."""

FEATURE_NAMES: dict[str, str] = {
    "features.between-files": "A feature drop has rewritten one data file; no commit names the new file.",
    "features.before-commit": "A feature drop has rewritten all data files; no commit names the new files.",
}
"""The places of a feature drop by the kernels."""

_reached: dict[str, int] = {}


def reach(name: str) -> None:
    """Kills the process here, or raises OSError, if `LAKEMIRROR_FAILPOINT` says so."""
    wanted = os.environ.get("LAKEMIRROR_FAILPOINT")
    if not wanted:
        return
    chosen, _, how = wanted.partition(":")
    if chosen != name:
        return
    times, _, mode = how.partition(":")
    _reached[name] = _reached.get(name, 0) + 1
    first = int(times.rstrip("+") or 1)
    if _reached[name] != first and not (times.endswith("+") and _reached[name] > first):
        return
    if mode == "error":
        raise OSError(errno.EIO, os.strerror(errno.EIO), f"failpoint {name}")
    os.kill(os.getpid(), signal.SIGKILL)


def times_reached(name: str) -> int:
    """How often this process has reached the place that `LAKEMIRROR_FAILPOINT` names."""
    return _reached.get(name, 0)
