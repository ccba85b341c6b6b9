"""What the operator of a service sets, and the settings of one of its databases.

    environment of `lakemirror serve` ─▶ ProcessSettings  ─┐
    mirroring.json of one database    ─▶ DatabaseSettings ─┴▶ Settings of that database

A `DatabaseSettings` has no field for the process. So no definition reaches memory, caches, engines or Spark, whoever
wrote it (contract, service.md section 4).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from lakemirror.landing_zone.findings import Warned
from lakemirror.settings.settings import (
    DATABASE,
    DEFINITION,
    OPERATOR,
    OWNERS,
    PROCESS,
    DatabaseSettings,
    ProcessSettings,
    Settings,
    definition_values,
    environment_values,
    named_in_definition,
    variable,
)
from lakemirror.settings.spelling import unknown_settings

WITHOUT_EFFECT = "setting-without-effect"
RETENTIONS = ("retention_in_days", "processed_retention", "dropped_retention")
_PROCESS_FIELDS = frozenset(field.name for field in fields(ProcessSettings))


@dataclass(frozen=True)
class OperatorSettings:
    """`process`: of the whole service. `given`: settings of databases that count for each of them."""

    process: ProcessSettings
    given: Mapping[str, Any]

    @staticmethod
    def from_environment(environment: Mapping[str, str] | None = None) -> OperatorSettings:
        """The settings that `LAKEMIRROR_…` variables name. LakemirrorError `setting-invalid`."""
        values = environment_values(os.environ if environment is None else environment)
        process = {name: value for name, value in values.items() if name in _PROCESS_FIELDS}
        given = {name: value for name, value in values.items() if name not in _PROCESS_FIELDS}
        return OperatorSettings(ProcessSettings(**process), given)

    def of_database(self, definition: Mapping[str, Any]) -> Settings:
        """The settings of the database with this definition. LakemirrorError `definition-invalid`, `setting-invalid`.

        A retention of the definition counts up to the operator's. All else that the operator gives wins.
        """
        own = definition_values(definition, (DATABASE, OPERATOR))
        bounded = {name: min(own[name], most) for name, most in self.bounds.items() if name in own}
        database = DatabaseSettings(**{**own, **self.given, **bounded})
        return Settings(**vars(self.process), **vars(database))

    @property
    def bounds(self) -> dict[str, float]:
        """The longest retentions in days that a definition may have: those that the operator gives."""
        return {name: self.given[name] for name in RETENTIONS if name in self.given}


def warnings_of(definition: Mapping[str, Any]) -> list[Warned]:
    """Warnings for unknown settings, and one for each setting of the process: a service does not read these."""
    return unknown_settings(definition) + [
        Warned(
            WITHOUT_EFFECT,
            f"{name} in {DEFINITION} has no effect in a service: it is one value for the whole process. The operator "
            f"sets {variable(name)} for `lakemirror serve`.",
            DEFINITION,
        )
        for name in named_in_definition(definition)
        if OWNERS[name] == PROCESS
    ]
