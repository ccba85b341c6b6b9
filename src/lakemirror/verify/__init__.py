"""Verifies a mirror from the outside: everything that can be read or counted is read and counted again.

    log ─▶ replay ─▶ data files, footers, statistics, vectors ─▶ position and manifests ─▶ rows against files or source
    idle time of `run` ─▶ the cheap parts of it ─▶ warnings

Only reads. Shares no code with the apply that it proves, except for the readers of the landing zone.
"""

from lakemirror.verify.finding import KINDS, Finding, Report
from lakemirror.verify.proof import verify_database, verify_table

__all__ = ["KINDS", "Finding", "Report", "verify_database", "verify_table"]
