"""The start-up archive."""

from __future__ import annotations

from pathlib import Path

from lakemirror.java import Java
from lakemirror.settings import Settings


def find(settings: Settings, java: Java, delta_jars: tuple[Path, ...]) -> Path | None:
    return None
