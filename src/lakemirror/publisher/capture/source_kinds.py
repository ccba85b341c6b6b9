"""Which database an address names: the one place that knows all sources of a capture.

Their modules are imported when they are needed: a driver that is not installed stops nobody else.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from lakemirror.errors import LakemirrorError
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.capture_status import SlotView
from lakemirror.publisher.capture.source_interface import Source
from lakemirror.publisher.capture.source_needs import Need

_POSTGRESQL, _MARIADB = "postgresql.source.PostgresSource", "mariadb.mariadb_source.MariaDbSource"
_CLASSES = {
    "postgresql": _POSTGRESQL,
    "postgres": _POSTGRESQL,
    "mariadb": _MARIADB,
    "mysql": _MARIADB,
    "sqlserver": "sqlserver.sqlserver_source.SqlServerSource",
}
"""The class of each scheme of addresses, below this package."""


def source_class(options: CaptureOptions) -> type[Source]:
    """The class of the source that the options name. `input-invalid` for an address that names none."""
    scheme, mark, _ = options.source.partition("://")
    if not mark or scheme not in _CLASSES:
        raise LakemirrorError(
            "input-invalid",
            "the source is no database that can be captured",
            hint="Give postgresql://, mariadb://, mysql:// or sqlserver://USER@HOST/DATABASE.",
        )
    module, _, name = _CLASSES[scheme].rpartition(".")
    found: type[Source] = getattr(importlib.import_module(f"{__package__}.{module}"), name)
    return found


def open_source(options: CaptureOptions, stopped: Callable[[], bool] = lambda: False) -> Source:
    """The source that the options name, to be used in a `with` block. `stopped`: True where a load shall end."""
    return source_class(options)(options, stopped)


def check(options: CaptureOptions) -> list[Need]:
    """What is missing at the source; nothing is changed."""
    with open_source(options) as source, source.asking():
        return source.needs()


def view(options: CaptureOptions, slot: str, position: int) -> SlotView:
    """What the source says of the log that this capture needs. `slot`: its name. `position`: that it has reached."""
    with open_source(options) as source, source.asking():
        return source.view(slot, position)


def give_back(options: CaptureOptions) -> list[str]:
    """Drops what the source keeps for the capture; returns what was dropped. `capture-taken` while it is read."""
    with open_source(options) as source, source.asking():
        return source.give_back()
