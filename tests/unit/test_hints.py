"""Advice that can be followed: whatever a message names is there."""

from __future__ import annotations

import pytest
from tests.advice import hints, said, wrong, wrong_settings

from lakemirror.error_codes import CODES


def test_every_command_option_and_document_that_is_named_is_there() -> None:
    found = {place: faults for place, text in said() if (faults := wrong(text))}
    assert not found


def test_every_setting_that_a_hint_names_is_there() -> None:
    given = [*hints(), *((code, kind.hint) for code, kind in CODES.items())]
    assert len(given) > 150
    assert not {place: faults for place, text in given if (faults := wrong_settings(text))}


@pytest.mark.parametrize(
    "text",
    [
        "Run `lakemirror status`.", "Run `lakemirror mirror DB`.", "`lakemirror verify DB --fast`", "Add --marker.",
        "Run: lakemirror tables", "`lakemirror access ROOT show`", "See docs/nothing.md", "pip install 'lakemirror[x]'",
        "Run `make it`", "Run `lakemirror features DB`",
    ],
)  # fmt: skip
def test_what_is_not_there_is_found(text: str) -> None:
    assert wrong(text)


@pytest.mark.parametrize("text", ["Set `memories` to 2.", "Lower batch_byte.", "Raise the setting `memory_mb`."])
def test_settings_that_are_not_there_are_found(text: str) -> None:
    assert wrong_settings(text)
