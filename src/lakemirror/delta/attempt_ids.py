"""Ids for the files of one attempt at one version of a table: a file's name says which commit alone can name it.

    attempt_id(17) ─▶ part-00000-00000000-0011-8a3c-….parquet ─▶ version_in ─▶ 17

An attempt is committed as the version after its snapshot or never (`delta/commit.py`). Once that version exists, a file
for it that the commit does not name is in no version, and never will be. The ids are UUIDs of version 8, whose content
is up to the writer (RFC 9562): 48 bits version of the table, 12 bits mark, 62 random bits. Ids of other writers are
random UUIDs of version 4, or lack the mark.
"""

from __future__ import annotations

import re
import secrets
import uuid

_KIND, _MARK = 8, 0xA3C
_VARIANT = 0b10
_MOST = 1 << 48
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8a3c-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def attempt_id(version: int | None) -> uuid.UUID:
    """A new id for a file that only this version of the table can name; None: a file of any version."""
    if version is None or not 0 <= version < _MOST:
        return uuid.uuid4()
    head = (version << 16) | (_KIND << 12) | _MARK
    return uuid.UUID(int=(((head << 2) | _VARIANT) << 62) | secrets.randbits(62))


def version_in(name: str) -> int | None:
    """The only version that can name the file of this name; None where the name does not say."""
    found = _ID.search(name)
    return uuid.UUID(found[0]).int >> 80 if found is not None else None


__all__ = ["attempt_id", "version_in"]
