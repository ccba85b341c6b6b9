"""What tells a table from another one of its name: its number, those of its columns, its key, its partitions.

Some statements exchange old rows without a word in the log: a table that takes another one's name, a column that is
dropped and made again, a partition that is attached, detached, dropped or truncated. The form shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class SourceForm:
    """`number`: of the table, for as long as it exists; 0: not known. `columns`: by name the number of each, which is
    not used again. `defaults`: the columns whose old rows may have got a value as they were added. `parts`: by the
    number of each partition the file it is stored in; 0 where it was made as a partition, and never truncated or
    rewritten since: all its rows are in the log. `named`: another one each time that the table gets a name, also one
    that it had before: changes under another name are in no stream; 0: not known.
    """

    number: int = 0
    columns: Mapping[str, int] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    parts: Mapping[str, int] = field(default_factory=dict)
    defaults: tuple[str, ...] = ()
    named: int = 0

    @classmethod
    def of(cls, said: Mapping[str, Any] | None) -> SourceForm:
        """The form that `content` gave; one that is not known for anything else. TypeError for other entries."""
        return (
            cls(**{**said, "key": tuple(said.get("key", ())), "defaults": tuple(said.get("defaults", ()))})
            if said
            else cls()
        )

    @property
    def content(self) -> dict[str, Any]:
        """The form for JSON."""
        return asdict(self)

    def difference(self, now: SourceForm, *, ignore: bool = False) -> str:
        """Why rows that were read in this form may not be those of the table now; empty where they are.

        `ignore`: changes of columns and partitions do not count.
        """
        if not self.number:
            return ""
        if now.number != self.number:
            return "it is another table of that name"
        if self.named and now.named != self.named:
            return "it had another name meanwhile"
        if now.key != self.key:
            return f"its key is now {', '.join(now.key) or 'none'}"
        if ignore:
            return ""
        names = {number: name for name, number in self.columns.items()}
        for name, number in now.columns.items():
            if self.columns.get(name, number) != number:
                return f"column {name} was made again"
            if names.get(number, name) != name:
                return f"column {names[number]} is now {name}"
            if number not in names and name in now.defaults:
                return f"column {name} was added with a default"
        if any(now.parts.get(part) != file for part, file in self.parts.items()) or any(
            file for part, file in now.parts.items() if part not in self.parts
        ):
            return "its partitions changed"
        return ""
