"""Warnings for unknown settings, each with the name that was probably meant."""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.metadata import Warned, capped
from lakemirror.landing_zone.table_options import OPTION_NAMES
from lakemirror.settings.settings import DEFINITION, Settings, read_definition
from lakemirror.storage import Storage

CODE = "setting-unknown"
_SETTINGS = tuple(field.name for field in dataclasses.fields(Settings))
_VENDOR = ("defaultSchema", "retentionInDays", "enableDeltaChangeDataFeed")
_OTHER_VARIABLES = ("LAKEMIRROR_FAILPOINT", "LAKEMIRROR_DELTA_TABLES")


def unknown_settings(definition: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> list[Warned]:
    """One warning for each unknown key of `mirroring.json` and each unknown `LAKEMIRROR_…` variable.

    The vendor's part of the definition holds properties that lakemirror does not read. There, only keys that resemble a
    known name get a warning.
    """
    environment = os.environ if environment is None else environment
    found = []
    own = definition.get("lakemirror")
    if isinstance(own, Mapping):
        found += [_warned(f"lakemirror.{key} in {DEFINITION}", key, (*_SETTINGS, "retention")) for key in own
                  if key not in (*_SETTINGS, "retention", *OPTION_NAMES)]  # fmt: skip
        where = "has no effect at this place: put it under lakemirror.tables, by a pattern of the tables' names"
        found += [Warned(CODE, f"lakemirror.{key} in {DEFINITION} {where}", DEFINITION) for key in own
                  if key in OPTION_NAMES]  # fmt: skip
    elif own is not None:
        found.append(
            Warned(CODE, f"lakemirror in {DEFINITION} is not an object: its settings are not read", DEFINITION)
        )
    for key in definition:
        if key in _SETTINGS:
            message = f"{key} in {DEFINITION} has no effect at this place: put it under lakemirror"
            found.append(Warned(CODE, message, DEFINITION))
        elif key != "lakemirror" and _nearest(key, ("lakemirror", "properties")) not in ("", key):
            found.append(_warned(f"{key} in {DEFINITION}", key, ("lakemirror", "properties")))
    for key in _vendor_properties(definition):
        if key not in _VENDOR and _nearest(key, _VENDOR):
            found.append(_warned(f"{key} in {DEFINITION}", key, _VENDOR))
    variables = (*(f"LAKEMIRROR_{name.upper()}" for name in _SETTINGS), *_OTHER_VARIABLES)
    found += [
        _warned(f"the variable {name}", name, variables)._replace(file="")
        for name in sorted(environment)
        if name.startswith("LAKEMIRROR_") and name not in variables
    ]
    return capped(found)


def setting_warnings(
    storage: Storage, warnings_of: Callable[[Mapping[str, Any]], list[Warned]] = unknown_settings
) -> list[Warned]:
    """Warnings for the settings in `mirroring.json` and the environment; none if the definition is unreadable."""
    try:
        return warnings_of(read_definition(storage))
    except LakemirrorError:
        return []


def _vendor_properties(definition: Mapping[str, Any]) -> Iterable[str]:
    value: Any = definition
    for key in ("properties", "target", "typeProperties"):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else ()


def _warned(what: str, key: str, known: Iterable[str]) -> Warned:
    nearest = _nearest(key, known)
    meant = f": did you mean {nearest}?" if nearest else ""
    return Warned(CODE, f"{what[:200]} is not known and has no effect{meant}", DEFINITION)


def _nearest(key: str, known: Iterable[str]) -> str:
    """The most similar known name; empty if none is similar."""
    by_lower = {name.lower(): name for name in known}
    plain = key.lower().replace("-", "_")
    return next((by_lower[name] for name in difflib.get_close_matches(plain, by_lower, 1, 0.75)), "")
