"""The tables of random histories equal the model: deletes, order, changes and versions, cut into passes anyhow."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.random_histories import SEQUENCE_KINDS, play, stories
from tests.rounds import rounds

from lakemirror.keys import row_copies
from lakemirror.keys.index_builder import Builder
from lakemirror.keys.look_up import LATELY_READ
from lakemirror.keys.row_copies import RowCopies
from lakemirror.keys.row_file import RowFile
from lakemirror.keys.written_rows import LATELY_WRITTEN

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


@pytest.mark.parametrize(
    "case", cases([("soft", "number", "scd2"), ("hard", "last", "scd2")], [*ORDERED, *MORE_ORDERED]), ids=named
)
@settings(max_examples=rounds(6, 300), **SLOW)
@given(data=st.data())
def test_versions_of_a_folder_that_is_made_again(case: tuple[str, str, Any], data: Any) -> None:
    deletes, sequence, history = case
    play(data.draw(stories(deletes, sequence, history, again=True)))


@pytest.mark.parametrize(
    "case",
    cases(
        [("soft", "number", VERSIONS)],
        [("ignore", "list", ["changes", "scd2"]), ("hard", "", "scd2"), ("soft", "", None)],
    ),
    ids=named,
)
@settings(max_examples=rounds(6, 150), **SLOW)
@given(data=st.data())
def test_partial_rows_without_a_row(case: tuple[str, str, Any], data: Any) -> None:
    deletes, sequence, history = case
    play(data.draw(stories(deletes, sequence, history, partial=True, again=bool(sequence), missing=True)))


def spoil(chance: random.Random, files: list[Path]) -> None:
    """Something bad to one of the copies, or nothing."""
    if not files or chance.random() < 0.5:
        return
    path, other = chance.choice(files), chance.choice(files)
    content = bytearray(path.read_bytes())
    what = chance.choice(["damage", "cut", "remove", "replace", "empty"])
    place = chance.choice([chance.randrange(600), chance.randrange(len(content) + 1), max(0, len(content) - 9)])
    if what == "remove":
        path.unlink()
    elif what == "replace":
        path.write_bytes(other.read_bytes())
    else:
        cut = bytes(len(content)) if what == "empty" else content[:place]
        rest = bytes([content[place] ^ 64]) + content[place + 1 :] if place < len(content) else b""
        path.write_bytes(cut + rest if what == "damage" else cut)


@pytest.mark.parametrize("case", cases([("soft", "", "scd2"), ("soft", "number", VERSIONS)], MORE_ORDERED), ids=named)
def test_tables_whose_old_rows_have_copies(case: tuple[str, str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file has a copy at once; copies are missing, damaged, exchanged, before and after they are opened. Rows
    that were written lately are in memory, or have a copy as others do."""
    deletes, sequence, history = case
    rows_read: list[int] = []
    open_copies, chosen = RowCopies.open, RowFile.chosen
    chance: list[random.Random] = []

    def at_once(builder: Builder, name: str, build: Any) -> None:
        with contextlib.suppress(ValueError):  # as the thread does
            build()

    def opened(copies: RowCopies, adds: Any, target: Any) -> None:
        if chance[-1].random() < 0.7:
            LATELY_WRITTEN.clear()
        for _ in range(2):
            open_copies(copies, adds, target)
            with contextlib.suppress(FileNotFoundError):  # the other target has replaced it
                spoil(chance[-1], sorted(copies._folder.path.glob("*/*.rows")))

    def counted(file: RowFile, numbers: Any, columns: Any) -> Any:
        rows = chosen(file, numbers, columns)
        rows_read.append(len(rows))
        return rows

    monkeypatch.setattr(row_copies, "FEWEST_ROWS", 1)
    monkeypatch.setattr(row_copies, "_WIDEST", 1 << 20)
    monkeypatch.setattr(Builder, "request", at_once)
    monkeypatch.setattr(RowCopies, "open", opened)
    monkeypatch.setattr(RowFile, "chosen", counted)

    @settings(max_examples=rounds(8, 150), **SLOW)
    @given(data=st.data())
    def compare(data: Any) -> None:
        chance.append(random.Random(data.draw(st.integers(0, 1 << 30))))
        story = data.draw(stories(deletes, sequence, history, partial=data.draw(st.booleans())))
        play(replace(story, passes=frozenset(range(len(story.files)))), own_cache=True)
        LATELY_READ.clear()

    compare()
    assert sum(rows_read)


@pytest.mark.full
@settings(max_examples=300, **SLOW)
@given(data=st.data())
def test_any_options(data: Any) -> None:
    deletes = data.draw(st.sampled_from(["hard", "soft", "ignore"]))
    sequence = data.draw(st.sampled_from(["", *SEQUENCE_KINDS]))
    history = data.draw(st.sampled_from([None, "changes", "scd2", VERSIONS, ["scd2", "changes"]]))
    story = data.draw(stories(deletes, sequence, history, partial=data.draw(st.booleans())))
    play(story, deletion_vectors=data.draw(st.booleans()), change_data_feed=data.draw(st.booleans()))
