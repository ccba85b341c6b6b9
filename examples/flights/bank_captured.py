"""`lakemirror demo --postgres`: pgbench moves money in a PostgreSQL database, and the Delta tables follow.

    pgbench ─▶ PostgreSQL ─▶ lakemirror capture ─▶ landing zone ─▶ lakemirror run ─▶ Delta tables, cut after cut

Each of pgbench's transactions adds one amount to an account, a teller and a branch, and notes it. So the four sums
agree in every consistent picture, and in no other.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from flights.performance import clear
from lakemirror.api import MirroredDatabase
from lakemirror.delta.log import read_snapshot
from lakemirror.engines.kernels.live_rows import live_rows
from lakemirror.engines.target import target_of
from lakemirror.errors import LakemirrorError, SetupError
from lakemirror.mirror.cut_versions import Cut

SUMS = {
    "public.pgbench_accounts": "abalance", "public.pgbench_tellers": "tbalance",
    "public.pgbench_branches": "bbalance", "public.pgbench_history": "delta",
}  # fmt: skip
SCALE = 2  # times 100,000 accounts
RATE = 300  # transactions a second, of four changes each
_START = 120.0  # seconds that the tables get to be loaded
_SHOWN = 6  # cuts


def mirror_bank(root: Path, seconds: int) -> bool:
    """Starts a server, lets pgbench run for so long, and prints the sums at each cut; True where all agree.

    A folder that an earlier demo made is replaced. LakemirrorError `setting-invalid`; SetupError `demo-data-missing`
    where no server is installed, `capture-extra-missing`.
    """
    console = Console(highlight=False)
    clear(root)
    root.mkdir(parents=True, exist_ok=True)
    (root / "mirrored-by-lakemirror-demo").touch()
    database = root / "bank"
    with _server() as server:
        _pgbench(server, "-i", "-q", "-s", str(SCALE)).wait()
        server.ask("alter table pgbench_history replica identity full")  # it has no key: its inserts are captured
        console.print(f"PostgreSQL with {SCALE * 100_000:,} accounts: {server.url}", style="bold")
        with _lakemirror("capture", str(database), "--from", server.url, *_CAPTURE) as capture:
            _wait_for_cut(database, capture)
            with _lakemirror("run", str(database), "--engine", "local"):
                work = _pgbench(server, "-n", "-c", "2", "-R", str(RATE), "-T", str(seconds))
                cuts = _follow(console, database, work)
        with _lakemirror("capture", str(database), "--from", server.url, *_CAPTURE, "--once") as capture:
            capture.wait()
        mirrored = MirroredDatabase(database, engine="local")
        mirrored.sync()
        wanted = server.total()
        cuts = {**cuts, **_reached(mirrored, cuts)}
    console.print(_shown(cuts, seconds))
    wrong = [number for number, sums in cuts.items() if len(set(sums.values())) != 1]
    last = cuts[max(cuts)]["public.pgbench_history"] if cuts else None
    for number in wrong:
        console.print(f"WRONG: cut {number}: {cuts[number]}", style="bold red")
    if last != wanted:
        console.print(f"WRONG: the source's sum is {wanted:,}, the tables' is {last}", style="bold red")
    if not wrong and last == wanted and len(cuts) > 1:
        console.print(
            f"The four sums agree at each of {len(cuts)} cuts; the last is the source's: {wanted:,}.", style="green"
        )
        return True
    return False


_CAPTURE = ("--tables", "public.*", "--insert-only", "public.pgbench_history", "--cut", "2")


@dataclass(frozen=True)
class _Server:
    """A PostgreSQL server of the demo's own, on loopback."""

    binaries: Path
    port: int

    @property
    def url(self) -> str:
        return f"postgresql://bank@127.0.0.1:{self.port}/postgres"

    def total(self) -> int:
        """The sum of all amounts that were moved."""
        return int(self.ask("select coalesce(sum(delta), 0)::bigint from pgbench_history")[0][0])

    def ask(self, statement: str) -> list[Any]:
        """Runs a statement; returns its rows. SetupError `capture-extra-missing`."""
        try:
            import psycopg
        except ImportError as error:
            raise SetupError("capture-extra-missing", "the package psycopg is not installed") from error
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


@contextmanager
def _server() -> Iterator[_Server]:
    """A server that ends with the block, as another user where this is root. SetupError `demo-data-missing`."""
    binaries = _binaries()
    made = tempfile.TemporaryDirectory(prefix="lakemirror-demo-", ignore_cleanup_errors=True)
    with made as name, _running(binaries, Path(name)) as port:
        yield _Server(binaries, port)


@contextmanager
def _running(binaries: Path, folder: Path) -> Iterator[int]:
    """The port of a new server with its data in this folder."""
    as_user = _other_user(folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    data = str(folder / "data")
    made = [*as_user, str(binaries / "initdb"), "-D", data, "-A", "trust", "-U", "bank", "-E", "UTF8", "--no-sync"]
    done = subprocess.run(made, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SetupError("demo-data-missing", f"initdb failed: {done.stderr.strip().splitlines()[-1]}")
    options = {
        "port": port, "wal_level": "logical", "listen_addresses": "127.0.0.1", "unix_socket_directories": "",
        "fsync": "off",
    }  # fmt: skip
    words = [
        *as_user,
        str(binaries / "postgres"),
        "-D",
        data,
        *(f"--{name}={value}" for name, value in options.items()),
    ]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(words, cwd=folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        ready = [str(binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
        while subprocess.run(ready, check=False).returncode:
            if process.poll() is not None or time.monotonic() > end:
                said = (folder / "log").read_text(errors="replace").strip().splitlines()[-1:]
                raise SetupError("demo-data-missing", f"PostgreSQL does not start: {' '.join(said)}")
            time.sleep(0.1)
        yield port
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def _binaries() -> Path:
    """The folder of the newest server that is installed, with pgbench. SetupError `demo-data-missing`."""
    found = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if (path / "pgbench").exists()]
    on_path = shutil.which("initdb")
    found += [Path(on_path).parent] if on_path and (Path(on_path).parent / "pgbench").exists() else []
    if not found:
        raise SetupError(
            "demo-data-missing",
            "no PostgreSQL server with pgbench is installed",
            hint="Install one: on Debian, as root, apt-get install postgresql postgresql-contrib.",
        )
    return found[-1]


def _other_user(folder: Path) -> list[str]:
    """Words before a command that make it another user's: PostgreSQL does not run as root."""
    if os.geteuid() != 0:
        return []
    names = {each.pw_name for each in pwd.getpwall()}
    user = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
    shutil.chown(folder, user.pw_uid, user.pw_gid)
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


def _pgbench(server: _Server, *options: str) -> subprocess.Popen[bytes]:
    words = ["-h", "127.0.0.1", "-p", str(server.port), "-U", "bank", *options, "postgres"]
    return subprocess.Popen(
        [str(server.binaries / "pgbench"), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


@contextmanager
def _lakemirror(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command of lakemirror, which is ended with the block; what it says goes to stderr if it fails."""
    process = subprocess.Popen(
        [sys.executable, "-m", "lakemirror.cli", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        _, said = process.communicate(timeout=60)
        if process.returncode not in (0, -signal.SIGTERM):
            sys.stderr.write(said.decode("utf-8", "replace"))


def _wait_for_cut(database: Path, capture: subprocess.Popen[bytes]) -> None:
    """Waits until all tables are loaded: then the stream of changes begins."""
    end = time.monotonic() + _START
    folders = database / "Files/LandingZone/public.schema"
    while sum('"streaming"' in file.read_text() for file in folders.glob("*/_capture.json")) < len(SUMS):
        if capture.poll() is not None or time.monotonic() > end:
            raise LakemirrorError("internal", "the tables were not loaded")
        time.sleep(0.2)


def _follow(console: Console, database: Path, work: subprocess.Popen[bytes]) -> dict[int, dict[str, int]]:
    """Shows each cut as the tables reach it, while pgbench works; returns the sums by the cut's number."""
    mirrored = MirroredDatabase(database, engine="local")
    cuts: dict[int, dict[str, int]] = {}
    begun = time.monotonic()
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while work.poll() is None:
            cuts.update(_reached(mirrored, cuts))
            live.update(_shown(cuts, time.monotonic() - begun), refresh=True)
            time.sleep(0.5)
    return cuts


def _shown(cuts: dict[int, dict[str, int]], seconds: float) -> Table:
    title = f"pgbench: {RATE} transactions a second, {seconds:.0f} s; the sums at each cut"
    shown = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    for heading in ("cut", "accounts", "tellers", "branches", "history", "agree"):
        shown.add_column(heading, justify="right")
    for number in sorted(cuts)[-_SHOWN:]:
        sums = cuts[number]
        agree = "yes" if len(set(sums.values())) == 1 else "NO"
        shown.add_row(str(number), *(f"{sums[table]:,}" for table in SUMS), agree)
    return shown


def _reached(mirrored: MirroredDatabase, known: dict[int, dict[str, int]]) -> dict[int, dict[str, int]]:
    """The sums at the newest cuts that all tables have reached and that are not known yet."""
    found = {}
    for cut in mirrored.cuts():
        if cut.number in known:
            break
        if cut.is_complete and set(cut.versions) == set(SUMS):
            found[cut.number] = _sums(cut)
    return found


def _sums(cut: Cut) -> dict[str, int]:
    """The sum of each table at its version of the cut."""
    return {table.name: _sum(table.path, cut.versions[table.name], SUMS[table.name]) for table in cut.tables}


def _sum(path: str, version: int, column: str) -> int:
    snapshot = read_snapshot(path, version)
    if snapshot is None:
        raise LakemirrorError("internal", f"{path}: there is no table")
    target = target_of(path, snapshot.metadata.value)
    parts = (rows[column] for add in snapshot.files.values() for rows in live_rows(add, target))
    return sum(int(pc.sum(part.cast(pa.int64())).as_py() or 0) for part in parts)


__all__ = ["mirror_bank"]
