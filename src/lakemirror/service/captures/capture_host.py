"""The captures of a service: what is declared, on disk, and the process of each.

A capture runs as long as it is declared and its database is there, whether or not the mirror runs: the landing zone is
the queue between them, so that a stopped mirror keeps back nothing in the source.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from lakemirror.errors import LakemirrorError
from lakemirror.failures import coded
from lakemirror.service.captures.capture_declaration import CaptureDeclaration, declared, shown
from lakemirror.service.captures.capture_process import CaptureProcess, command, environment
from lakemirror.service.interface import DatabaseEntry
from lakemirror.service.refused import Refused
from lakemirror.service.root_folder import read_object
from lakemirror.storage import Place
from lakemirror.storage.place import local_path, names_in
from lakemirror.storage.private_files import write_private

FOLDER = "captures"  # in the service's own folder
END_WITHIN = 40.0  # seconds that a change waits for the process before


@dataclass(frozen=True)
class CaptureSeen:
    """One capture at a look. `report`: what `lakemirror capture status --json` says, as it was reported last."""

    declaration: CaptureDeclaration
    state: str
    restarts: int
    error: LakemirrorError | None
    report: dict[str, Any] | None

    def row(self) -> dict[str, Any]:
        """The capture as REST shows it to the operator."""
        error = self.error
        said = None if error is None else {"errorCode": error.code, "message": error.message}
        return {"name": self.declaration.name, **self.declaration.content, **self._running(), "error": said}

    def view(self) -> dict[str, Any]:
        """The capture as everybody may read it who reads the database."""
        error = self.error
        said = None if error is None else {"code": error.code, "message": error.message, "hint": error.hint}
        named = {"name": self.declaration.name, "source": shown(self.declaration.source)}
        return {**named, **self._running(), "error": said}

    def _running(self) -> dict[str, Any]:
        return {"state": self.state, "restarts": self.restarts, "status": self.report}


class CaptureHost:
    """Declares, starts and ends captures. Safe to use from several threads."""

    def __init__(self, own: Place) -> None:
        """`own`: the service's own folder."""
        self._own = own
        self._changing = threading.Lock()  # held by changes of what is declared; no reader waits for the storage
        self._lock = threading.Lock()
        self._declared: dict[str, dict[str, CaptureDeclaration]] = {}  # by the database's id
        self._running: dict[tuple[str, str], CaptureProcess] = {}
        self._ending: dict[str, list[CaptureProcess]] = {}
        self._leaving: set[tuple[str, str]] = set()  # those that are being removed
        self._ended = False
        if (place := local_path(own / FOLDER)) is not None:
            place.mkdir(mode=0o700, exist_ok=True)
        self._there: set[str] = set()
        with contextlib.suppress(FileNotFoundError):
            self._there.update(name for name, _ in names_in(own / FOLDER))

    def follow(self, databases: Iterable[DatabaseEntry]) -> None:
        """Starts and ends processes, so that exactly the captures of these databases run."""
        there = {each.id: each for each in databases}
        with self._lock:
            for key in [key for key in self._running if key[0] not in there]:
                self._end(key)
            for database in there.values():
                self._start_missing(database)

    def declare(self, database: DatabaseEntry, declaration: CaptureDeclaration) -> bool:
        """Declares a capture, or another one of its name, and starts it; True for a new one.

        Refused 409 where the database has another capture: their tables would meet.
        """
        with self._changing:
            with self._lock:
                before = self._of(database.id)
            if others := before.keys() - {declaration.name}:
                raise Refused(409, "OperationNotSupportedForItem", f"The database has a capture {min(others)} already.")
            self._store(database.id, {declaration.name: declaration})
            with self._lock:
                self._end((database.id, declaration.name))
        self._wait_ended(database.id)
        with self._lock:
            self._start_missing(database)
        return declaration.name not in before

    def remove(self, database: DatabaseEntry, name: str, *, give_back: bool) -> bool:
        """Ends a capture and forgets it; False where there is none. `give_back`: what the source keeps for it, too.

        LakemirrorError `capture-source-failed` where the source does not answer: then the capture is still declared.
        """
        with self._lock:
            declaration = self._of(database.id).get(name)
            if declaration is None:
                return False
            self._leaving.add((database.id, name))
            self._end((database.id, name))
        try:
            self._wait_ended(database.id)
            if give_back:
                self._give_back(database.folder, declaration)
            with self._changing:
                self._store(database.id, {each: kept for each, kept in self._of(database.id).items() if each != name})
        finally:
            with self._lock:
                self._leaving.discard((database.id, name))
                self._start_missing(database)
        return True

    def reload(self, database: DatabaseEntry, name: str, tables: tuple[str, ...]) -> bool:
        """Loads tables again; False where there is no such capture."""
        with self._lock:
            process = self._running.get((database.id, name))
        if process is not None:
            process.reload(tables)
        return process is not None

    def forget(self, database_id: str) -> None:
        """Ends and forgets the captures of a database that is deleted. Does not wait."""
        with self._changing:
            with self._lock:
                self._declared[database_id] = {}
                for key in [key for key in self._running if key[0] == database_id]:
                    self._end(key)
            with contextlib.suppress(FileNotFoundError):
                self._file(database_id).unlink()

    def has_ended(self, database_id: str) -> bool:
        """True where no process of a capture of this database is left."""
        with self._lock:
            return not self._is_ending(database_id) and not any(key[0] == database_id for key in self._running)

    def seen(self, database: DatabaseEntry) -> Iterator[CaptureSeen]:
        """The captures of a database."""
        with self._lock:
            found = [(each, self._running.get((database.id, name))) for name, each in self._of(database.id).items()]
        for declaration, process in found:
            if process is None:
                yield CaptureSeen(declaration, "Starting", 0, None, None)
            else:
                yield CaptureSeen(declaration, process.state, process.restarts, process.error, process.report)

    def shutdown(self, patience: float) -> bool:
        """Ends all captures; True once they have, False after `patience` seconds."""
        with self._lock:
            self._ended = True
            for key in list(self._running):
                self._end(key)
            ending = [each for some in self._ending.values() for each in some]
        deadline = time.monotonic() + patience
        return all(each.ended.wait(max(0.0, deadline - time.monotonic())) for each in ending)

    def _of(self, database_id: str) -> dict[str, CaptureDeclaration]:
        """What is declared of a database."""
        found = self._declared.get(database_id)
        if found is None:
            found = {}
            file = self._file(database_id)
            stored = read_object(file.parent, file.name) if file.name in self._there else None
            for name, content in (stored or {}).items():
                with contextlib.suppress(Refused):  # written by hand, or by a newer version
                    found[name] = declared(name, content)
            self._declared[database_id] = found
        return found

    def _store(self, database_id: str, captures: dict[str, CaptureDeclaration]) -> None:
        """LakemirrorError `storage-unavailable`."""
        content = {name: each.content for name, each in captures.items()}
        try:
            write_private(self._file(database_id), json.dumps(content, indent=1).encode() + b"\n")
        except OSError as failure:
            raise coded(failure) from failure
        with self._lock:
            self._declared[database_id] = captures

    def _file(self, database_id: str) -> Place:
        return self._own / FOLDER / f"{database_id}.json"

    def _start_missing(self, database: DatabaseEntry) -> None:
        """Starts what is declared of a database and does not run, once the processes before have ended."""
        if self._ended or self._is_ending(database.id):
            return
        workspace = "" if database.workspace is None else f"{database.workspace.name}/"
        named = f"{workspace}{database.display_name}"
        for name, declaration in self._of(database.id).items():
            key = (database.id, name)
            if key not in self._running and key not in self._leaving:
                self._running[key] = CaptureProcess(declaration, database.folder, self._own, named)

    def _end(self, key: tuple[str, str]) -> None:
        process = self._running.pop(key, None)
        if process is not None:
            process.stop()
            self._ending.setdefault(key[0], []).append(process)

    def _is_ending(self, database_id: str) -> bool:
        left = [each for each in self._ending.get(database_id, ()) if not each.ended.is_set()]
        self._ending[database_id] = left
        return bool(left)

    def _wait_ended(self, database_id: str) -> None:
        deadline = time.monotonic() + END_WITHIN
        for each in list(self._ending.get(database_id, ())):
            each.ended.wait(max(0.0, deadline - time.monotonic()))

    def _give_back(self, folder: Place, declaration: CaptureDeclaration) -> None:
        password = declaration.password(self._own)
        bare = replace(declaration, options={})
        words = [*command("drop", folder, bare, password), "--yes"]
        try:
            done = subprocess.run(
                words, input=(password or "").encode(), capture_output=True, env=environment(self._own, folder),
                timeout=60, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise LakemirrorError("capture-source-failed", "the source did not answer for a minute") from error
        if done.returncode:
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise LakemirrorError("capture-source-failed", lines[0] if lines else "the source gave nothing back")
