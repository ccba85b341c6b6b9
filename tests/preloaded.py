"""Processes that begin with everything imported: forks of one process, which the first of them starts.

    Popen, run ─▶ socket: words, environment, folder; stdin, stdout, stderr ─▶ the process that forks ─▶ the fork
                        ◀─ process number, then how it ended

As `subprocess.Popen` and `subprocess.run`, for `[sys.executable, "-m" or "-c" or a script, …]`. A fork is a process
like any other: it has its own environment and folder, it can be killed, and it ends as any Python does; but it begins
in a fifth of the time. Tests of the start itself, and of what is imported, start Python. `program` is for shells.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
import warnings
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "lakemirror"
MODULES = (
    "pyarrow.parquet",
    "pyarrow.compute",
    "pyarrow.csv",
    "pyarrow.json",
    "numpy",
    "pandas",  # pyarrow imports it, in 0.3 s, with the first value that it converts
    "pyroaring",
    "rich.progress",
    "hypothesis",
    "pytest",
    "lakemirror.api",
)
FOLDERS = (
    "cli", "mirror", "landing_zone", "engines", "delta", "keys", "parquet", "maintenance", "features", "publisher",
    "storage", "verify",
)  # fmt: skip
SERVICE = "lakemirror.cli.serve"  # imported once a command asks for it

PROGRAM = """#!{python} -IS
import json, os, signal, socket, sys

words = [*{words}, *sys.argv[1:]]
asked = {{"words": words, "environment": dict(os.environ), "folder": os.getcwd(), "new_session": False}}
with socket.socket(socket.AF_UNIX) as answers:
    answers.connect({address!r})
    socket.send_fds(answers, [json.dumps(asked).encode() + b"\\n"], [0, 1, 2])
    numbers = answers.makefile("r")
    fork = int(numbers.readline())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: os.kill(fork, number))
    ended = os.waitstatus_to_exitcode(int(numbers.readline()))
if ended < 0:
    signal.signal(-ended, signal.SIG_DFL) if -ended != signal.SIGKILL else None
    os.kill(os.getpid(), -ended)
sys.exit(ended)
"""


class Popen(subprocess.Popen[Any]):
    """A fork of the process that has imported everything."""

    def _execute_child(  # type: ignore[override]
        self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any, cwd: Any, env: Any,
        startupinfo: Any, creationflags: Any, shell: Any, p2cread: int, p2cwrite: int, c2pread: int, c2pwrite: int,
        errread: int, errwrite: int, restore_signals: Any, gid: Any, gids: Any, uid: Any, umask: Any,
        start_new_session: bool, *_: Any,
    ) -> None:  # fmt: skip
        assert not preexec_fn and not pass_fds and str(args[0]) == sys.executable, args
        request = {
            "words": [os.fspath(word) for word in args[1:]],
            "environment": dict(os.environ if env is None else env),
            "folder": os.path.abspath(cwd or "."),  # noqa: PTH100
            "new_session": start_new_session,
        }
        standard = [own if own != -1 else number for number, own in enumerate((p2cread, c2pwrite, errwrite))]
        self._answers = socket.socket(socket.AF_UNIX)
        self._answers.connect(_address())
        socket.send_fds(self._answers, [json.dumps(request).encode() + b"\n"], standard)
        self.pid = _number(self._answers)
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)

    def _internal_poll(self, _deadstate: Any = None, **_: Any) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(False):
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if pid == self.pid and self.returncode is None:
                    self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._answers.fileno() < 0:  # nobody waited, and the garbage collector has closed it before this object
            return self.pid, 0
        self._answers.setblocking(wait_flags == 0)
        try:
            status = _number(self._answers)
        except BlockingIOError:
            return 0, 0
        self._answers.close()
        return self.pid, status


def run(
    words: Any, *, input: Any = None, capture_output: bool = False, timeout: float | None = None, check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:  # fmt: skip
    """As `subprocess.run`."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        options["stdin"] = subprocess.PIPE
    with Popen(words, **options) as process:
        try:
            out, err = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(words, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def program(path: Path, *words: str) -> None:
    """Makes a program for shells: `words`, as for Python, and then those that it is called with."""
    path.write_text(PROGRAM.format(python=sys.executable, words=words, address=_address()), encoding="utf-8")
    path.chmod(0o755)


@cache
def _address() -> str:
    """Starts the process that forks. It ends with this one."""
    folder = tempfile.mkdtemp(prefix="lakemirror-preloaded-")
    address = f"{folder}/socket"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.preloaded", address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    assert process.stdin is not None and process.stdout is not None

    def end(owner: int = os.getpid()) -> None:
        if os.getpid() == owner:  # not of a fork of this process
            process.stdin.close()  # type: ignore[union-attr]
            process.wait(30)
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    assert process.stdout.readline() == b"ready\n"
    return address


def _number(answers: socket.socket) -> int:
    """The next number. It ends with its line: the number of a process that ends at once is followed by its status."""
    data = b""
    while not data.endswith(b"\n"):
        byte = answers.recv(1)
        if not byte:
            raise EOFError("the process that forks has ended")
        data += byte
    return int(data)


def _forks(address: str) -> tuple[dict[str, Any], list[int]] | None:
    """Forks for every request. Returns a request, with its files, in the fork; None where no more come."""
    children: dict[int, socket.socket] = {}
    signals, signalled = socket.socketpair()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    signalled.setblocking(False)
    signals.setblocking(False)
    signal.set_wakeup_fd(signalled.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with selectors.DefaultSelector() as selector:
        for each in (0, signals, listener):
            selector.register(each, selectors.EVENT_READ)
        print("ready", flush=True)
        while True:
            for key, _ in selector.select():
                if key.fileobj == 0:
                    return None
                if key.fileobj is signals:
                    signals.recv(4096)
                    _tell_ends(children)
                    continue
                connection, _ = listener.accept()
                request, files = _request(connection)
                if pid := os.fork():
                    children[pid] = connection
                    connection.send(b"%d\n" % pid)
                    for file in files:
                        os.close(file)
                    continue
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests run in the background
                for each in (listener, signals, signalled, connection, *children.values()):
                    each.close()
                return request, files


def _tell_ends(children: dict[int, socket.socket]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with children.pop(pid) as connection, contextlib.suppress(OSError):  # nobody may wait for it any more
            connection.send(b"%d\n" % status)


def _request(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    data, files, _, _ = socket.recv_fds(connection, 1 << 16, 3)
    while not data.endswith(b"\n"):
        data += connection.recv(1 << 16)
    request = json.loads(data)
    if "serve" in request["words"]:
        importlib.import_module(SERVICE)
    return request, files


def _import_all() -> None:
    for name in MODULES:
        importlib.import_module(name)
    for folder in FOLDERS:
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            if "spark" not in path.as_posix().removeprefix(str(PACKAGE)) and path.name not in (
                "serve.py",
                "__main__.py",
            ):
                name = path.relative_to(PACKAGE.parent).with_suffix("").as_posix().replace("/", ".")
                with contextlib.suppress(ImportError):
                    importlib.import_module(name.removesuffix(".__init__"))
    gc.collect()
    gc.freeze()


def _begin(request: dict[str, Any], files: list[int]) -> None:
    """Makes the fork what a new Python would be, and runs what it is for."""
    if request["new_session"]:
        os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    os.chdir(request["folder"])
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    for number, name in ((1, "stdout"), (2, "stderr")):
        raw = io.BufferedWriter(io.FileIO(number, "w", closefd=False))
        line_by_line = number == 2 or os.isatty(number)
        unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
        stream = io.TextIOWrapper(
            raw, "utf-8", "backslashreplace" if number == 2 else None, line_buffering=line_by_line,
            write_through=unbuffered,
        )  # fmt: skip
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    if added := os.environ.get("PYTHONPATH"):
        sys.path[:0] = added.split(os.pathsep)
    kind, *words = request["words"]
    if kind == "-W":
        warnings.simplefilter(words[0])  # type: ignore[arg-type]
        kind, *words = words[1:]
    if kind == "-m":
        sys.argv = words
        sys.path.insert(0, request["folder"])
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *words[1:]]
        sys.path.insert(0, "")
        main = types.ModuleType("__main__")
        sys.modules["__main__"] = main
        exec(compile(words[0], "<string>", "exec"), main.__dict__)
    else:
        assert not kind.startswith("-"), kind
        sys.argv = [kind, *words]
        sys.path.insert(0, str(Path(kind).parent))
        runpy.run_path(kind, run_name="__main__")


def _end(request: dict[str, Any], files: list[int]) -> None:
    """Runs the request and ends the fork as Python ends, but without the C++ libraries' own clean-up: that of a fork
    sometimes aborts, because they clean up threads that only the first process had."""
    code: object = 0
    interrupted = False
    try:
        _begin(request, files)
    except SystemExit as ended:
        code = ended.code
    except KeyboardInterrupt:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        interrupted = True
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        code = 1
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    if interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit((code or 0) & 0xFF)


if __name__ == "__main__":
    address = sys.argv[1]
    os.fsync = os.fstat  # type: ignore[assignment] # as in tests/conftest.py
    sys.path.pop(0)  # the folder that this process was started in
    _import_all()
    if (forked := _forks(address)) is not None:
        _end(*forked)
