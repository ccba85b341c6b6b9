"""The one Spark session: the active one, one of a Connect server, or else a new one.

    settings ─▶ options (pure) ─▶ JVM ─▶ session

Mirroring needs no Delta jar. Only the SQL route of table features, and tests that read tables as users do, use `delta`.

Spark prints nothing to the terminal: its errors go to a file in the cache (`logs/`), made with the first error.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lakemirror.errors import SetupError
from lakemirror.settings.settings import ProcessSettings
from lakemirror.spark_session import jars, java, jvm
from lakemirror.spark_session.archive_path import find_archive
from lakemirror.spark_session.connect_server import check_listens, is_remote
from lakemirror.spark_session.log_files import new_log_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",  # 50 by default: a fixed cost for every table
    # the list of files in checksum files too: Delta collects it with a Spark job at a table's first commit
    "spark.databricks.delta.allFilesInCrc.enabled": "false",
}

QUIET_AND_SMALL = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # entries that the status store keeps of finished work: a service runs for months
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "500",
    "spark.sql.ui.retainedExecutions": "10",
}

SHORT_RUN = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
"""Compiles quickly to slower code: less CPU wherever Python workers do the row work, more for SQL on millions of rows.

With one compiler Java's default code cache is 48 MB, which ten minutes of Spark fill. Then a fifth of the processor
time goes into code that is discarded and compiled again. 240 MB is the default for two compilers.
"""

_COMBINED = {  # options to which the user's value is added, with the separator
    "spark.driver.extraJavaOptions": " ",
    "spark.driver.extraClassPath": os.pathsep,
    "spark.jars": ",",
    "spark.sql.extensions": ",",
}


def start(
    settings: ProcessSettings, *, delta: bool = False, short: bool = False, verbose: bool = False
) -> SparkSession:
    """The session of `settings.connect_address`, or the active session as it is, or else a new one: of spark-submit, of
    SPARK_REMOTE if no master is given, or local unless `settings.master` says otherwise.

    `delta`: with Delta's jars, which are fetched where they are not in the cache yet. `short`: a JVM that starts faster
    and computes slower, as each has without `delta`: Python workers do the row work of a mirror. `verbose` lets Spark
    print to the terminal. In `settings.spark` every spark.* option wins over ours, and is added to ours where a list is
    meant (class path, Java options, jars, extensions).

    LakemirrorError `setting-invalid`, SetupError `pyspark-missing`, `java-missing`, `spark-failed`, `jars-missing`, or
    `spark-unsupported` for a session without Delta where `delta` is asked for.
    """
    with _starting:
        _show_pandas()
        _check_installed()
        if _has_ended():
            stop()
        if settings.connect_address:
            session = _remote(settings.connect_address)
        else:
            active = _active()
            if active is not None:
                session = active
            elif "PYSPARK_GATEWAY_PORT" in os.environ:
                session = _of_spark_submit(settings, delta=delta)
            elif remote := remote_variable(settings):
                session = _remote(remote)
            else:
                session = _new(settings, delta=delta, short=short, verbose=verbose)
    if delta:
        _check_delta(session)
    return session


def remote_variable(settings: ProcessSettings) -> str:
    """The Connect address in the variable SPARK_REMOTE, as PySpark reads it; empty if a master is given."""
    master = settings.master or dict(settings.spark).get("spark.master")
    return "" if master else os.environ.get("SPARK_REMOTE", "")


def stop(session: SparkSession | None = None, *, patience: float = 60.0) -> bool:
    """Ends a session that `start` made, with its JVM, and waits for its end. Does nothing to other sessions.

    False if the JVM was killed because it had not ended after `patience` seconds.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    remote = _own.get("remote")
    if remote is not None and session in (None, remote):
        del _own["remote"]
        with contextlib.suppress(Exception):
            remote.stop()
        return True
    gateway = SparkContext._gateway
    if gateway is None or gateway is not _own.get("gateway") or (session is not None and _was_stopped(session)):
        return True  # nothing of ours runs, or only what was started after this session
    session = session or SparkSession._instantiatedSession
    with contextlib.suppress(Exception):  # the JVM may go away meanwhile
        if session is not None:
            if _has_ended():
                session.sparkContext._jsc = None  # nobody is there to be told
            session.stop()
    _own.clear()
    ended = jvm.end(gateway, patience=patience)
    _forget()
    return ended


def is_over(session: SparkSession) -> bool:
    """True for a classic session that was stopped, and for one that `start` made whose process has ended."""
    return _was_stopped(session) or (getattr(session, "_sc", None) is not None and _has_ended())


def options(
    settings: ProcessSettings,
    *,
    delta_jars: tuple[Path, ...] = (),
    archive: Path | None = None,
    log_file: Path | None = None,
    short: bool = False,
    cores: int | None = None,
) -> dict[str, str]:
    """Every spark.* option of a new session, with Delta where its jars are given.

    The jars go on the driver's class path, because the class-data archive holds nothing that another loader loads;
    executors elsewhere get them by spark.jars.
    """
    own = dict(settings.spark)
    master = own.get("spark.master") or settings.master or "local[*]"
    result = {
        "spark.master": master,
        "spark.app.name": "lakemirror",
        "spark.sql.shuffle.partitions": str(cores or os.cpu_count() or 1),
        "spark.sql.warehouse.dir": str(jars.cache_folder(settings) / "warehouse"),
        "spark.driver.extraJavaOptions": _java_options(
            archive=archive, log_file=log_file, short=short or not delta_jars
        ),
        **QUIET_AND_SMALL,
    }
    if delta_jars:
        result |= {"spark.driver.extraClassPath": os.pathsep.join(map(str, delta_jars)), **DELTA}
    if settings.driver_memory:
        result["spark.driver.memory"] = settings.driver_memory
    if jvm.is_local(master):
        result |= {} if own.keys() & jvm.DRIVER_ADDRESS.keys() else jvm.DRIVER_ADDRESS
    elif delta_jars:
        result["spark.jars"] = ",".join(map(str, delta_jars))
    for key, value in settings.spark:
        result[key] = _combine(key, result.get(key, ""), value)
    return result


def _java_options(*, archive: Path | None, log_file: Path | None, short: bool) -> str:
    """Flags of the JVM. -Xlog:disable hides the warning about an archive that does not fit."""
    flags = ["-Xlog:disable", "-XX:-UsePerfData", "-Xshare:auto"]
    if archive:
        flags.append(_quoted(f"-XX:SharedArchiveFile={archive}"))
    if short:
        flags.append(SHORT_RUN)
    if log_file:
        flags.append(_quoted(f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}"))
        flags.append(_quoted(f"-Dlakemirror.log={log_file}"))
        flags.append(_quoted(f"-XX:ErrorFile={log_file.with_suffix('.crash')}"))
    return " ".join(flags)


def _quoted(flag: str) -> str:
    return f'"{flag}"' if " " in flag else flag


def _combine(key: str, ours: str, theirs: str) -> str:
    separator = _COMBINED.get(key)
    if separator is None or not ours or ours in theirs:
        return theirs
    return f"{ours}{separator}{theirs}"


_own: dict[str, Any] = {}
_starting = threading.Lock()


def _was_stopped(session: SparkSession) -> bool:
    context = getattr(session, "_sc", None)
    return context is not None and context._jsc is None


def _has_ended() -> bool:
    """True if the JVM that `start` made has ended by itself."""
    process = getattr(_own.get("gateway"), "proc", None)
    return process is not None and process.poll() is not None


def _new(settings: ProcessSettings, *, delta: bool, short: bool, verbose: bool) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    if delta:
        _check_version()
    chosen = java.find()
    delta_jars = jars.ensure(settings) if delta else ()
    chosen_options = options(
        settings,
        delta_jars=delta_jars,
        archive=find_archive(settings, chosen, delta_jars),
        log_file=None if verbose else new_log_file(jars.cache_folder(settings) / "logs"),
        short=short,
    )
    if not verbose:
        _silence_pyspark()
    gateway = jvm.launch(chosen_options, chosen, verbose=verbose)
    conf = SparkConf(loadDefaults=False)
    for key, value in chosen_options.items():
        conf.set(key, value)
    try:
        with _keep_interrupt_handler(), jvm.environment(_variables(chosen_options)):
            context = SparkContext(conf=conf, gateway=gateway)
            session = SparkSession.builder.getOrCreate()
    except Exception as error:
        jvm.end(gateway)
        _forget()
        raise SetupError("spark-failed", f"Spark did not start: {_first_line(error)}") from error
    _own["gateway"] = context._gateway
    return session


def _variables(options: Mapping[str, str]) -> dict[str, str | None]:
    """What PySpark reads while the context starts. With SPARK_REMOTE it makes no classic session."""
    return {"PYSPARK_PYTHON": jvm.python_of(options), "SPARK_REMOTE": None}


def _forget() -> None:
    """Lets pyspark start again: else it would call the JVM that is gone."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _show_pandas() -> None:
    """Lets pandas be imported: PySpark asks for it before it runs an Arrow function. The commands hide it."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not getattr(finder, "hides_pandas", False)]


def _remote(address: str) -> SparkSession:
    """The session of a Connect server."""
    if "remote" in _own:
        return cast("SparkSession", _own["remote"])
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None:
        raise SetupError("spark-unsupported", f"this process has a classic Spark session: it cannot use {address}")
    check_listens(address)
    try:
        session = SparkSession.builder.remote(address).getOrCreate()
        version = session.version
    except Exception as error:
        raise SetupError(
            "spark-failed", f"the Spark Connect server {address} cannot be used: {_first_line(error)}"
        ) from error
    log.info("Spark Connect %s at %s", version, address)
    _own["remote"] = session
    return session


def _active() -> SparkSession | None:
    """The session that is already active in this process, classic or Connect; None if there is none."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote

    if is_remote():
        return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    if SparkContext._active_spark_context is None:
        return None
    return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()


def _of_spark_submit(settings: ProcessSettings, *, delta: bool) -> SparkSession:
    """A session in the JVM that spark-submit made; its options and ours, of which its own win."""
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    given = SparkConf()
    builder = SparkSession.builder
    wanted = {"spark.app.name": "lakemirror", "spark.master": settings.master, **QUIET_AND_SMALL}
    if delta:
        wanted |= DELTA
    for key, value in wanted.items():
        if value and not given.contains(key):
            builder = builder.config(key, value)
    for key, value in settings.spark:
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _check_installed() -> None:
    """SetupError `pyspark-missing` without PySpark: only engine spark and Delta's SQL need it."""
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        raise SetupError("pyspark-missing", f"this needs Spark, and PySpark cannot be imported: {error}") from error


def _check_version() -> None:
    """SetupError `spark-unsupported` where Delta's jars are for another Spark than the one that is installed."""
    import pyspark

    version: str = pyspark.__version__
    if not version.startswith(f"{jars.SPARK_VERSION}."):
        raise SetupError(
            "spark-unsupported",
            f"Delta's SQL needs PySpark {jars.SPARK_VERSION}, and {version} is installed",
            hint="In a separate environment, run: pip install 'lakemirror[features]'. Mirroring works without it.",
        )


def _check_delta(session: SparkSession) -> None:
    """SetupError `spark-unsupported` for a session that does not know Delta's SQL."""
    if DELTA["spark.sql.extensions"] in (session.conf.get("spark.sql.extensions", "") or ""):
        return
    if is_remote(session):  # a managed server has Delta's SQL and does not show its settings
        try:
            session.sql("DESCRIBE DETAIL delta.`/`")
            return
        except Exception as error:
            if "PARSE_SYNTAX_ERROR" not in str(error):
                return
    raise SetupError("spark-unsupported", "the active Spark session has no Delta extension")


def _silence_pyspark() -> None:
    """Keeps pyspark and its way to the JVM from printing each exception to stderr before it raises it."""
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    logging.getLogger().addFilter(_is_not_of_py4j)  # py4j writes to the root logger where a JVM has died


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return record.module != "java_gateway"


@contextlib.contextmanager
def _keep_interrupt_handler() -> Iterator[None]:
    """Restores the caller's SIGINT handler, which pyspark replaces by its own."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        own = handler not in (signal.default_int_handler, signal.SIG_DFL, None)
        if own and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


def _first_line(error: Exception) -> str:
    java_error: Mapping[str, Any] = vars(error)
    text = str(java_error.get("java_exception") or error).strip()
    return text.splitlines()[0] if text else type(error).__name__
