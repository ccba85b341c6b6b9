"""The command line: a thin skin over `lakemirror.database`.

Results on stdout, progress and messages on stderr. Exit codes: 0 done, 1 failed, 2 usage, 3 a table needs attention.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from lakemirror.cli import access as cli_access
from lakemirror.cli import features as cli_features
from lakemirror.cli.acts import pause, replay, restore, resume, resync
from lakemirror.cli.check import check
from lakemirror.cli.config import config
from lakemirror.cli.doctor import doctor
from lakemirror.cli.engine_options import EngineName, Master, SparkRemote, SparkSetting, StorageOptions
from lakemirror.cli.init import init
from lakemirror.cli.narration import log_to_stderr
from lakemirror.cli.printable import make_streams_safe, printable, say
from lakemirror.cli.publish import publish
from lakemirror.cli.run import run
from lakemirror.cli.serve import serve
from lakemirror.cli.status import status
from lakemirror.cli.supervised import leave
from lakemirror.cli.sync import sync
from lakemirror.cli.tables import tables
from lakemirror.cli.verify import verify
from lakemirror.errors import LakemirrorError
from lakemirror.failures import coded
from lakemirror.landing_zone.database_folder import database_place

app = typer.Typer(
    help="Open Mirroring: change files in a folder become live Delta tables, exactly once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from lakemirror import __version__

        print(f"lakemirror {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    into: Annotated[Path, typer.Option(help="Where the demo's database is made.")] = Path("demo-output"),
    days: Annotated[int | None, typer.Option(help="Only the first days of the year.", min=1, max=365)] = None,
    engine: EngineName = None,
    master: Master = None,
    spark_remote: SparkRemote = None,
    spark: SparkSetting = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Start the service on loopback and publish through it; see its page.")
    ] = False,
    on: Annotated[
        str,
        typer.Option("--on", help="Mirror in an object store instead, such as s3://bucket/demo.", metavar="ADDRESS"),
    ] = "",
    storage: StorageOptions = None,
    port: Annotated[int, typer.Option(help="With --serve: the port to listen on; 0: any.", min=0, max=65535)] = 8443,
) -> None:
    """Mirror a year of real flights, and check the tables against the source.

    Example: lakemirror demo

    Example: lakemirror demo --serve

    Example: lakemirror demo --on s3://lake/demo --days 14
    """
    log_to_stderr(False)
    if on:
        from lakemirror.demo.in_store import mirror_in_store
        from lakemirror.storage.place import StorePath

        found = database_place(on)
        if not isinstance(found, StorePath):
            raise LakemirrorError("setting-invalid", f"--on {on} is no address of an object store")
        if not mirror_in_store(found, days, **({"engine": engine} if engine else {})):
            raise typer.Exit(1)
        return
    if serve:
        from lakemirror.demo.served import serve_flights

        if not serve_flights(into, days, port):
            raise typer.Exit(1)
        return
    from lakemirror.demo.performance import perform

    if not perform(into, days, master=master, spark=spark or None):
        raise typer.Exit(1)


app.command()(sync)
app.command()(run)
app.command()(status)
app.command()(doctor)
app.command()(init)
app.command()(config)
app.command()(check)
app.command()(publish)
app.command()(serve)
app.add_typer(cli_access.app, name="access")
app.command()(verify)
app.command()(tables)
for act in (pause, resume, resync, replay, restore):
    app.command()(act)
app.add_typer(cli_features.app, name="features")
app.command()(cli_features.compat)
app.command()(cli_features.sql)


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
    if sys.argv[1:2] != ["demo"]:  # its flights come as pandas frames
        sys.meta_path.insert(0, _NoPandas)
    _be_utf8()
    make_streams_safe()
    try:
        app()
    except LakemirrorError as error:
        _end(error)
    except SystemExit as ended:
        from lakemirror.replication.lookers import LOOK

        if any(each.name == LOOK for each in threading.enumerate()):
            leave(ended.code if isinstance(ended.code, int) else 0)
        raise
    except KeyboardInterrupt:
        sys.exit(130)
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
