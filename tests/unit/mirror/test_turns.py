"""A pass does not end while a table has something to apply."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from lakemirror.landing_zone.change_file import TableFiles
from lakemirror.landing_zone.zone import TableFolder, TableName
from lakemirror.mirror.observe import View
from lakemirror.mirror.turns import Turns
from lakemirror.storage import LocalStorage


def test_a_look_that_has_just_ended_is_not_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread gives it a turn a moment later; a pass that ended in between would apply nothing and say nothing."""
    turned: list[TableName] = []
    monkeypatch.setattr(Turns, "_turn", lambda self, name, look: turned.append(name))
    nothing = cast(Any, None)
    turns = Turns(LocalStorage(tmp_path), 1, {}, nothing, nothing)
    name = TableName("", "t")
    assert turns.begin_look(name)
    turns.submit_looked()
    turns.end_look(name, View(TableFiles(TableFolder(name))))
    running, looking = turns.running_and_looking()
    assert len(running) == 1 and not looking
    running[0].result(10)
    turns.stop()
    assert turned == [name]
