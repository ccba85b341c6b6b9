"""The reference pages are up to date, and the how-to page's commands do what it says."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import pytest
from protocol_tables import make
from test_cli_features import run

from lakemirror.delta.log import Protocol

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))


def test_reference_pages_are_up_to_date() -> None:
    from generate_table_features import compared, pages

    for name, text in pages().items():
        assert (ROOT / "docs" / "reference" / name).read_text() == text, name
    assert all(agreed == tried for agreed, tried, _, _ in compared().values())


def test_the_how_to_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "how-to" / "open-a-table-in-an-older-client.md").read_text()
    commands = re.findall(r"^lakemirror ((?:compat|features|sql) .+?)(?: \|\| .+)?$", page, re.MULTILINE)
    names = frozenset({"appendOnly", "invariants", "deletionVectors"})
    monkeypatch.chdir(tmp_path)
    make(Path("shop/Tables/orders"), Protocol(3, 7, frozenset({"deletionVectors"}), names))
    codes = [run(*shlex.split(command))[0] for command in commands]
    assert codes == [3, 0, 0, 4, 0, 4]
    assert len(Path("drops.csv").read_text().splitlines()) == 2
    assert os.path.isdir("shop/Tables/orders/_delta_log")  # noqa: PTH112
