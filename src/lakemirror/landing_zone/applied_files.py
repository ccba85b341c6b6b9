"""Which files of a table folder are applied already, as the table itself says (contract sections 4 and 9); pure."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class AppliedFiles:
    """What of a table folder has been applied.

    `count`: how many files; where the folder is one sequence, the last number. `sequences`: the last number of each
    partition folder (`region=eu`), None where the table has none. `paths`: the applied paths below the table folder
    under last-update detection, None without it; `numbered` then says how far a sequence had come that was there
    before. `last`: the path of the newest applied file, empty where it is not known.
    """

    count: int = 0
    sequences: Mapping[str, int] | None = None
    paths: Container[str] | None = None
    numbered: int = 0
    last: str = field(default="", compare=False)

    def holds(self, path: str, number: int, partition: str) -> bool:
        """True where the file is applied. `path` below the table folder; `number` 0 where the name has none."""
        if self.paths is not None:
            return path in self.paths or (not partition and 0 < number <= self.numbered)
        return number <= self.position(partition)

    def position(self, partition: str = "") -> int:
        """The last number of a sequence: of the folder's, or of one partition's."""
        if self.sequences is not None:
            return self.sequences.get(partition, 0)
        return self.count


def sequence(count: int) -> AppliedFiles:
    """A folder that is one sequence, applied up to that number."""
    return AppliedFiles(count)
