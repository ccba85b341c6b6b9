"""Named places where a test makes the process die, to prove that dying there does no harm.

`LAKEMIRROR_FAILPOINT=name` or `name:3` kills the process the first or the third time it reaches that place. Without
the variable a failpoint costs one dictionary look-up.
"""

from __future__ import annotations

import os
import signal

# every place there is, in the order in which an apply meets them; a test kills at each
NAMES = (
    "identity.before-marker",
    "apply.before-write",
    "apply.before-commit",
    "commit.before-checksum",
    "apply.after-commit",
    "retire.before-move",
    "retire.between-moves",
    "quarantine.after-move",
    "move.before-move",
    "drop.before-move",
    "drop.after-move",
    "merge.before-commit",
    "status.before-write",
)

# and those that a publisher meets
PUBLISHER_NAMES = (
    "publish.metadata-written",
    "publish.file-written",
    "publish.before-link",
    "publish.after-link",
    "publish.done",
    "snapshot.before-state",
    "snapshot.between-states",
    "watermark.before-state",
    "publish.dropped",
)

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

_reached: dict[str, int] = {}


def reach(name: str) -> None:
    """Kills the process here, if it was asked for."""
    wanted = os.environ.get("LAKEMIRROR_FAILPOINT")
    if not wanted:
        return
    chosen, _, times = wanted.partition(":")
    if chosen != name:
        return
    _reached[name] = _reached.get(name, 0) + 1
    if _reached[name] == int(times or 1):
        os.kill(os.getpid(), signal.SIGKILL)
