"""How far a capture is: positions in the footers of its change files, and in `_capture.json` for tables at rest.

The newest file of a table always stays in its folder (contract section 8), so its footer is the table's position.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.errors import LakemirrorError
from lakemirror.publisher.folders.table_folder import TableFolder, write_whole
from lakemirror.publisher.sequence import Sequence

FOOTER = "lakemirror.capture"
STATE_FILE = "_capture.json"
LOADING, STREAMING, WAITING, STOPPED = "loading", "streaming", "waiting", "stopped"


@dataclass(frozen=True, order=True)
class Position:
    """A place in the source's log: the position behind the commit, and the event's place in its transaction.

    In a file that ends within a transaction the commit is not known yet: `lsn` is then that of its last event.
    """

    lsn: int = 0
    order: int = 0


@dataclass(frozen=True)
class FilePosition:
    """What the footer of a change file says (sources.md, section 3). `log`: which log `last` is in, where a log may be
    begun again or be another server's; else empty."""

    source: str
    name: str
    first: Position
    last: Position
    transaction: int | str = 0
    final: bool = True
    log: str = ""

    def footer(self) -> dict[str, str]:
        """The entry for a Parquet file's metadata."""
        return {FOOTER: json.dumps(asdict(self))}

    @property
    def begin(self) -> int:
        """Where a stream must begin that goes on behind this file, for sources whose transactions come one by one.

        The position of an event of a transaction that has not ended is the one behind the transaction's begin.
        """
        return self.last.lsn if self.final else self.last.lsn - 1

    @classmethod
    def of_footer(cls, said: Mapping[str, Any] | None) -> FilePosition | None:
        """The position in a footer, as `newest_footer` gives it; None where no capture wrote the file."""
        if not said:
            return None
        known = {each.name: said[each.name] for each in fields(cls) if each.name in said}
        return cls(**{**known, "first": Position(**said["first"]), "last": Position(**said["last"])})


@dataclass(frozen=True)
class TableState:
    """`_capture.json` of a table folder: the phase of a table, which its files alone do not tell.

    `start`: events whose transaction was committed behind this position count; the load holds all before it.
    `error_code`, `error_message`: what stopped the table; `refused`: that was seen in the source's catalog, and the
    table is loaded again once it is gone. `form`: of the source's table that was loaded. `is_complete`: a load has
    ended, so the folder's files hold the whole table as of their position.
    """

    source: str
    name: str
    phase: str
    start: int = 0
    rows_loaded: int = 0
    error_code: str = ""
    error_message: str = ""
    form: dict[str, Any] | None = None
    refused: bool = False
    is_complete: bool = False


def stopped(state: TableState, error: LakemirrorError) -> TableState:
    """The state of a table that this error stops."""
    return replace(state, phase=STOPPED, error_code=error.code, error_message=error.message)


@dataclass(frozen=True)
class Newest:
    """The newest change file of a table: its number, and its position; None where no capture wrote it."""

    number: int
    position: FilePosition | None


def newest_position(folder: TableFolder) -> Newest:
    """The newest change file of a table folder; number 0 where there is none. `file-unreadable`."""
    number, said = newest_footer(folder)
    try:
        return Newest(number, FilePosition.of_footer(said))
    except (TypeError, KeyError) as error:
        raise _unreadable(folder, number, error) from error


def newest_footer(folder: TableFolder) -> tuple[int, dict[str, Any] | None]:
    """The number of the newest change file, 0 for none, and what its footer says: nothing where the file is gone, None
    where no capture wrote it. `file-unreadable`."""
    numbers = Sequence(folder)
    number = numbers.newest()
    name = numbers.find(number) if number else None
    if name is None:
        return number, {}
    try:
        with folder.open(name) as file:
            found = (pq.read_metadata(file).metadata or {}).get(FOOTER.encode())
        return number, None if found is None else dict(json.loads(found))
    except FileNotFoundError:
        return newest_footer(folder)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise _unreadable(folder, number, error) from error


def _unreadable(folder: TableFolder, number: int, error: Exception) -> LakemirrorError:
    name = Sequence(folder).name(number)
    message = f"{folder.path.name}: {name}: its position cannot be read: {error}"
    return LakemirrorError("file-unreadable", message, table=folder.path.name, file=name)


def read_state(folder: TableFolder) -> TableState | None:
    """What `_capture.json` of a table folder says; None where there is none, or none that can be read."""
    with suppress(FileNotFoundError, ValueError, TypeError), folder.open(STATE_FILE) as file:
        return TableState(**json.loads(file.read()))
    return None


def write_state(folder: TableFolder, state: TableState) -> None:
    """Makes `_capture.json` of a table folder this one, atomically."""
    _put(folder, asdict(state))


def _put(folder: TableFolder, content: Any) -> None:
    """Makes `_capture.json` of a folder this content, atomically."""
    folder.make()
    write_whole(folder, STATE_FILE, json.dumps(content, indent=1).encode() + b"\n")


class CaptureState:
    """`_capture.json` of the landing zone: up to where the source may be confirmed, and what `capture status` shows.

    Losing it costs nothing but the report: the tables' own files say how far each of them is.
    """

    def __init__(
        self,
        folder: TableFolder,
        origin: Mapping[str, Any],
        tell: Callable[[str], None],
        log_of: Callable[[int], str] = lambda _: "",
    ) -> None:
        """`folder`: the landing zone. `origin`: source, name, slot, as they are reported. `tell` gets sentences.
        `log_of`: which log a position is in, as in `FilePosition`."""
        self._folder, self._origin, self._tell, self._log_of = folder, origin, tell, log_of
        self._written = 0.0
        self.milliseconds = 0  # when the newest transaction was committed that is in the landing zone
        self._tables: dict[str, dict[str, Any]] = {}
        self._waiting: dict[str, str] = {}
        self.said = 0

    @property
    def age(self) -> float:
        """Seconds since the last write."""
        return time.monotonic() - self._written

    def committed(self, milliseconds: int) -> None:
        """Takes in when the newest transaction was committed that is in the landing zone (Unix ms)."""
        self.milliseconds = milliseconds or self.milliseconds
        self._waiting.clear()

    def waiting(self, table: tuple[str, str], error: LakemirrorError) -> None:
        """Takes in that the landing zone does not take a table's file."""
        name = ".".join(table)
        if self._waiting.get(name) != error.message:
            self._waiting[name] = error.message
            self._tell(f"{name} waits: {error}")

    def stopped(self, table: tuple[str, str], state: TableState, error: LakemirrorError) -> None:
        """Takes in that a table has stopped."""
        self.set(table, state)
        self._tell(f"{'.'.join(table)} stopped: {error}; {error.hint}")

    def set(self, table: tuple[str, str], state: TableState) -> None:
        """Takes in the phase of a table."""
        name = ".".join(table)
        self._tables[name] = {
            "table": name,
            "phase": state.phase,
            "rowsLoaded": state.rows_loaded,
            "position": state.start,
            "files": 0,
            "errorCode": state.error_code,
            "errorMessage": state.error_message,
        }

    def write(self, position: int, streams: Mapping[tuple[str, str], Any]) -> None:
        """Writes that everything up to this position is in the landing zone. `storage-unavailable`."""
        for table, stream in streams.items():
            self.set(table, stream.state)
            self._tables[".".join(table)].update(position=stream.position, files=stream.files)
        content = {
            **self._origin,
            "position": position,
            "time": time.time(),
            "committed": self.milliseconds / 1000,
            "log": self._log_of(position),
            "tables": list(self._tables.values()),
        }
        try:
            _put(self._folder, content)
        except OSError as error:
            raise LakemirrorError("storage-unavailable", f"{STATE_FILE}: {error}") from error
        self.said, self._written = max(self.said, position), time.monotonic()


def read_zone_state(folder: TableFolder) -> dict[str, Any] | None:
    """What `_capture.json` of the landing zone says; None where there is none, or none that can be read."""
    with suppress(FileNotFoundError, ValueError), folder.open(STATE_FILE) as file:
        said = json.loads(file.read())
        return said if isinstance(said, dict) and isinstance(said.get("position"), int) else None
    return None
