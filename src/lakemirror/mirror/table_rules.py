"""What a database's settings mean for its tables: Delta properties, and how columns may grow."""

from __future__ import annotations

from collections.abc import Mapping

from lakemirror.delta.protocol import FEED_COLUMNS
from lakemirror.mirror.schema_evolution import Rules
from lakemirror.settings import Settings


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


def column_rules(settings: Settings) -> Rules:
    """How a mirrored table's columns may grow."""
    return Rules(
        settings.on_type_change == "widen",
        settings.column_mapping,
        FEED_COLUMNS if settings.change_data_feed else frozenset(),
        settings.row_marker_misspelt == "column",
        settings.zoneless,
    )


__all__ = ["column_rules", "table_properties"]
