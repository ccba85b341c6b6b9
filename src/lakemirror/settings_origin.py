"""Where each setting of a database comes from: a flag, the environment, `mirroring.json`, or the default."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakemirror.settings import DEFINITION, Settings, definition_values, environment_values

DEFAULT = "default"
FLAG = "flag"
_SECRET = re.compile(r"secret|password|token|credential|key$|key\.", re.IGNORECASE)


@dataclass(frozen=True)
class SettingOrigin:
    """One setting in force. `source`: `flag`, the name of a variable, `mirroring.json`, or `default`."""

    name: str
    value: Any
    source: str
    help: str


def setting_origins(
    definition: Mapping[str, Any], flags: Mapping[str, Any], environment: Mapping[str, str] | None = None
) -> list[SettingOrigin]:
    """Every setting in force, in the order of the class. Values of spark.* settings that look secret are hidden.

    LakemirrorError `setting-invalid`, `definition-invalid`.
    """
    environment = os.environ if environment is None else environment
    in_file, in_environment = definition_values(definition), environment_values(environment)
    given = {name for name, value in flags.items() if value is not None}
    settings = Settings().with_definition(definition).with_environment(environment).with_flags(**flags)
    found = []
    for field in dataclasses.fields(settings):
        if field.name in given:
            source = FLAG
        elif field.name in in_environment:
            source = f"LAKEMIRROR_{field.name.upper()}"
        else:
            source = DEFINITION if field.name in in_file else DEFAULT
        value = getattr(settings, field.name)
        found.append(SettingOrigin(field.name, _shown(field.name, value), source, field.metadata["help"]))
    return found


def _shown(name: str, value: Any) -> Any:
    """The value as JSON can hold it."""
    if name == "spark":
        return {key: "(hidden)" if _SECRET.search(key) else text for key, text in value}
    return list(value) if isinstance(value, tuple) else value


__all__ = ["DEFAULT", "FLAG", "SettingOrigin", "setting_origins"]
