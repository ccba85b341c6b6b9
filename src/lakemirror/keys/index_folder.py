"""The folder of the key index and of copies of rows: files for each data file, bounded in bytes.

    identity of a data file ─▶ <folder>/<table>/<digest>.keys, .rows   make_room: what is deleted when it is full

Several engines may share the folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import secrets
import time
from collections.abc import Hashable
from functools import cached_property, lru_cache
from pathlib import Path

from lakemirror import failpoints
from lakemirror.engines.kernels.data_rows import DataFile
from lakemirror.engines.row_work import Action, Target
from lakemirror.keys import look_up, row_file
from lakemirror.keys.key_file import identity_of
from lakemirror.keys.key_format import FAMILY, Damaged
from lakemirror.storage.own_files import begins_with, entries, is_own_file, remove_own_file, remove_work_folder
from lakemirror.storage.place import capabilities_of, local_path
from lakemirror.storage.place import place as place_at

USED_LATELY = 3600.0
"""Seconds after its last use in which an index is not deleted to make room."""

MOST_REMEMBERED = 64 * 1024
"""Paths that are kept in memory."""

BUILDING = ".building-"
"""What the folders begin with in which indexes are built."""

_LEFT_BEHIND = 3600.0  # seconds after which what a killed process was building is removed
_TABLE = re.compile("[0-9a-f]{32}")
_INDEX = re.compile(r"[0-9a-f]{32}\.(keys|rows)")
_BEGINS = begins_with(FAMILY, row_file.FAMILY)
_COPY = ".rows"


class IndexFolder:
    """The files of the key index. `path`: made when needed. `most_bytes`: the most that all files may take."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        self.path = path
        self.most_bytes = most_bytes
        self._swept = -_LEFT_BEHIND

    def of(self, target: Target) -> Path:
        """The folder of one table's indexes."""
        return self.path / _digest(str(place_at(target.path).absolute()))

    def index(self, identity: str, target: Target) -> Path:
        """The path of the index of the data file with this identity."""
        return index_in(self.of(target), identity)

    def copy(self, place: str, target: Target) -> Path:
        """The path of the copy of the rows of the data file at this place."""
        return self.of(target) / f"{_digest(place)}{_COPY}"

    @cached_property
    def seed(self) -> int:
        """The random number kept in this folder; a new one for this process if the folder's cannot be read."""
        seed, place = secrets.token_bytes(8), self.path / "seed"
        with contextlib.suppress(OSError):
            self.path.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError), place.open("xb") as file:
                file.write(seed)
            held = place.read_bytes()
            seed = held if len(held) == len(seed) else seed
        return int.from_bytes(seed, "little")

    def make_room(self, size: int, *, of_rows: bool = False) -> bool:
        """Deletes files whose data file is gone, then those whose last use is longest ago, until `size` bytes fit.

        Also what a killed process was building. Anything else in the folder is left alone, and does not count.
        Returns False if that is not enough: what was used within the last hour is not deleted. An index comes before
        all copies of rows. `of_rows`: for a copy, which takes the place of copies alone; these have half of the bytes.
        """
        now, held, total = time.time(), [], size
        is_to_sweep = time.monotonic() - self._swept >= _LEFT_BEHIND
        for path in self._entries():
            remove_work_folder(path, BUILDING, now - _LEFT_BEHIND)
            if is_index(path):
                with contextlib.suppress(OSError):
                    stat = path.stat()
                    held.append((path.suffix != _COPY, stat.st_mtime, stat.st_size, path))
                    total += stat.st_size
        held.sort()  # copies first
        over = max(total - self.most_bytes, _of_copies(held) + size - self.most_bytes // 2 if of_rows else 0)
        if is_to_sweep or over > 0:
            self._swept = time.monotonic()
            kept = []
            for each in held:
                if _is_orphan(each[3]):
                    self.drop(each[3])
                    over -= each[2]
                else:
                    kept.append(each)
            held = kept
        for is_keys, when, bytes, path in held:
            if over <= 0:
                break
            if (of_rows and is_keys) or (of_rows == (not is_keys) and now - when < USED_LATELY):
                continue
            self.drop(path)
            over -= bytes
        return over <= 0

    def drop(self, path: Path) -> None:
        """Deletes one file, also an index's summary in memory. A file that is neither index nor copy stays."""
        failpoints.reach("index.before-drop")
        look_up.LATELY_READ.drop(name_of(path))
        remove_index(path)

    def _entries(self) -> list[Path]:
        """What is in the folders of tables."""
        return [path for folder in entries(self.path) if _TABLE.fullmatch(folder.name) for path in entries(folder)]


def data_file_identity(add: Action, target: Target, columns: str) -> str:
    """A text that identifies a data file and its key columns. Errors: FileNotFoundError, other OSErrors."""
    file = DataFile.of(add, target)
    if capabilities_of(file.place).waits:  # names of data files are never reused, and a look would be a request
        return json.dumps([file.place, add.get("size"), add.get("modificationTime"), columns, file.constants])
    path = _absolute(file.place)
    stat = path.stat()
    return _identity(str(path), stat.st_size, stat.st_mtime_ns, columns, file.constants)


def key_columns_text(target: Target) -> str:
    """A text that identifies the key columns of a table."""
    return json.dumps([(column.physical_name, column.type, column.field_id) for column in target.keys])


def is_index(path: Path) -> bool:
    """True for a file that has the name and the first bytes of an index or a copy; it may be damaged."""
    return is_own_file(path, _INDEX, _BEGINS)


def remove_index(path: Path) -> None:
    """Deletes an index or a copy of rows; anything else stays."""
    remove_own_file(path, _INDEX, _BEGINS)


def name_of(path: Path) -> Hashable:
    """The name of an index's summary in the key cache."""
    return "key index", str(path)


@lru_cache(MOST_REMEMBERED)
def index_in(folder: Path, identity: str) -> Path:
    """The path of an index in the folder of its table."""
    return folder / f"{_digest(identity)}.keys"


@lru_cache(MOST_REMEMBERED)
def _absolute(path: str) -> Path:
    return Path(path).absolute()


@lru_cache(MOST_REMEMBERED)
def _identity(path: str, size: int, modified: int, columns: str, constants: tuple[tuple[str, str | None], ...]) -> str:
    return json.dumps([path, size, modified, columns, constants])


def _is_orphan(path: Path) -> bool:
    """True if the index's data file does not exist any more, or the index does not name it."""
    try:
        identity = row_file.identity_of(path) if path.suffix == _COPY else identity_of(path)
        data_file = local_path(str(json.loads(identity)[0]))
        return data_file is not None and not data_file.exists()
    except (Damaged, ValueError, LookupError, TypeError):
        return True
    except OSError:
        return False


def _of_copies(held: list[tuple[bool, float, int, Path]]) -> int:
    return sum(bytes for is_keys, _, bytes, _ in held if not is_keys)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
