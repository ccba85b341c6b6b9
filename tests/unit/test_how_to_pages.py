"""Every example of the pages that needs no Spark is run, in the order of its page."""

from __future__ import annotations

import configparser
import importlib
import re
import shlex
import sys
from pathlib import Path

import pytest
import typer

from lakemirror.cli import app

sys.path.insert(0, str(Path(__file__).parents[1]))
pages = importlib.import_module("how_to_pages")


@pytest.mark.parametrize("page", pages.PAGES)
def test_examples(page: str, tmp_path: Path) -> None:
    variables = pages.environment(tmp_path)
    left_out = []
    examples = pages.examples(page)
    assert examples
    for example in examples:
        if example.note == "spark":
            continue
        if package := pages.missing(example):
            left_out.append(package)
            continue
        pages.run(example, tmp_path, variables)
    if left_out:
        pytest.skip(f"examples left out, because these are not installed: {', '.join(sorted(set(left_out)))}")


def test_the_service_unit_starts_what_there_is() -> None:
    text = (pages.DOCS / "how-to/run-as-a-service.md").read_text(encoding="utf-8")
    unit = configparser.ConfigParser(interpolation=None)
    unit.read_string(re.search(r"```ini\n(.*?)```", text, re.S)[1])
    program, command, _ = shlex.split(unit["Service"]["ExecStart"])
    assert program.endswith("/bin/lakemirror") and command in typer.main.get_command(app).commands


def test_the_index_names_every_page() -> None:
    index = (pages.DOCS / "index.md").read_text(encoding="utf-8")
    listed = {target.partition("#")[0] for target in re.findall(r"\]\(([^)]+)\)", index)}
    there = {path.relative_to(pages.DOCS).as_posix() for path in pages.DOCS.rglob("*.md")}
    assert {path for path in there if not path.startswith("decisions/")} - {"index.md"} <= listed


def test_the_site_names_every_page() -> None:
    site = (pages.DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    named = set(re.findall(r": ([\w/-]+\.md)$", site, re.M))
    there = {path.relative_to(pages.DOCS).as_posix() for path in pages.DOCS.rglob("*.md")}
    assert named == {path for path in there if not path.startswith("decisions/")}
