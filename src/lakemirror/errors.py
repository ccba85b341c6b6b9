"""Every error a user can meet, as a stable code.

    LakemirrorError            anything with a code: caught by the command line, shown without a traceback
      TableError               stops one mirrored table (contract section 5); others go on
      SetupError               the machine or the configuration is not ready; nothing was touched

    Bad                        a change file cannot be applied; its Rejected says why, and what would help

What a code means is one row of `error_codes.CODES`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lakemirror.error_codes import CODES


class LakemirrorError(Exception):
    """An error with a stable `code`, one sentence (`message`), and a `hint` that says what to do."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hint: str | None = None,
        table: str | None = None,
        file: str | None = None,
        row: int | None = None,
        column: str | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = CODES[code]
        self.code = code
        self.message = message
        self.hint = hint or self.kind.hint
        self.table = table
        self.file = file
        self.row = row
        self.column = column

    @property
    def retry(self) -> bool:
        """True where the same attempt may succeed later by itself."""
        return self.kind.retry

    @property
    def exit_code(self) -> int:
        return self.kind.exit_code

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class TableError(LakemirrorError):
    """An error that stops one mirrored table, with its `file`, `row` and `column`. Other tables go on."""


TryAs = Literal["mixed", "rows"]
"""How the same change files may be applied after a rejection. `mixed`: as changes of every kind, although the footers
say that all are inserts. `rows`: row by row, although the files may become data files as they are.
"""


@dataclass(frozen=True)
class Rejected:
    """Why a change file cannot be applied. Kernels, engines and the planner raise it as Bad; it can be pickled.

    `row` counts from 1. `hint`: what helps here; None: the hint of the code. `try_as`: what may succeed with the same
    file; None: the file, or what is declared about it, must change.
    """

    code: str
    message: str
    file: str
    row: int | None = None
    column: str | None = None
    hint: str | None = None
    try_as: TryAs | None = None

    @classmethod
    def of(cls, error: TableError) -> Rejected:
        """The rejection that an error stands for."""
        return cls(error.code, error.message, error.file or "", error.row, error.column, error.hint)

    def error(self) -> TableError:
        """The error that stops the table."""
        return TableError(
            self.code, self.message, hint=self.hint, file=self.file or None, row=self.row, column=self.column
        )


class Bad(Exception):
    """A change file cannot be applied. `mirror/step.py` catches it: the batch ends before the file, or is tried again.

    It is no LakemirrorError: nothing has failed yet, and nobody is told before the step has decided.
    """

    def __init__(self, rejected: Rejected) -> None:
        super().__init__(rejected.message)
        self.rejected = rejected


class SetupError(LakemirrorError):
    """The machine or the configuration is not ready. Nothing was changed."""


def first_line(error: object) -> str:
    """What an error says first, in at most 200 letters; its kind if it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__


def counted(number: int, word: str) -> str:
    """`1 file`, `1,234 files`."""
    return f"{number:,} {word}" + ("" if number == 1 else "s")
