"""The tables of random histories equal the model: deletes, order, changes and versions, cut into passes anyhow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.random_histories import SEQUENCE_KINDS, play, stories
from tests.rounds import rounds
from tests.unit.engines.test_key_index import happen

from lakemirror.keys import row_copies
from lakemirror.keys.key_index import KeyIndex
from lakemirror.keys.look_up import LATELY_READ
from lakemirror.keys.row_file import RowFile

VERSIONS = {"mode": "scd2", "track": ["v"]}
SLOW: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "print_blob": True,
    "derandomize": False,
}
CURRENT = [("soft", ""), ("ignore", ""), ("soft", "number")]
MORE_CURRENT = [("hard", "number"), ("soft", "list"), ("ignore", "text"), ("soft", "time")]
HISTORIES = [("soft", "", "changes"), ("hard", "", "scd2"), ("soft", "", VERSIONS)]
ORDERED = [("hard", "number", VERSIONS), ("soft", "number", "scd2")]
MORE_HISTORIES = [
    ("hard", "", "changes"),
    ("hard", "number", "changes"),
    ("ignore", "", "scd2"),
]
MORE_ORDERED = [
    ("hard", "text", "scd2"),
    ("soft", "list", VERSIONS),
    ("soft", "time", "scd2"),
    ("ignore", "day", ["changes", VERSIONS]),
    ("hard", "decimal", [{"mode": "scd2", "name": "t_past"}, {"mode": "changes", "name": "t_log"}]),
]


def cases(short: list[Any], more: list[Any]) -> list[Any]:
    return [*short, *(pytest.param(case, marks=pytest.mark.full) for case in more)]


def named(case: tuple[Any, ...]) -> str:
    return "-".join(str(part) or "files" for part in case)


@pytest.mark.parametrize("partial", [False, True], ids=["complete", "partial"])
@pytest.mark.parametrize("case", cases(CURRENT, MORE_CURRENT), ids=named)
@settings(max_examples=rounds(6, 150), **SLOW)
@given(data=st.data())
def test_the_current_table(case: tuple[str, str], partial: bool, data: Any) -> None:
    deletes, sequence = case
    play(data.draw(stories(deletes, sequence, None, partial=partial)))


@pytest.mark.parametrize("partial", [False, True], ids=["complete", "partial"])
@pytest.mark.parametrize("case", cases(HISTORIES, MORE_HISTORIES), ids=named)
@settings(max_examples=rounds(6, 150), **SLOW)
@given(data=st.data())
def test_history(case: tuple[str, str, Any], partial: bool, data: Any) -> None:
    deletes, sequence, history = case
    play(data.draw(stories(deletes, sequence, history, partial=partial)))


@pytest.mark.parametrize("partial", [False, True], ids=["complete", "partial"])
@pytest.mark.parametrize("case", cases(ORDERED, MORE_ORDERED), ids=named)
@settings(max_examples=rounds(6, 300), **SLOW)
@given(data=st.data())
def test_versions_by_a_sequence(case: tuple[str, str, Any], partial: bool, data: Any) -> None:
    deletes, sequence, history = case
    play(data.draw(stories(deletes, sequence, history, partial=partial)), builds=data.draw(st.booleans()))


@pytest.mark.parametrize("case", cases([("soft", "number", "scd2")], [*ORDERED, *MORE_ORDERED]), ids=named)
@settings(max_examples=rounds(6, 300), **SLOW)
@given(data=st.data())
def test_versions_of_a_folder_that_is_made_again(case: tuple[str, str, Any], data: Any) -> None:
    deletes, sequence, history = case
    play(data.draw(stories(deletes, sequence, history, again=True)))


@pytest.fixture
def every_file_has_a_copy(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of rows that were read of copies."""
    monkeypatch.setattr(row_copies, "FEWEST_ROWS", 1)
    monkeypatch.setattr(row_copies, "_WIDEST", 1 << 20)
    counts: list[int] = []
    chosen = RowFile.chosen

    def counted(self: RowFile, numbers: Any, columns: Any) -> Any:
        rows = chosen(self, numbers, columns)
        counts.append(len(rows))
        return rows

    monkeypatch.setattr(RowFile, "chosen", counted)
    return counts


@pytest.mark.parametrize("case", cases([("soft", "", "scd2"), ("soft", "number", VERSIONS)], MORE_ORDERED), ids=named)
def test_tables_whose_old_rows_have_copies(case: tuple[str, str, Any], every_file_has_a_copy: list[int]) -> None:
    """Copies are there, missing, damaged, exchanged, and of before a process began."""
    deletes, sequence, history = case

    @settings(max_examples=rounds(12, 150), **SLOW)
    @given(data=st.data())
    def compare(data: Any) -> None:
        def between(cache: Path) -> None:
            KeyIndex.shared(cache / "keys", 1 << 30).wait()
            happen(data, sorted((cache / "keys").glob("*/*.rows")))
            if data.draw(st.booleans()):
                LATELY_READ.clear()

        story = data.draw(stories(deletes, sequence, history, partial=data.draw(st.booleans())))
        play(replace(story, passes=frozenset(range(len(story.files)))), between=between)

    compare()
    assert sum(every_file_has_a_copy)


@pytest.mark.full
@settings(max_examples=300, **SLOW)
@given(data=st.data())
def test_any_options(data: Any) -> None:
    deletes = data.draw(st.sampled_from(["hard", "soft", "ignore"]))
    sequence = data.draw(st.sampled_from(["", *SEQUENCE_KINDS]))
    history = data.draw(st.sampled_from([None, "changes", "scd2", VERSIONS, ["scd2", "changes"]]))
    story = data.draw(stories(deletes, sequence, history, partial=data.draw(st.booleans())))
    play(story, deletion_vectors=data.draw(st.booleans()), change_data_feed=data.draw(st.booleans()))
