"""One declared capture as a process: `lakemirror capture`, started again when it ends.

    start ─▶ password by a pipe ─▶ reports on its stdout, sentences on its stderr ─▶ it ends ─▶ a pause ─▶ start

A service that is killed leaves the process alone for a moment: it ends as soon as nobody reads its reports.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import subprocess
import sys
import threading
import time
from typing import IO, Any

from lakemirror.error_codes import CODES
from lakemirror.errors import LakemirrorError
from lakemirror.failures import coded
from lakemirror.service.captures.capture_declaration import SECRETS, VARIABLE, CaptureDeclaration
from lakemirror.storage import Place
from lakemirror.storage.addresses import parse_address
from lakemirror.storage.connections import options_of
from lakemirror.storage.place import local_path

log = logging.getLogger("lakemirror")

REPORTS = 5.0  # seconds between two reports
PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)  # seconds before it is started again
SETTLED = 15.0  # seconds of running after which an earlier error is over
STEADY = 60.0  # seconds of running after which the first of them counts
PATIENCE = 20.0  # seconds that it gets to end by itself
_ERROR = re.compile(r"([a-z]+(?:-[a-z]+)+): .")
_NAMED = frozenset({"HOME", "JAVA_HOME", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "TEMP", "TMP",
                    "TMPDIR", "TZ", "USER", "VIRTUAL_ENV"})  # fmt: skip
_PASSED = ("LAKEMIRROR_", "LC_", "OPENLINEAGE_", "OTEL_", "PYTHON", "SSL_CERT_", "XDG_")
_OF_STORES = ("AWS_", "AZURE_", "GOOGLE_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_KEPT_BACK = ("LAKEMIRROR_CREDENTIAL", VARIABLE)


class CaptureProcess:
    """Keeps the process of one capture running until `stop`. Its thread ends soon after."""

    def __init__(self, declaration: CaptureDeclaration, folder: Place, own: Place, database: str) -> None:
        """`folder`: of the mirrored database, whose name for people is `database`. `own`: the service's own folder."""
        self.declaration = declaration
        self.report: dict[str, Any] | None = None
        self.error: LakemirrorError | None = None
        self.restarts = 0
        self.ended = threading.Event()
        self._folder, self._own, self._database = folder, own, database
        self._reload: tuple[str, ...] = ()
        self._state, self._begun = "Starting", 0.0
        self._stop, self._soon = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        threading.Thread(target=self._run, name=f"capture-{declaration.name}", daemon=True).start()

    @property
    def state(self) -> str:
        """`Starting`, `Running` once it reports, `Waiting` for its next start, `Stopping`."""
        return "Stopping" if self._stop.is_set() else self._state

    def stop(self) -> None:
        """Asks the process to end. Does not wait."""
        self._stop.set()
        self._soon.set()
        self._terminate()

    def reload(self, tables: tuple[str, ...]) -> None:
        """Starts the process again at once; it loads these tables again."""
        self._reload = tables
        self._soon.set()
        self._terminate()

    def _run(self) -> None:
        failed = 0
        while not self._stop.is_set():
            self._begun = time.monotonic()
            self._soon.clear()
            self._state = "Starting"
            try:
                self._once()
            except Exception as failure:  # the boundary around one capture
                self._failed(coded(failure))
            if self._stop.is_set():
                break
            failed = 0 if time.monotonic() - self._begun > STEADY else failed + 1
            self.restarts += 1
            self._state = "Waiting"
            self._soon.wait(PAUSES[min(failed, len(PAUSES)) - 1 if failed else 0])
        self.ended.set()

    def _once(self) -> None:
        """One run of the process."""
        password = self.declaration.password(self._own)
        words = [*command("follow", self._folder, self.declaration, password), f"--report={REPORTS:g}"]
        reload = self._reload
        words += [f"--reload={table}" for table in reload]
        with self._lock:
            if self._stop.is_set():
                return
            process = self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env=environment(self._own, self._folder), start_new_session=True,
            )  # fmt: skip
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        speech = threading.Thread(target=self._listen, args=(process.stderr,), daemon=True)
        speech.start()
        with contextlib.suppress(BrokenPipeError), process.stdin as sink:
            sink.write((password or "").encode())
        for line in process.stdout:
            self._reported(line, reload)
        self._await(process)
        speech.join(PATIENCE)
        self._say(
            logging.INFO if self._stop.is_set() else logging.WARNING, f"ended with exit code {process.returncode}"
        )

    def _reported(self, line: bytes, reload: tuple[str, ...]) -> None:
        with contextlib.suppress(ValueError):
            found = json.loads(line)
            if isinstance(found, dict):
                self.report, self._state = found, "Running"
                if found.get("walStatus") is not None and time.monotonic() - self._begun > SETTLED:
                    self.error = None
                    if self._reload == reload:
                        self._reload = ()  # what is to be loaded is noted in the landing zone by now

    def _listen(self, stream: IO[bytes]) -> None:
        """Passes on what the process says, and remembers its last error."""
        for line in stream:
            text = line.decode("utf-8", "replace").rstrip()
            found = _ERROR.match(text)
            if found is not None and found[1] in CODES:
                self.error = LakemirrorError(found[1], text.partition(": ")[2])
            if text:
                self._say(logging.WARNING if found else logging.INFO, text.strip())

    def _failed(self, error: LakemirrorError) -> None:
        if str(error) != str(self.error):
            self._say(logging.ERROR, str(error))
        self.error = error

    def _say(self, level: int, message: str) -> None:
        name = self.declaration.name
        more = {"database": self._database, "capture": name}
        log.log(level, "%s/%s: %s", self._database, name, message, extra=more)

    def _terminate(self) -> None:
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                self._process.terminate()
                threading.Thread(target=self._await, args=(self._process,), daemon=True).start()

    def _await(self, process: subprocess.Popen[bytes]) -> None:
        """Waits for the end of a process that was asked to end, or whose output has ended; kills it if it must be."""
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def command(act: str, folder: Place, declaration: CaptureDeclaration, password: str | None) -> list[str]:
    """The words of a command of `lakemirror capture`; it reads the password from its stdin where there is one, and the
    options of an object store from its environment."""
    words = [sys.executable, "-m", "lakemirror.cli", "capture", act, str(folder), *declaration.words()]
    words += [f"--storage={name}" for name in _store_options(folder)] if act == "follow" else []
    return words if password is None else [*words, "--password-file=/dev/stdin"]


def environment(own: Place, folder: Place) -> dict[str, str]:
    """What a capture's process needs of the service's environment: no secret, but those of the store it publishes to.

    Nothing that databases' libraries look for is in it: the declaration says all of the source.
    """
    begins = (*_PASSED, *(_OF_STORES if local_path(folder) is None else ()))
    kept = {
        name: value for name, value in os.environ.items()
        if name in _NAMED or (name.upper().startswith(begins) and not name.startswith(_KEPT_BACK))
    }  # fmt: skip
    return {**kept, **_store_options(folder), "PGPASSFILE": str(own / SECRETS / ".pgpass")}


def _store_options(folder: Place) -> dict[str, str]:
    """The options that the service was given for the store."""
    return options_of(parse_address(str(folder))[0]) if local_path(folder) is None else {}
