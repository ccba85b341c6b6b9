"""Warnings about a landing zone outside of its tables."""

from __future__ import annotations

from lakemirror.landing_zone.change_file import is_data_name
from lakemirror.landing_zone.warned import Warned, capped
from lakemirror.landing_zone.zone import Zone, not_files, why_skipped


def zone_warnings(zone: Zone) -> list[Warned]:
    """What in a landing zone is in no table and why, and what could not be listed (contract section 1)."""
    skipped = [Warned("folder-skipped", f"{path} is no table: {why_skipped(path)}", path) for path in zone.skipped]
    strays = [
        Warned("file-stray", f"{entry.name} is in no table folder", entry.path)
        for entry in zone.strays
        if is_data_name(entry.name)
    ]
    unlisted = [Warned(error.code, error.message, path) for path, error in sorted(zone.errors.items())]
    return [*capped(skipped), *capped(strays), *not_files(zone.others), *capped(unlisted)]


__all__ = ["zone_warnings"]
