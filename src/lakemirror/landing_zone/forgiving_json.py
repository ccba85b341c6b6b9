"""JSON as publishers write it: parsed strictly, else forgivingly (contract section 2).

Objects come back as `JsonObject`, a list of pairs, because two spellings of one name must be seen, not merged.
`Members` takes them one by one, with their types.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from lakemirror.errors import TableError
from lakemirror.landing_zone.findings import Warned

MAX_DEPTH = 64
MAX_FORGIVEN = 1024 * 1024  # characters: the forgiving parser is for documents that people wrote


class JsonObject(list[tuple[str, Any]]):
    """The members of a JSON object in their order."""


class JsonError(Exception):
    """Text that is not JSON, even when parsed forgivingly. `line` and `column` count from 1."""

    def __init__(self, reason: str, text: str, position: int) -> None:
        self.reason = reason
        self.line = text.count("\n", 0, position) + 1
        self.column = position - text.rfind("\n", 0, position)
        super().__init__(f"line {self.line}, column {self.column}: {reason}")


def parse_json(text: str) -> tuple[Any, bool]:
    """The value, and True if the text needed forgiving; JsonError."""
    try:
        document = json.loads(text, object_pairs_hook=JsonObject, parse_int=float)
    except RecursionError:
        raise _too_deep(text, 0) from None
    except json.JSONDecodeError as error:
        if len(text) > MAX_FORGIVEN:
            raise JsonError(error.msg, text, error.pos) from error
        return _Forgiving(text).document(), True
    if _is_too_deep(document):
        raise _too_deep(text, 0)
    return document, False


_SPACE = re.compile(r"[ \t\r\n]*")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?", re.ASCII)
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_LONE_BACKSLASH = re.compile(r'"\\"(?=[ \t\r\n]*[,}\]])')
_HEX4 = re.compile(r"[0-9a-fA-F]{4}")
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_CONSTANTS = {"true": True, "false": False, "null": None}


class _Forgiving:
    """JSON that may have a comma after the last member, a lone backslash, and a word without quotes as a value."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def document(self) -> Any:
        value = self._value(0)
        self._skip_space()
        if self.at < len(self.text):
            raise self._error("text after the end of the document")
        return value

    def _value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise _too_deep(self.text, self.at)
        self._skip_space()
        here = self._peek()
        if here == "{":
            return self._object(depth)
        if here == "[":
            return self._array(depth)
        if here == '"':
            return self._string()
        if number := _NUMBER.match(self.text, self.at):
            self.at = number.end()
            return float(number[0])
        if word := _WORD.match(self.text, self.at):
            self.at = word.end()
            return _CONSTANTS.get(word[0], word[0])
        raise self._error("a value is missing")

    def _object(self, depth: int) -> JsonObject:
        members = JsonObject()
        self.at += 1
        while True:
            self._skip_space()
            if self._take("}"):
                return members
            if self._peek() != '"':
                raise self._error("a name in double quotes is missing")
            name = self._string()
            self._skip_space()
            if not self._take(":"):
                raise self._error("a colon is missing")
            members.append((name, self._value(depth + 1)))
            self._end_of_member("}")

    def _array(self, depth: int) -> list[Any]:
        values: list[Any] = []
        self.at += 1
        while True:
            self._skip_space()
            if self._take("]"):
                return values
            values.append(self._value(depth + 1))
            self._end_of_member("]")

    def _end_of_member(self, end: str) -> None:
        self._skip_space()
        if not self._take(",") and self._peek() != end:
            raise self._error(f"a comma or {end} is missing")

    def _string(self) -> str:
        if lone := _LONE_BACKSLASH.match(self.text, self.at):
            self.at = lone.end()
            return "\\"
        start = self.at
        self.at += 1
        parts = []
        while True:
            plain = _PLAIN.match(self.text, self.at)
            assert plain is not None  # it matches the empty string
            parts.append(plain[0])
            self.at = plain.end()
            if self._take('"'):
                return "".join(parts)
            if not self._take("\\"):
                if self.at >= len(self.text):
                    self.at = start
                    raise self._error("a string without an end")
                raise self._error("a line break or control character inside a string")
            parts.append(self._escape())

    def _escape(self) -> str:
        """What a backslash and its followers mean; a backslash that escapes nothing is itself."""
        here = self._peek()
        if here in _ESCAPES:
            self.at += 1
            return _ESCAPES[here]
        if here == "u" and (code := _HEX4.match(self.text, self.at + 1)):
            self.at = code.end()
            return chr(int(code[0], 16))
        return "\\"

    def _skip_space(self) -> None:
        space = _SPACE.match(self.text, self.at)
        assert space is not None  # it matches the empty string
        self.at = space.end()

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def _take(self, wanted: str) -> bool:
        if self._peek() != wanted:
            return False
        self.at += 1
        return True

    def _error(self, reason: str) -> JsonError:
        return JsonError(reason, self.text, self.at)


def _is_too_deep(document: Any) -> bool:
    level = [document]
    for _ in range(MAX_DEPTH + 1):
        level = [inner for value in level if isinstance(value, list) for inner in _contents(value)]
        if not level:
            return False
    return True


def _contents(value: list[Any]) -> list[Any]:
    return [inner for _, inner in value] if isinstance(value, JsonObject) else value


def _too_deep(text: str, position: int) -> JsonError:
    return JsonError(f"nested deeper than {MAX_DEPTH} levels", text, position)


class Members:
    """The members of one JSON object, taken by name in any case; the rest is warned of."""

    def __init__(self, file: str, path: str, members: JsonObject, warnings: list[Warned] | None = None) -> None:
        self.file = file
        self.path = path
        self.warnings: list[Warned] = [] if warnings is None else warnings
        self._values: dict[str, tuple[str, Any]] = {}
        self._doubled: dict[str, str] = {}
        self._from: dict[str, Members] = {}
        self._known: list[str] = []
        for name, value in members:
            earlier = self._values.setdefault(name.lower(), (name, value))
            if earlier[1] != value:
                self._doubled[name.lower()] = f"{path}{earlier[0]} and {path}{name}"

    def fill_up(self, others: Members) -> None:
        """Adds the members of another object that this one does not name, also not as null. Errors name where each
        comes from."""
        for key, value in others._values.items():
            if key not in self._values:
                self._values[key] = value
                self._from[key] = others._origin(key)
                if key in others._doubled:
                    self._doubled[key] = others._doubled[key]

    def _origin(self, name: str) -> Members:
        """The object that the member of that name is from."""
        return self._from.get(name.partition("[")[0].lower(), self)

    def take(self, name: str) -> Any:
        """The value, or None where it is absent or null."""
        key = name.lower()
        self._known.append(name)
        if key in self._doubled:
            raise invalid(self._origin(name).file, f"says different things in {self._doubled[key]}")
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

    def inner(self, name: str, *, or_list: bool = True) -> Members | None:
        """The object under that name; None where it is absent or empty. `or_list`: `[]` stands for an empty object."""
        value = self.take(name)
        if value is None or (value == [] and (or_list or isinstance(value, JsonObject))):
            return None
        return self.wrap(name, value)

    def wrap(self, name: str, value: Any) -> Members:
        if not isinstance(value, JsonObject):
            raise self.wrong(name, value, "must be an object")
        origin = self._origin(name)
        return Members(origin.file, f"{origin.path}{name}.", value, self.warnings)

    def wrong(self, name: str, value: Any, why: str) -> TableError:
        return self.refused(name, f"{why}, not {shown(value)}")

    def refused(self, name: str, why: str) -> TableError:
        """TableError `metadata-invalid` that names the member and where it is from."""
        origin = self._origin(name)
        return invalid(origin.file, f"{origin.path}{name} {why}")

    def __contains__(self, name: str) -> bool:
        """True where the member is there, was not taken, and is not null."""
        return self._values.get(name.lower(), ("", None))[1] is not None

    def refuse_rest(self) -> None:
        """TableError `metadata-invalid` for a member that nobody took."""
        for name, _ in self._values.values():
            origin = self._origin(name)
            near = difflib.get_close_matches(name.lower(), self._known, 1)
            told = ", ".join([*near, *sorted({*self._known} - {*near})])
            unknown = clean(origin.path + name[:100])
            raise invalid(origin.file, f"has an option that is not known: {unknown}. Known are {told}")

    def warn_of_rest(self, helps: Mapping[str, str] | None = None) -> None:
        """`helps`: what to do about a member, by its name in lower case."""
        for key, (name, _) in self._values.items():
            message = (
                f"{file_name(self.file)}: the property {clean(self.path + name[:100])} is not known and was not applied"
            )
            message += f": {helps[key]}" if helps and key in helps else ""
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
    return TableError("metadata-invalid", f"{file or '_metadata.json'}{separator}{why}", file=file)


def shown(value: Any) -> str:
    """The value as JSON, cut short; only the kind of an object, and of a list within a list."""
    if isinstance(value, JsonObject):
        return "an object"
    if isinstance(value, list):
        parts = ["a list" if type(each) is list else shown(each) for each in value[:20]]
        text = f"[{', '.join(parts)}{', …' if len(value) > 20 else ''}]"
    else:
        is_whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e15
        text = clean(json.dumps(int(value) if is_whole else value, ensure_ascii=False))
    return text if len(text) <= 100 else text[:99] + "…"
