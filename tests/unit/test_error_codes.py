"""What an error carries. That each code is raised by some test is checked at the end of a run (`raised_codes.py`)."""

from __future__ import annotations

from lakemirror.error_codes import CODES
from lakemirror.errors import LakemirrorError, SetupError, TableError


def test_an_error_says_code_sentence_and_hint() -> None:
    error = TableError("type-changed", "f: column a", file="f", column="a")
    assert str(error) == "type-changed: f: column a"
    assert error.hint == CODES["type-changed"].hint
    assert (error.retry, error.exit_code, error.file, error.column) == (False, 3, "f", "a")
    assert LakemirrorError("internal", "m", hint="Do this.").hint == "Do this."
    assert SetupError("java-missing", "m").exit_code == 1
