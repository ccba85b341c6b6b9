"""What a database still needs before it can be captured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Need:
    """Something that is missing. `statement`: what gives it, run in the source, or a command line option. `table`: of
    which table, else of the whole source. `is_advice`: a capture runs without it.
    """

    what: str
    statement: str
    table: str = ""
    is_advice: bool = False
