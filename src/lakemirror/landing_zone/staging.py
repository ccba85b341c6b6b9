"""Delimited text as Parquet with its rows in their order, which is what the kernels read.

orders/region=eu/00000000000000000007.csv  ─▶  Files/_Staged/<process>/00000000000000000012.parquet
"""

from __future__ import annotations

import contextlib
import os
import re
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.errors import LakemirrorError, Rejected, TableError
from lakemirror.landing_zone.change_file import ChangeFile
from lakemirror.landing_zone.metadata import TableMetadata
from lakemirror.landing_zone.zoneless import Zones, always_utc
from lakemirror.storage import Entry, Storage

STAGED = "Files/_Staged"
_AT_ONCE = 4
_FOLDER = re.compile(f"{STAGED}/[0-9a-f]{{32}}")
_FILE = re.compile(r"/[0-9]{20}\.parquet")
_PARQUET = b"PAR1"


class Staging:
    """The staged files of one table in one process. `sweep` removes the files of a killed process."""

    def __init__(self, storage: Storage, memory: int) -> None:
        """`memory`: the budget in bytes that the files staged at once share."""
        self._storage = storage
        self._memory = memory
        self._place = f"{STAGED}/{uuid.uuid4().hex}"

    def stage_all(
        self, files: Sequence[ChangeFile], metadata: TableMetadata, *, undeclared: str,
        zone: Callable[[str], str] = always_utc,
    ) -> tuple[list[ChangeFile], Rejected | None]:  # fmt: skip
        """The files as Parquet, several at a time, up to the first that cannot be read, and why.

        `undeclared`, `zone`: as for `stage`. LakemirrorError `concurrent-commit` where one is gone: another engine
        has applied it.
        """
        staged: list[ChangeFile] = []
        with ThreadPoolExecutor(max(1, min(_AT_ONCE, os.cpu_count() or 1))) as pool:
            at_work = deque(pool.submit(self.stage, file, metadata, undeclared=undeclared, zone=zone) for file in files)
            try:
                while at_work:
                    staged.append(at_work.popleft().result())
            except TableError as error:
                return staged, Rejected.of(error)
            except FileNotFoundError as error:
                self.clear(staged)
                gone = files[len(staged)].entry.path
                raise LakemirrorError("concurrent-commit", f"{gone} is gone") from error
            finally:
                for behind in at_work:
                    if not behind.cancel() and behind.exception() is None:
                        self.clear([behind.result()])
        return staged, None

    def stage(
        self, file: ChangeFile, metadata: TableMetadata, *, undeclared: str, zone: Callable[[str], str] = always_utc
    ) -> ChangeFile:
        """The file as Parquet. TableError where its rows cannot be read; FileNotFoundError.

        `undeclared`: what becomes of columns that SchemaDefinition does not name, `error` or `string`. `zone`: how a
        column reads times without a zone, as `Zones.of`.
        """
        from lakemirror.landing_zone.delimited import convert

        target, zones = self._target(file), Zones(zone)
        try:
            with self._storage.open(file.entry.path) as source, self._storage.create(target) as sink:
                warned = convert(
                    source, sink, file=file.entry.path, metadata=metadata, undeclared=undeclared,
                    memory=self._memory, zones=zones,
                )  # fmt: skip
        except BaseException:
            self._storage.delete(target)
            raise
        with self._storage.open(target) as converted:
            footer = pq.read_metadata(pa.PythonFile(converted, mode="r"))
        return replace(file, read_from=target, footer=footer, warnings=warned, zones=zones.met)

    def clear(self, files: Iterable[ChangeFile]) -> None:
        """Removes the staged files among these."""
        for file in files:
            if file.read_from:
                self._storage.delete(file.read_from)

    def _target(self, file: ChangeFile) -> str:
        return f"{self._place}/{file.number:020d}.parquet"


def sweep(storage: Storage, older_than: float = 86_400.0, now: float | None = None) -> None:
    """Removes what killed processes have left, once it is so many seconds old: the Parquet files of `_target`.

    Anything else stays, and so does a folder that holds it.
    """
    before = ((time.time() if now is None else now) - older_than) * 1e9
    try:
        listing = storage.list(STAGED)
    except (FileNotFoundError, LakemirrorError):
        return
    ours = [folder for folder in listing.folders if _FOLDER.fullmatch(folder)]
    young = {entry.path.rpartition("/")[0] for entry in listing.files if entry.modified >= before}
    for folder in ours:
        if folder not in young:
            with contextlib.suppress(LakemirrorError, FileNotFoundError):
                _sweep_folder(storage, folder)


def _sweep_folder(storage: Storage, folder: str) -> None:
    for entry in storage.list(folder).files:
        if _FILE.fullmatch(entry.path[len(folder) :]) and _is_parquet(storage, entry):
            storage.delete(entry.path)
    left = storage.list(folder)
    if not (left.files or left.folders or left.others or left.errors):
        storage.delete(folder)


def _is_parquet(storage: Storage, entry: Entry) -> bool:
    with storage.open(entry.path) as file:
        head = file.read(len(_PARQUET))
    return head == _PARQUET[: len(head)]  # a killed process may have written none of it
