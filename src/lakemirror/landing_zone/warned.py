"""Warnings: reported, never fatal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Warned(NamedTuple):
    """Something reported and never fatal: a stable code, one sentence, the file (relative to the database)."""

    code: str
    message: str
    file: str = ""


def capped(warnings: Iterable[Warned], most: int = 20) -> list[Warned]:
    """The warnings, at most so many of one code: the last of them says how many there were."""
    kept: list[Warned] = []
    counts: dict[str, int] = {}
    for warning in warnings:
        counts[warning.code] = counts.get(warning.code, 0) + 1
        if counts[warning.code] <= most:
            kept.append(warning)
    for code, count in counts.items():
        if count > most:
            last = max(i for i, warning in enumerate(kept) if warning.code == code)
            kept[last] = Warned(code, f"{kept[last].message} (and {count - most} more)", kept[last].file)
    return kept


__all__ = ["Warned", "capped"]
