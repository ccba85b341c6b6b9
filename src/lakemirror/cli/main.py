"""The command line: a thin skin over `lakemirror.api`.

Results on stdout, progress and messages on stderr. Exit codes: 0 done, 1 failed, 2 usage, 3 a table needs attention.
"""

from __future__ import annotations

import os
import sys
import threading

from lakemirror.cli.printable import make_streams_safe, printable, say
from lakemirror.cli.start import importing, without_blas_threads
from lakemirror.cli.supervised import leave
from lakemirror.errors import LakemirrorError
from lakemirror.failures import coded


class _NoPandas:
    """Hides pandas: no command needs it, and its import by pyarrow takes as long as all other imports. `spark_session`
    ends this if PySpark needs pandas.
    """

    hides_pandas = True

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def main() -> None:
    """The `lakemirror` command.

    Python aborts if it ends while a thread waits in native code for a store that does not answer, or while Java runs in
    this process and gives an object back.
    """
    try:
        _carry_out()
    except KeyboardInterrupt:  # perhaps the second one, while the command was ending because of the first
        leave(130)


def _carry_out() -> None:
    """Runs the command that the arguments name. KeyboardInterrupt, or SystemExit with the exit code."""
    if sys.argv[1:2] != ["demo"]:  # its flights come as pandas frames
        sys.meta_path.insert(0, _NoPandas)
    make_streams_safe()
    _be_utf8()
    without_blas_threads()
    try:
        with importing():  # takes long: Ctrl-C may come in between
            from lakemirror.cli.commands import command_line

            command = command_line(*sys.argv[1:2])
        command()
    except LakemirrorError as error:
        _end(error)
    except SystemExit as ended:
        queue, jpype = sys.modules.get("lakemirror.mirror.queue"), sys.modules.get("jpype")
        is_applying = queue is not None and any(thread.name == queue.STEP for thread in threading.enumerate())
        if is_applying or (jpype is not None and jpype.isJVMStarted()):
            leave(ended.code if isinstance(ended.code, int) else 0)
        raise
    except BrokenPipeError:  # whoever read our output has enough
        leave(1)
    except Exception as failure:  # the boundary around a command
        _end(coded(failure))


def _be_utf8() -> None:
    """Restarts the command in Python's UTF-8 mode if file names would be read in another encoding.

    Names of tables are UTF-8, whatever the locale. Output stays in the terminal's encoding.
    """
    if sys.getfilesystemencoding().lower() in ("utf-8", "utf8") or sys.flags.utf8_mode:
        return
    output = getattr(sys.stdout, "encoding", None) or "ascii"
    environment = {**os.environ, "PYTHONUTF8": "1", "PYTHONIOENCODING": f"{output}:backslashreplace"}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def _end(error: LakemirrorError) -> None:
    """Prints the error and ends with its exit code, without waiting for threads that still run."""
    say(f"{printable(str(error))}\n  {error.hint}")
    leave(error.exit_code)
