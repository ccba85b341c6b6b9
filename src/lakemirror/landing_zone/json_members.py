"""The members of the JSON objects in `_metadata.json`, taken one by one with their types (contract section 2)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from lakemirror.errors import TableError
from lakemirror.landing_zone.forgiving_json import JsonObject
from lakemirror.landing_zone.warned import Warned


class Members:
    """The members of one JSON object, taken by name in any case; the rest is warned of."""

    def __init__(self, file: str, path: str, members: JsonObject, warnings: list[Warned] | None = None) -> None:
        self.file = file
        self.path = path
        self.warnings: list[Warned] = [] if warnings is None else warnings
        self._values: dict[str, tuple[str, Any]] = {}
        self._doubled: dict[str, str] = {}
        for name, value in members:
            earlier = self._values.setdefault(name.lower(), (name, value))
            if earlier[1] != value:
                self._doubled[name.lower()] = f"{path}{earlier[0]} and {path}{name}"

    def take(self, name: str) -> Any:
        """The value, or None where it is absent or null."""
        key = name.lower()
        if key in self._doubled:
            raise invalid(self.file, f"says different things in {self._doubled[key]}")
        return self._values.pop(key, (name, None))[1]

    def text(self, name: str) -> str | None:
        value = self.take(name)
        if value is not None and not is_text(value):
            raise self.wrong(name, value, "must be a string")
        return str(value) if value is not None else None

    def flag(self, name: str, default: bool) -> bool:
        value = self.take(name)
        if value is None:
            return default
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if not isinstance(value, bool):
            raise self.wrong(name, value, "must be true or false")
        return value

    def choice(self, name: str, allowed: Iterable[str], default: str) -> str:
        value = self.text(name)
        if value is None:
            return default
        for each in allowed:
            if each.lower() == value.lower():
                return each
        raise self.wrong(name, value, f"must be one of {', '.join(json.dumps(each) for each in allowed)}")

    def inner(self, name: str) -> Members | None:
        """The object under that name; None where it is absent or empty."""
        value = self.take(name)
        if value is None or value == []:
            return None
        return self.wrap(name, value)

    def wrap(self, name: str, value: Any) -> Members:
        if not isinstance(value, JsonObject):
            raise self.wrong(name, value, "must be an object")
        return Members(self.file, f"{self.path}{name}.", value, self.warnings)

    def wrong(self, name: str, value: Any, why: str) -> TableError:
        return invalid(self.file, f"{self.path}{name} {why}, not {shown(value)}")

    def warn_of_rest(self) -> None:
        for name, _ in self._values.values():
            message = (
                f"{file_name(self.file)}: the property {clean(self.path + name[:100])} is not known and was not applied"
            )
            self.warnings.append(Warned("property-unknown", message, self.file))


def is_text(value: Any) -> bool:
    """True for a string that can be written again: JSON may escape halves of characters, which UTF-8 cannot hold."""
    return isinstance(value, str) and clean(value) == value


def clean(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def file_name(file: str) -> str:
    return file.rpartition("/")[2] or "_metadata.json"


def invalid(file: str, why: str) -> TableError:
    separator = ": " if why.startswith("line ") else " "
    return TableError("metadata-invalid", f"{file_name(file)}{separator}{why}", file=file)


def shown(value: Any) -> str:
    """The value as JSON, cut short; only its kind where it is long."""
    if isinstance(value, JsonObject):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = clean(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= 100 else text[:99] + "…"


__all__ = ["Members", "clean", "file_name", "invalid", "is_text", "shown"]
