"""Where each setting of a database comes from: a flag, the environment, `mirroring.json`, or the default."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakemirror.errors import LakemirrorError
from lakemirror.settings.settings import (
    DEFINITION,
    Settings,
    converted,
    named_in_definition,
    named_in_environment,
    variable,
)

DEFAULT = "default"
FLAG = "flag"
_SECRET = re.compile(r"secret|password|token|credential|key$|key\.", re.IGNORECASE)


@dataclass(frozen=True)
class SettingOrigin:
    """One setting in force. `source`: `flag`, the name of a variable, `mirroring.json`, or `default`.

    `error`: why the value cannot be used; then `value` is what its source says. Empty where it can.
    """

    name: str
    value: Any
    source: str
    help: str
    error: str = ""


def setting_origins(
    definition: Mapping[str, Any], flags: Mapping[str, Any], environment: Mapping[str, str] | None = None
) -> list[SettingOrigin]:
    """Every setting in force, in the order of the class. Values of spark.* settings that look secret are hidden.

    A value that cannot be used has its `error` beside it, and hides no other setting.
    """
    environment = os.environ if environment is None else environment
    in_file, in_environment = named_in_definition(definition), named_in_environment(environment)
    given = {name: value for name, value in flags.items() if value is not None}
    found = []
    for field in dataclasses.fields(Settings):
        name = field.name
        for named, origin in ((given, ""), (in_environment, variable(name)), (in_file, DEFINITION)):
            if name in named:
                value, error = _checked(name, named[name], origin)
                source = origin or FLAG
                break
        else:
            value, source, error = field.default, DEFAULT, ""
        shown = value if error else _shown(name, value)
        found.append(SettingOrigin(name, shown, source, field.metadata["help"], error))
    return found


def _checked(name: str, value: Any, origin: str) -> tuple[Any, str]:
    """The value and no error, or what was given and the error."""
    try:
        return converted(name, value, origin), ""
    except LakemirrorError as error:
        return "(hidden)" if name == "spark" else value, error.message


def _shown(name: str, value: Any) -> Any:
    """The value as JSON can hold it."""
    if name == "spark":
        return {key: "(hidden)" if _SECRET.search(key) else text for key, text in value}
    if name == "tables":
        return {pattern: json.loads(options) for pattern, options in value}
    return list(value) if isinstance(value, tuple) else value
