"""Durations as people write them on the command line."""

from __future__ import annotations

import re

import typer

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


def seconds(text: str) -> float:
    """Seconds of a duration such as 10s, 5m or 1h; BadParameter for anything else."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) *(ms|s|m|min|h|d)?", text.strip())
    if not found:
        raise typer.BadParameter(f"{text!r} is no time, such as 10s, 5m or 1h")
    return float(found[1]) * _UNITS[found[2] or "s"]
