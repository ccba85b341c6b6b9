"""Warnings about a landing zone outside of its tables."""

from __future__ import annotations

from lakemirror.landing_zone.metadata_file import not_files
from lakemirror.landing_zone.warned import Warned, capped
from lakemirror.landing_zone.zone import Zone


def zone_warnings(zone: Zone) -> list[Warned]:
    """What in a landing zone is no table and why, and what could not be listed (contract section 1)."""
    skipped = [
        Warned("folder-skipped", f"{path} begins with an underscore: it is no table", path) for path in zone.skipped
    ]
    unlisted = [Warned(error.code, error.message, path) for path, error in sorted(zone.errors.items())]
    return [*capped(skipped), *not_files(zone.others), *capped(unlisted)]


__all__ = ["zone_warnings"]
