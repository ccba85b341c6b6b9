"""The command line: a thin skin over `lakemirror.database`.

Results on stdout, progress and messages on stderr. Exit codes: 0 done, 1 failed, 2 usage, 3 a table needs attention.
"""

from __future__ import annotations

import os
import sys
import threading

from lakemirror.cli.printable import make_streams_safe, printable, say
from lakemirror.cli.supervised import leave
from lakemirror.errors import LakemirrorError
from lakemirror.failures import coded


class _NoPandas:
    """Hides pandas: no command needs it, and pyarrow imports it at its first array, which takes as long as all else.

    `spark_session` takes it away where PySpark asks for pandas.
    """

    hides_pandas = True

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def main() -> None:
    """The `lakemirror` command.

    Python must not end while a thread waits in native code for a store that does not answer: that ends in an abort.
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
    try:
        from lakemirror.cli.commands import command_line  # takes long: Ctrl-C may come in between

        command_line(*sys.argv[1:2])()
    except LakemirrorError as error:
        _end(error)
    except SystemExit as ended:
        lookers = sys.modules.get("lakemirror.replication.lookers")
        if lookers is not None and any(each.name == lookers.LOOK for each in threading.enumerate()):
            leave(ended.code if isinstance(ended.code, int) else 0)
        raise
    except BrokenPipeError:  # whoever read our output has enough
        leave(1)
    except Exception as failure:  # the boundary around a command
        _end(coded(failure))


def _be_utf8() -> None:
    """Starts the command again in Python's UTF-8 mode where file names would be read in another encoding.

    Names of tables are UTF-8 whatever the locale says. What is printed stays in the terminal's encoding.
    """
    if sys.getfilesystemencoding().lower() in ("utf-8", "utf8") or sys.flags.utf8_mode:
        return
    output = getattr(sys.stdout, "encoding", None) or "ascii"
    environment = {**os.environ, "PYTHONUTF8": "1", "PYTHONIOENCODING": f"{output}:backslashreplace"}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def _end(error: LakemirrorError) -> None:
    """Says the error and ends with its exit code, without waiting for threads that the failure left behind."""
    say(f"{printable(str(error))}\n  {error.hint}")
    leave(error.exit_code)
