"""Which database an address names: the one place that knows all sources of a capture.

Their modules are imported when they are needed: a driver that is not installed stops nobody else.
"""

from __future__ import annotations

from collections.abc import Callable

from lakemirror.errors import LakemirrorError
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.capture_status import SlotView
from lakemirror.publisher.capture.source_interface import Source
from lakemirror.publisher.capture.source_needs import Need

_POSTGRESQL = ("postgresql", "postgres")
_MARIADB = ("mariadb", "mysql")
_SQLSERVER = ("sqlserver",)


def needs_java(options: CaptureOptions, *, streams: bool = True) -> bool:
    """True if the stream of this source is Debezium's, which runs on Java; or, for SQL Server, any question to it."""
    return _scheme(options) in (_SQLSERVER + _POSTGRESQL if streams else _SQLSERVER)


def has_cuts(options: CaptureOptions) -> bool:
    """True if a loaded table is exactly as at its position. SQL Server's may hold some changes behind it."""
    return not options.source.startswith("sqlserver:")


def open_source(options: CaptureOptions, stopped: Callable[[], bool] = lambda: False) -> Source:
    """The source that the options name, to be used in a `with` block. `stopped`: True where a load shall end."""
    if _scheme(options) in _POSTGRESQL:
        from lakemirror.publisher.capture.postgresql.source import PostgresSource

        return PostgresSource(options, stopped)
    if _scheme(options) in _SQLSERVER:
        from lakemirror.publisher.capture.sqlserver.sqlserver_source import SqlServerSource

        return SqlServerSource(options, stopped)
    from lakemirror.publisher.capture.mariadb.mariadb_source import MariaDbSource

    return MariaDbSource(options, stopped)


def check(options: CaptureOptions) -> list[Need]:
    """What is missing at the source; nothing is changed."""
    if _scheme(options) in _POSTGRESQL:
        from lakemirror.publisher.capture.postgresql.source_check import check_source
    elif _scheme(options) in _SQLSERVER:
        from lakemirror.publisher.capture.sqlserver.sqlserver_check import check_source
    else:
        from lakemirror.publisher.capture.mariadb.mariadb_check import check_source
    return check_source(options)


def view(options: CaptureOptions, name: str, position: int) -> SlotView:
    """What the source says of the log that this capture needs. `name`: of its slot. `position`: that it has reached."""
    if _scheme(options) in _POSTGRESQL:
        from lakemirror.publisher.capture.postgresql.slot import view_slot

        return view_slot(options, name)
    if _scheme(options) in _SQLSERVER:
        from lakemirror.publisher.capture.sqlserver.sqlserver_source import view_change_tables

        return view_change_tables(options, position)
    from lakemirror.publisher.capture.mariadb.binlog_files import view_binlog

    return view_binlog(options, position)


def give_back(options: CaptureOptions) -> list[str]:
    """Drops what the source keeps for the capture; returns what was dropped. `capture-taken` while it is read."""
    if _scheme(options) in _MARIADB + _SQLSERVER:
        return []  # these keep nothing for a reader of their log
    from lakemirror.publisher.capture.postgresql import slot

    return slot.give_back(options)


def _scheme(options: CaptureOptions) -> str:
    scheme = options.source.partition("://")[0]
    if "://" not in options.source or scheme not in _POSTGRESQL + _MARIADB + _SQLSERVER:
        raise LakemirrorError(
            "input-invalid",
            "the source is no database that can be captured",
            hint="Give postgresql://, mariadb://, mysql:// or sqlserver://USER@HOST/DATABASE.",
        )
    return scheme
