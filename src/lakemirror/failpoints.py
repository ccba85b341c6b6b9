"""Named places where a test makes the process die or the disk fail, to prove that this does no harm.

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
    "apply.after-commit": "The commit is complete; no change file is set aside.",
    "retire.before-move": "Applied files are about to be set aside.",
    "retire.between-moves": "One applied file is set aside, others are not.",
    "quarantine.after-move": "A bad file is set aside; why is not recorded yet.",
    "move.before-move": "A table is about to move to another schema's folder.",
    "drop.before-move": "A dropped table is about to be moved away.",
    "drop.after-move": "A dropped table is moved away; the pass does not know yet.",
    "merge.before-commit": "Small files are merged, or a table that rests is compacted; no commit names the new files.",
    "status.before-write": "The status files are about to be written.",
}
"""The places of an engine, in the order in which an apply meets them."""

PUBLISHER_NAMES: dict[str, str] = {
    "publish.metadata-written": "`_metadata.json` is written; no change file is.",
    "publish.file-written": "A change file is written under a temporary name.",
    "publish.before-link": "The change file is about to get its number.",
    "publish.after-link": "The change file has its number; its temporary name is still there.",
    "publish.done": "The change file is published; its caller does not know yet.",
    "snapshot.before-state": "The differences are published; what was published is not noted.",
    "snapshot.between-states": "The new state is noted; what is left of the old one is not removed.",
    "watermark.before-state": "Rows are published; the watermark is not noted.",
    "publish.dropped": "A table folder is renamed for its removal; it is not removed yet.",
}
"""The places of a publisher."""

_reached: dict[str, int] = {}


def reach(name: str) -> None:
    """Kills the process here, or raises OSError, if it was asked for."""
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
    """How often this process has come to the place that `LAKEMIRROR_FAILPOINT` names."""
    return _reached.get(name, 0)
