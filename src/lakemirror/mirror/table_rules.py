"""What the settings mean for one table: its Delta properties, how its columns may grow, what one commit takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lakemirror.delta.protocol import FEED_COLUMNS
from lakemirror.engines.engine import Preference, preference_of
from lakemirror.landing_zone.zoneless import NTZ, UNREADABLE
from lakemirror.mirror.next_batch import Limits
from lakemirror.mirror.schema_evolution import ColumnRules
from lakemirror.settings.settings import Settings
from lakemirror.storage.durable import POWER


@dataclass(frozen=True)
class TableRules:
    """The settings of one table.

    `properties`: the Delta properties that they ask for. `columns`: how its columns may grow. `limits`: of one commit.
    `preference`: for an engine. `trust_footers`: change files may become data files unread. `durability`: as for
    `delta.commit`. `null_if_missing`: as of `RowWork`.
    """

    properties: Mapping[str, str] = field(default_factory=dict)
    columns: ColumnRules = field(default_factory=ColumnRules)
    limits: Limits = field(default_factory=Limits)
    preference: Preference = field(default_factory=Preference)
    trust_footers: bool = False
    durability: str = POWER
    null_if_missing: bool = False


def allowed(settings: Settings, table: str = "") -> Settings:
    """The settings without features that a declared reader cannot read. LakemirrorError `client-unknown`.

    `table`: for that table, such as `sales.orders`; empty: what holds for every table.
    """
    if not settings.readers:
        return settings
    from lakemirror.features.compatibility import features_all_read, find_clients

    for text in settings.readers:
        find_clients(client_of(text))
    features = features_all_read(client_of(text) for text in settings.readers if concerns(text, table))
    return replace(
        settings,
        deletion_vectors=settings.deletion_vectors and "deletionVectors" in features,
        column_mapping=settings.column_mapping and "columnMapping" in features,
        on_type_change=settings.on_type_change if "typeWidening" in features else "stop",
        zoneless=UNREADABLE if settings.zoneless == NTZ and "timestampNtz" not in features else settings.zoneless,
    )


def concerns(reader: str, table: str) -> bool:
    """True for a client of the whole database, `duckdb`, and for one of this table, `sales.orders=duckdb`."""
    return reader.rpartition("=")[0] in ("", table)


def client_of(reader: str) -> str:
    """The client that a declared reader names."""
    return reader.rpartition("=")[2]


def rules_of(settings: Settings) -> TableRules:
    """The rules for a table of these settings."""
    return TableRules(
        table_properties(settings),
        column_rules(settings),
        Limits(settings.batch_files, settings.batch_bytes),
        preference_of(settings),
        settings.trust_footers,
        settings.durability,
        settings.partial_row_missing == "null",
    )


def table_properties(settings: Settings) -> Mapping[str, str]:
    """The Delta properties of a new mirrored table."""
    hours = settings.retention_in_days * 24
    # Spark reads fractions of seconds, and of nothing else
    retention = f"interval {hours:g} hours" if hours == int(hours) else f"interval {round(hours * 3600)} seconds"
    properties = {
        "delta.deletedFileRetentionDuration": retention,
        # versions whose files are gone cannot be read: their commits go, too
        "delta.logRetentionDuration": retention,
        "delta.checkpointInterval": "100",  # the others are written without Delta (decision 023)
    }
    if settings.deletion_vectors:
        properties["delta.enableDeletionVectors"] = "true"
    if settings.change_data_feed:
        properties["delta.enableChangeDataFeed"] = "true"
    return properties


def column_rules(settings: Settings) -> ColumnRules:
    """How a mirrored table's columns may grow."""
    return ColumnRules(
        settings.on_type_change == "widen",
        settings.column_mapping,
        FEED_COLUMNS if settings.change_data_feed else frozenset(),
        settings.row_marker_misspelt == "column",
        settings.zoneless,
    )
