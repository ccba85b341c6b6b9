"""The findings of a verification: stable codes, each with what to do, and the report of all tables."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.table_options import LATE

ERROR, WARNING = "error", "warning"

_RESTORE = "Restore the file from a backup, or delete the table folder and publish it again."
_LOG = "Restore the log from a backup, or delete the table folder and publish it again."
_READERS = (
    "Readers may skip rows. Rewrite the file: run OPTIMIZE on it, or delete the table folder and publish it again."
)
_ROWS = "Compare the listed keys with the source. Publish them again, or delete the table folder and publish it again."
_RESTORED = "Rows and position no longer belong together: delete the table folder and publish it again."
_KEYS = (
    "Rename the column back, or undo the drop by RESTORE, if nothing was applied since; else run `lakemirror resync DB "
    "TABLE`, or delete the table folder and publish it again."
)
_POSITION = "Do not let `run` go on. Restore the log from a backup, or delete the table folder and publish it again."
_BEHIND = "Move the history table away: its history begins again with the next change."
_IMPOSSIBLE = "Remove the cause that is named, then verify again."
_AWAY = "or move the history table away: it begins again with the next change."
_BUILD = f"run `lakemirror history build DB TABLE --from-processed`, {_AWAY}"
_OF_HISTORY = {
    _RESTORE: f"Restore the file from a backup, {_BUILD}",
    _LOG: f"Restore the log from a backup, {_AWAY}",
    _READERS: f"Readers may skip rows. Rewrite the file: run OPTIMIZE on it, {_BUILD}",
    _ROWS: f"Compare the listed keys with the source, {_BUILD}",
    _RESTORED: _BEHIND,
    _KEYS: f"Rename the column back, or undo the drop by RESTORE, if nothing was applied since, {_AWAY}",
    _POSITION: f"Do not let `run` go on. Restore the log from a backup, {_AWAY}",
    _IMPOSSIBLE: f"{_IMPOSSIBLE} If the history began later than its table: `lakemirror history build DB TABLE "
    "--from-processed`.",
}
"""The same for a table of history: it stays when its table folder is deleted."""

KINDS: dict[str, tuple[str, str]] = {
    # the log
    "verify-log-unreadable": (ERROR, _LOG),
    "verify-commit-missing": (ERROR, _LOG),
    "verify-commit-damaged": (ERROR, _LOG),
    "verify-checkpoint-damaged": (ERROR, "Delete the checkpoint file; the next checkpoint replaces it."),
    "verify-checkpoint-differs": (ERROR, "Delete the checkpoint file while the commits before it are still there."),
    "verify-last-checkpoint": (ERROR, "Delete _delta_log/_last_checkpoint: it is only a hint for readers."),
    "verify-checksum-differs": (ERROR, "Look at the table's history. If that is right, delete the .crc file."),
    "verify-file-twice": (ERROR, _LOG),
    # data files
    "verify-file-missing": (ERROR, _RESTORE),
    "verify-file-size": (ERROR, _RESTORE),
    "verify-file-unreadable": (ERROR, _RESTORE),
    "verify-row-count": (ERROR, _READERS),
    "verify-footer-untrue": (ERROR, _READERS),
    "verify-bounds-untrue": (ERROR, _READERS),
    "verify-bounds-loose": (ERROR, _READERS),
    "verify-null-count": (ERROR, _READERS),
    "verify-statistics-unreadable": (ERROR, _READERS),
    # deletion vectors
    "verify-vector-unreadable": (ERROR, _RESTORE),
    "verify-vector-damaged": (ERROR, _RESTORE),
    "verify-vector-cardinality": (ERROR, _RESTORE),
    "verify-vector-outside": (ERROR, _RESTORE),
    "verify-vector-foreign": (ERROR, _LOG),
    # position and manifests
    "verify-position-missing": (ERROR, _POSITION),
    "verify-position-differs": (ERROR, _POSITION),
    "verify-position-back": (ERROR, _POSITION),
    "verify-position-ahead": (ERROR, _POSITION),
    "verify-position-behind": (ERROR, _BEHIND),
    "verify-applied-twice": (ERROR, _POSITION),
    "verify-applied-gap": (ERROR, _POSITION),
    "verify-identity-foreign": (ERROR, "Put _mirror.json back, or delete the table folder and publish it again."),
    "verify-restored": (ERROR, _RESTORED),
    "verify-key-column-missing": (ERROR, _KEYS),
    "verify-changed-by-others": (WARNING, "Ask the writer that is named. The mirror goes on."),
    # rows
    "verify-row-extra": (ERROR, _ROWS),
    "verify-row-missing": (ERROR, _ROWS),
    "verify-row-differs": (ERROR, _ROWS),
    "verify-not-compared": (WARNING, "Compare what is named by another way."),
    # the check itself could not be done
    "verify-impossible": (WARNING, _IMPOSSIBLE),
}  # fmt: skip
"""Every kind of finding by its code: its severity, and what to do."""

_REFUSALS = {
    errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ETIMEDOUT, errno.ESTALE, errno.ENOTCONN,
}  # fmt: skip

MOST_FINDINGS = 100
"""Findings of one code that a table's report lists; the rest are counted."""


@dataclass(frozen=True)
class Finding:
    """A defect that was found. `file`: its path in the table's folder or the database; empty for none. `of_history`:
    the mode of a table of history."""

    code: str
    table: str
    message: str
    file: str = ""
    of_history: str = ""

    @property
    def severity(self) -> str:
        return KINDS[self.code][0]

    @property
    def advice(self) -> str:
        advice = KINDS[self.code][1]
        if not self.of_history:
            return advice
        found = _OF_HISTORY.get(advice, advice)
        return found.replace(_BUILD, _AWAY) if self.of_history == LATE else found  # a build leaves it as it is

    def to_json(self) -> dict[str, str]:
        return {
            "code": self.code, "severity": self.severity, "table": self.table, "file": self.file,
            "message": self.message, "advice": self.advice,
        }  # fmt: skip


@dataclass(frozen=True)
class TableReport:
    """The result for one table. `rows`: living rows that were decoded. `compared`: rows of the other side."""

    table: str
    version: int = -1
    files: int = 0
    rows: int = 0
    compared: int | None = None
    findings: tuple[Finding, ...] = ()
    seconds: float = 0.0

    def of_history(self, mode: str) -> TableReport:
        """The report with what to do about a table of history."""
        return replace(self, findings=tuple(replace(each, of_history=mode) for each in self.findings))


@dataclass(frozen=True)
class Report:
    """The result for all requested tables."""

    tables: tuple[TableReport, ...] = field(default=())

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(finding for table in self.tables for finding in table.findings)

    @property
    def exit_code(self) -> int:
        """3 if something is wrong, 1 if something could not be verified, else 0. Warnings alone are 0."""
        if any(finding.severity == ERROR for finding in self.findings):
            return 3
        return 1 if any(finding.code == "verify-impossible" for finding in self.findings) else 0

    def to_json(self) -> dict[str, Any]:
        return {
            "sound": self.exit_code == 0,
            "tables": [
                {
                    "table": each.table, "version": each.version, "files": each.files, "rows": each.rows,
                    "compared": each.compared, "seconds": round(each.seconds, 3),
                    "findings": [finding.to_json() for finding in each.findings],
                }
                for each in self.tables
            ],
        }  # fmt: skip


def is_refused(error: BaseException) -> bool:
    """True if the machine or the store refused to read: that says nothing about the content.

    The advice for damage, to restore or delete the table, must not be given for a missing permission.
    """
    if isinstance(error, LakemirrorError):
        return error.code == "storage-unavailable"
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _REFUSALS)


def capped(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """At most MOST_FINDINGS of each code; the last one of a code says how many more there are."""
    by_code: dict[str, list[Finding]] = {}
    for finding in findings:
        by_code.setdefault(finding.code, []).append(finding)
    kept: list[Finding] = []
    for code, group in by_code.items():
        kept += group[:MOST_FINDINGS]
        if len(group) > MOST_FINDINGS:
            more = f"{len(group) - MOST_FINDINGS} more findings of this kind are not listed"
            kept.append(Finding(code, group[0].table, more))
    return tuple(kept)
