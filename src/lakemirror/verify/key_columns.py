"""Checks that a table's key columns are still the columns that its rows were written with (contract section 10).

commits ─▶ manifest: names of the keys, schema: their names in the data files ─▶ the same in each later version?

A key column that was renamed, or dropped and added again, has other rows under its name: older rows have NULL keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakemirror.mirror.position import parse_manifest
from lakemirror.verify.columns import table_columns
from lakemirror.verify.finding import Finding
from lakemirror.verify.log_replay import Replay


def check_key_columns(state: Replay, table: str) -> list[Finding]:
    """A finding for each key column that another writer renamed or dropped, unless that was undone before the next
    apply, or the table was filled again since."""
    identity = ""
    found: dict[str, Finding] = {}
    wanted: dict[str, str] = {}  # of each key column: its name in the data files
    for commit in state.commits:
        manifest = parse_manifest(commit.info.get("userMetadata"))
        if manifest is None and commit is not state.commits[-1]:
            continue
        held = _stored(commit.metadata)
        if manifest is not None and manifest.identity != identity:
            identity, wanted, found = manifest.identity, {}, {}
        now = {stored: name for name, stored in held.items()}
        for key, stored in wanted.items():
            if held.get(key) != stored and key not in found:
                what = f"its values are in {now[stored]!r}" if stored in now else "that one was dropped"
                message = (
                    f"version {commit.version}: key column {key!r} is not the one that rows were written with: {what}"
                )
                file = f"_delta_log/{commit.version:020}.json"
                found[key] = Finding("verify-key-column-missing", table, message, file)
        if manifest is not None:
            wanted |= {key: held[key] for each in manifest.key_columns if (key := each.lower()) in held}
    return list(found.values())


def _stored(metadata: Mapping[str, Any]) -> dict[str, str]:
    """The name of each column in the data files, by its name in lower case."""
    return {column.name.lower(): column.physical for column in table_columns(metadata)} if metadata else {}
