"""When the applied change files of a table folder were written, after they were moved to `_ProcessedFiles`.

A moved file has the time of its move, by which the archive is cleaned. Commits keep the earlier time: that of the last
file of a batch in the manifest's `modified`, those of the files before in its `times` (`apply.py`).
"""

from __future__ import annotations

from collections.abc import Collection

from lakemirror.delta.log import latest_commits
from lakemirror.mirror.position import Manifest
from lakemirror.mirror.table_log import manifest_of


def known_times(table: str, identity: str, numbers: Collection[int]) -> dict[int, int]:
    """When change files were written, in nanoseconds since the epoch, by number; without those that the log has lost.

    `table`: the mirrored table. `identity`: of the table folder.
    """
    wanted, known = set(numbers), dict[int, int]()
    for _, actions in latest_commits(table):
        if wanted <= known.keys():
            break
        manifest = manifest_of(actions)
        if manifest is not None and manifest.identity == identity and manifest.file:
            known |= _times(manifest)
    return {number: known[number] for number in wanted & known.keys()}


def _times(manifest: Manifest) -> dict[int, int]:
    last = manifest.modified // 1000
    earlier = enumerate(manifest.times, manifest.first)
    return {manifest.last: manifest.modified} | {
        number: (last + after) * 1000 for number, after in earlier if after is not None
    }
