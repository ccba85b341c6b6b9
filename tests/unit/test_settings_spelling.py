"""Settings that nobody reads are warned of, with the name that was likely meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakemirror.api import MirroredDatabase
from lakemirror.settings.spelling import unknown_settings


@pytest.mark.parametrize(
    ("definition", "says"),
    [
        ({"lakemirror": {"reader": ["duckdb"]}}, "lakemirror.reader in mirroring.json is not known"),
        ({"lakemirror": {"Poll-Idle": 1}}, "did you mean poll_idle?"),
        ({"lakemirror": {"colour": 1}}, "lakemirror.colour in mirroring.json is not known and has no effect"),
        ({"lakemirror": ["settle"]}, "lakemirror in mirroring.json is not an object"),
        ({"lakemiror": {}}, "did you mean lakemirror?"),
        ({"lakemirror": {"deletes": "soft"}}, "lakemirror.deletes in mirroring.json has no effect at this place"),
        ({"settle": 3}, "settle in mirroring.json has no effect at this place: put it under lakemirror"),
        ({"properties": {"target": {"typeProperties": {"defaultSchem": "x"}}}}, "did you mean defaultSchema?"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_named(definition: dict[str, Any], says: str) -> None:
    (warned,) = unknown_settings(definition, {})
    assert warned.code == "setting-unknown"
    assert says in warned.message
    assert warned.file == "mirroring.json"


def test_variables_are_looked_at_too() -> None:
    (warned,) = unknown_settings({}, {"LAKEMIRROR_MASTR": "x", "LAKEMIRROR_SETTLE": "1", "HOME": "/"})
    assert (
        warned.message
        == "the variable LAKEMIRROR_MASTR is not known and has no effect: did you mean LAKEMIRROR_MASTER?"
    )


def test_what_is_known_and_what_is_the_vendors_is_not_warned_of() -> None:
    vendor = {"source": {"type": "GenericMirror", "typeProperties": {}}, "target": {"type": "MountedRelationalDatabase",
              "typeProperties": {"defaultSchema": "dbo", "format": "Delta", "retentionInDays": 1}}}  # fmt: skip
    assert (
        unknown_settings({"$schema": "x", "properties": vendor, "lakemirror": {"retention": 2, "settle": 3}}, {}) == []
    )


def test_spark_settings_of_the_command_line_are_no_session(tmp_path: Path) -> None:
    database = MirroredDatabase(tmp_path, spark=["spark.executor.cores=2"])
    assert database.settings.spark == (("spark.executor.cores", "2"),)
    assert database._given is None
