"""Every code a user can meet is met by a test."""

from __future__ import annotations

from pathlib import Path

from lakemirror.errors import CODES, LakemirrorError, SetupError, TableError

TESTS = Path(__file__).resolve().parents[1]


def test_every_code_is_met_by_a_test() -> None:
    texts = "".join(p.read_text(encoding="utf-8") for p in TESTS.rglob("test_*.py") if p != Path(__file__))
    missing = {code for code in CODES if f'"{code}"' not in texts}
    assert not missing


def test_an_error_says_code_sentence_and_hint() -> None:
    error = TableError("type-changed", "f: column a", file="f", column="a")
    assert str(error) == "type-changed: f: column a"
    assert error.hint == CODES["type-changed"].hint
    assert (error.retry, error.exit_code, error.file, error.column) == (False, 3, "f", "a")
    assert LakemirrorError("internal", "m", hint="Do this.").hint == "Do this."
    assert SetupError("java-missing", "m").exit_code == 1
