"""Settings: flag > environment (`LAKEMIRROR_…`) > `mirroring.json` > default. One class, one sentence each.

The sentence (`help`) feeds `--help` and `docs/reference/settings.md`; a test compares the page with this class.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lakemirror.bounded_json import parsed
from lakemirror.errors import LakemirrorError
from lakemirror.settings.setting_values import is_folder_name, options_of, readers_of, zoneless
from lakemirror.storage import Storage

DEFINITION = "mirroring.json"
MOST_BYTES = 1024 * 1024  # of the definition, which people write
_CACHE = "LAKEMIRROR_CACHE_DIR"  # counts for the whole process, also for settings made without the environment


# Who owns a setting, which is who may set it for a database (contract, service.md section 4):
DATABASE = "database"  # whoever may change the database's definition, over REST too
OPERATOR = "operator"  # only the operator: a flag, the environment, or mirroring.json by hand on the disk
PROCESS = "process"  # the operator too; one value for a whole process: no database of a service has its own
_EVERYBODY = (DATABASE, OPERATOR, PROCESS)


def _setting(default: Any, help: str, choices: tuple[str, ...] = (), owner: str = PROCESS) -> Any:
    """A setting belongs to the process until it says otherwise."""
    return field(default=default, metadata={"help": help, "choices": choices, "owner": owner})


@dataclass(frozen=True)
class DatabaseSettings:  # 27 fields: a field is the one place where a setting is declared
    """What a database may have of its own. Durations in seconds unless the name says days."""

    # the contract's options (sections 4, 5, 8, 9)
    default_schema: str = _setting(
        "", "Schema of tables without a schema folder; empty: directly under Tables/.", owner=DATABASE
    )
    retention_in_days: float = _setting(
        7.0, "How many days old Delta files are kept before VACUUM removes them.", owner=DATABASE
    )
    change_data_feed: bool = _setting(False, "Write Delta's change data feed on every mirrored table.", owner=DATABASE)
    processed_retention: float = _setting(
        7.0, "How many days applied files are kept in _ProcessedFiles.", owner=DATABASE
    )
    dropped_retention: float = _setting(
        7.0, "How many days dropped tables are kept in Files/_DroppedTables.", owner=DATABASE
    )
    drop_after: float = _setting(
        10.0,
        "Seconds that must pass between the first pass that misses a table's folder and the pass that drops it.",
        owner=OPERATOR,
    )
    settle: float = _setting(
        30.0, "Seconds an unfinished file may take before it counts as unreadable.", owner=OPERATOR
    )
    on_bad_file: str = _setting(
        "stop",
        "A file that cannot be applied stops its table (stop) or is moved to _QuarantinedFiles (quarantine).",
        ("stop", "quarantine"),
        owner=DATABASE,
    )
    on_type_change: str = _setting(
        "stop",
        "A file whose column has a wider type than the table's stops the table (stop) or widens the column (widen).",
        ("stop", "widen"),
        owner=DATABASE,
    )
    row_marker_misspelt: str = _setting(
        "error",
        "A column named like __rowMarker__, except for case, underscores, spaces and hyphens, in a file without a row "
        "marker: error, or a column of the table (column).",
        ("error", "column"),
        owner=DATABASE,
    )
    partial_row_missing: str = _setting(
        "error",
        "A partial row (__unchangedColumns__) whose key no row of the table has: error, or NULL in the columns that it "
        "leaves out, with a warning (null).",
        ("error", "null"),
        owner=DATABASE,
    )
    undeclared_columns: str = _setting(
        "error",
        "A column of a delimited file that SchemaDefinition does not name: error, or a column of strings (string).",
        ("error", "string"),
        owner=DATABASE,
    )
    zoneless: str = _setting(
        "utc",
        "How times without a time zone are read: as UTC (utc), kept in a timestamp_ntz column (ntz), or in a zone "
        "such as Europe/Berlin. A column keeps how its first such time was read.",
        owner=OPERATOR,
    )
    trust_footers: bool = _setting(
        False,
        "Trust the footers of change files that are copied as data files; otherwise every row of them is read.",
        owner=OPERATOR,
    )
    deletion_vectors: bool = _setting(
        True, "Use deletion vectors, so that an update does not rewrite whole files.", owner=DATABASE
    )
    column_mapping: bool = _setting(
        True, "Use column mapping for column names that Delta refuses without it.", owner=DATABASE
    )
    readers: tuple[str, ...] = _setting(
        (),
        "Clients that must be able to read every table, such as delta-rs@0.19,duckdb, or one table, such as "
        "sales.orders=duckdb; features they lack are dropped.",
        owner=DATABASE,
    )
    tables: tuple[tuple[str, str], ...] = _setting(
        (),
        'Options of many tables, by a pattern of their names, such as {"sales.*": {"deletes": "soft"}}: as under '
        "lakemirror in _metadata.json, which wins.",
        owner=DATABASE,
    )
    durability: str = _setting(
        "power",
        "What an apply survives: power: a power cut, files are synced before the commit; process: a killed process.",
        ("power", "process"),
        owner=OPERATOR,
    )
    # the loop of its tables
    batch_files: int = _setting(1000, "How many change files one apply may fold at most.", owner=OPERATOR)
    batch_bytes: int = _setting(
        2 * 1024**3, "How many bytes of change files one apply may fold (at least one file).", owner=OPERATOR
    )
    poll: float = _setting(
        0.3,
        "Least seconds between two commits of one table; `run` applies together what arrives in between.",
        owner=OPERATOR,
    )
    poll_idle: float = _setting(
        1.0, "Seconds between two checks for new files when nothing has arrived for a while.", owner=OPERATOR
    )
    retry_limit: float = _setting(
        300.0, "Longest pause in seconds between two attempts at a table that has an error.", owner=OPERATOR
    )
    maintenance: bool = _setting(
        True,
        "Merge small files; in idle time of `run` also rewrite deleted rows and remove unused files.",
        owner=OPERATOR,
    )
    verify_idle: bool = _setting(
        True,
        "In idle time of `run`, verify log, sizes, footers, vectors and positions; findings are warnings.",
        owner=OPERATOR,
    )
    executions_days: float = _setting(
        30.0,
        "How many days the table of executions (Tables/_lakemirror/executions) keeps what happened; 0: no such table.",
        owner=OPERATOR,
    )


@dataclass(frozen=True)
class ProcessSettings:  # 14 fields: a field is the one place where a setting is declared
    """What a process has once: memory, caches, engines, Spark. In a service, no definition is read for it."""

    # the engine
    engine: str = _setting(
        "auto",
        "Who does the row work: threads of this process (local), Spark tasks (spark), or both: what is large by Spark "
        "(auto).",
        ("auto", "local", "spark"),
    )
    memory: int = _setting(
        512 * 1024**2, "Bytes of rows that this process holds at once; what needs more is cut into parts."
    )
    spark_from_bytes: int = _setting(
        0,
        "Decoded bytes from which engine auto uses Spark: of a batch where a session, master or Connect address is "
        "given (0: 128 MiB); else of all that waits, which starts Spark in the background (0: 10 GiB). Below 32 MiB "
        "also the least that Spark's tasks do.",
    )
    parallel_tables: int = _setting(4, "How many tables are applied at once.")
    share: bool = _setting(
        False,
        "Share this database with other engines: each table is applied by one of them.",
    )
    key_index: bool = _setting(True, "Keep an index of the keys of large data files in the cache folder.")
    key_index_bytes: int = _setting(
        4 * 1024**3, "Bytes that the key index and copies of old rows may take; files beyond it are read by each apply."
    )
    store_cache_bytes: int = _setting(
        256 * 1024**2,
        "Bytes that commits, metadata and footers of object stores may take in the cache folder; 0: none are kept.",
    )
    # Spark
    master: str = _setting("", "Spark master; empty: local[*]. A Connect address is taken as spark_remote.")
    spark_remote: str = _setting(
        "", "Spark Connect address, such as sc://host:15002; wins over master; empty: classic Spark."
    )
    jars: str = _setting("", "Local Delta jars, comma separated, instead of the ones fetched once.")
    cache_dir: str = _setting(
        "",
        "Folder for jars, the start-up archive, key indexes and cached objects of stores; empty: ~/.cache/lakemirror.",
    )
    driver_memory: str = _setting("", "Heap of the local Spark, such as 4g; empty: Spark's default.")
    spark: tuple[tuple[str, str], ...] = _setting((), "Any spark.* setting, as KEY=VALUE; may be repeated.")

    @property
    def cache_folder(self) -> Path:
        """The folder for everything that is fetched or made once: `cache_dir`, here or in the environment."""
        return Path(self.cache_dir or os.environ.get(_CACHE) or "~/.cache/lakemirror").expanduser().absolute()

    @property
    def connect_address(self) -> str:
        """The Spark Connect address: `spark_remote`, or a Connect address where a master belongs. Empty: none is given.

        LakemirrorError `setting-invalid` for two different addresses.
        """
        options = dict(self.spark)
        masters = (self.master, options.get("spark.master", ""))
        given = [self.spark_remote, options.get("spark.remote", ""), *(m for m in masters if m.startswith("sc://"))]
        found = list(dict.fromkeys(filter(None, given)))
        if len(found) > 1:
            raise LakemirrorError(
                "setting-invalid", f"two Spark Connect addresses are given: {found[0]} and {found[1]}",
                hint="Give one: --spark-remote, or spark_remote.",
            )  # fmt: skip
        return found[0] if found else ""


@dataclass(frozen=True)
class Settings(ProcessSettings, DatabaseSettings):
    """Every setting: those of one database, and those of the process that applies it."""

    def with_definition(self, definition: Mapping[str, Any]) -> Settings:
        """These settings, overlaid by the contents of `mirroring.json` (contract section 9)."""
        return dataclasses.replace(self, **definition_values(definition))

    def with_environment(self, environment: Mapping[str, str] | None = None) -> Settings:
        """These settings, overlaid by `LAKEMIRROR_<NAME>` variables; `LAKEMIRROR_SPARK` holds KEY=VALUE,KEY=VALUE."""
        return dataclasses.replace(self, **environment_values(os.environ if environment is None else environment))

    def with_flags(self, **flags: Any) -> Settings:
        """These settings, overlaid by every flag that is not None."""
        return dataclasses.replace(self, **{k: converted(k, v) for k, v in flags.items() if v is not None})


def resolve(definition: Mapping[str, Any], **flags: Any) -> Settings:
    """The settings of one database: flags over environment over `mirroring.json` over defaults."""
    return Settings().with_definition(definition).with_environment().with_flags(**flags)


def definition_values(definition: Mapping[str, Any], owners: Collection[str] = _EVERYBODY) -> dict[str, Any]:
    """The settings of these owners in `mirroring.json`. LakemirrorError `definition-invalid`, `setting-invalid`."""
    named = named_in_definition(definition).items()
    return {name: converted(name, value, DEFINITION) for name, value in named if OWNERS[name] in owners}


def environment_values(environment: Mapping[str, str]) -> dict[str, Any]:
    """The settings that `LAKEMIRROR_…` variables name. LakemirrorError `setting-invalid`."""
    return {name: converted(name, value, variable(name)) for name, value in named_in_environment(environment).items()}


def named_in_definition(definition: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that `mirroring.json` names, with their values as they are written there."""
    properties = _inner(definition, "properties", "target", "typeProperties")
    found = {
        name: properties[key]
        for name, key in (
            ("default_schema", "defaultSchema"),
            ("retention_in_days", "retentionInDays"),
            ("change_data_feed", "enableDeltaChangeDataFeed"),
        )
        if properties.get(key) is not None
    }
    own = _inner(definition, "lakemirror").items()
    found.update((setting_named(key), value) for key, value in own if setting_named(key) and value is not None)
    return found


def setting_named(key: str) -> str:
    """The setting that a key under `lakemirror` in `mirroring.json` names; empty for an unknown key."""
    name = {"retention": "processed_retention"}.get(key, key)
    return name if name in _KINDS else ""


def named_in_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings that `LAKEMIRROR_…` variables name, with the variables' text."""
    return {name: environment[variable(name)] for name in _KINDS if variable(name) in environment}


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return f"LAKEMIRROR_{name.upper()}"


def converted(name: str, value: Any, source: str = "") -> Any:
    """A setting's value in its own type. `source`: `mirroring.json`, or a variable; empty: a flag.

    LakemirrorError `setting-invalid`; `definition-invalid` for a retention in `mirroring.json` outside of 1 to 30 days.
    """
    where = {"": name, DEFINITION: f"{name} in {DEFINITION}"}.get(source, source)
    result = _convert(name, value, where)
    if source == DEFINITION and name == "retention_in_days" and not 1 <= result <= 30:
        raise LakemirrorError("definition-invalid", "retentionInDays in mirroring.json must be between 1 and 30")
    return result


def parse_definition(data: bytes) -> Mapping[str, Any]:
    """The contents of `mirroring.json`; LakemirrorError `definition-invalid`."""
    try:
        found = parsed(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise LakemirrorError("definition-invalid", f"mirroring.json is not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise LakemirrorError("definition-invalid", "mirroring.json must hold a JSON object")
    return found


def read_definition(storage: Storage) -> Mapping[str, Any]:
    """The contents of the database's `mirroring.json`; empty if there is none.

    LakemirrorError `definition-invalid`, also if it is no regular file or has more than 1 MiB.
    """
    try:
        return parse_definition(storage.read(DEFINITION, MOST_BYTES))
    except FileNotFoundError:
        return {}
    except LakemirrorError as error:
        if error.code in ("path-refused", "content-too-large"):
            raise LakemirrorError("definition-invalid", error.message) from error
        raise


def _inner(value: Any, *path: str) -> Mapping[str, Any]:
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


_CHOICES: dict[str, tuple[str, ...]] = {f.name: f.metadata["choices"] for f in dataclasses.fields(Settings)}
OWNERS: dict[str, str] = {f.name: f.metadata["owner"] for f in dataclasses.fields(Settings)}
_KINDS: dict[str, type[Any]] = {f.name: type(f.default) for f in dataclasses.fields(Settings)}


def _convert(name: str, value: Any, where: str) -> Any:
    kind = _KINDS.get(name)
    try:
        if kind is bool and isinstance(value, str):
            return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[value.lower()]
        if kind is bool and not isinstance(value, bool):
            raise ValueError(value)
        if name == "tables":
            return options_of(value)
        if kind is tuple:
            if isinstance(value, str):
                value = [item for item in value.split(",") if item]
            if name == "readers":
                return readers_of(value)
            if isinstance(value, Mapping):
                return tuple((str(k), str(v)) for k, v in value.items())
            pairs = [item if isinstance(item, tuple) else tuple(item.split("=", 1)) for item in value]
            if any(len(pair) != 2 for pair in pairs):
                raise ValueError(value)
            return tuple(pairs)
        if kind in (int, float) and (isinstance(value, bool) or not 0 <= float(value) < math.inf):  # NaN, too
            raise ValueError(value)
        if kind is str and not isinstance(value, str | os.PathLike):
            raise ValueError(value)
        result = kind(value) if kind else value
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        wanted = _WANTED_BY.get(name) or _WANTED[kind or str]
        raise LakemirrorError("setting-invalid", f"{where}: {value!r} is not {wanted}") from error
    choices = _CHOICES.get(name, ())
    if choices and result not in choices:
        raise LakemirrorError("setting-invalid", f"{where}: {value!r} is not one of {', '.join(choices)}")
    if name == "default_schema" and not is_folder_name(result):
        raise LakemirrorError("setting-invalid", f"{where}: {value!r} is not the name of one folder below Tables/")
    return zoneless(result, where) if name == "zoneless" else result


_WANTED_BY = {"readers": "a list of clients", "tables": "an object of options by pattern"}
_WANTED: dict[type[Any], str] = {
    tuple: "a list of KEY=VALUE",
    int: "a whole number of 0 or more",
    float: "a number of 0 or more, and finite",
    bool: "true or false",
    str: "a text",
}
