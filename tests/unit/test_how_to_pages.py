"""The pages, read; their examples are run in `tests/examples/test_examples_of_pages.py`."""

from __future__ import annotations

import configparser
import importlib
import re
import shlex
import sys
from pathlib import Path

import typer

from lakemirror.cli import app

sys.path.insert(0, str(Path(__file__).parents[1]))
pages = importlib.import_module("how_to_pages")


def test_other_pages_begin_in_an_empty_folder() -> None:
    for page in {*pages.PAGES[2:], *pages.ELSEWHERE} - {
        "how-to/run-the-service",
        "how-to/share-tables",
        "how-to/orchestrate",
    }:
        text = (pages.DOCS / f"{page}.md").read_text(encoding="utf-8")
        assert "an empty folder" in " ".join(text.split()), page


def test_every_block_of_every_page_is_run_or_says_why_not() -> None:
    found = [
        "../README",
        *(path.relative_to(pages.DOCS).with_suffix("").as_posix() for path in pages.DOCS.rglob("*.md")),
    ]
    assert not set(pages.ELSEWHERE) & set(pages.PAGES)
    for page in found:
        text = (pages.DOCS / f"{page}.md").read_text(encoding="utf-8")
        blocks = pages.blocks(page)
        assert len(re.findall("^```", text, re.M)) == 2 * len(blocks), f"{page}: a block that is not closed"
        if page in pages.ELSEWHERE:
            assert (pages.ROOT / pages.ELSEWHERE[page]).is_file()
            continue
        for block in blocks:
            is_run = page in pages.PAGES and block.language in ("sh", "python")
            assert is_run or block.language in pages.SHOWN or block.note in pages.NOT_RUN, f"{page}:\n{block.code}"


def test_what_pages_make_is_in_the_makefile() -> None:
    targets = set(re.findall(r"^([\w-]+):", (pages.ROOT / "Makefile").read_text(), re.M))
    named = {
        target
        for page in pages.PAGES
        for block in pages.blocks(page)
        if block.note == "make"
        for target in re.findall(r"^make ([\w-]+)", block.code, re.M)
    }
    assert {"install", "demo"} <= named <= targets


def test_the_readme_is_short() -> None:
    assert len((pages.ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 100


def test_links_lead_to_headings() -> None:
    """What `mkdocs build --strict` refuses: anchors that are no heading."""
    headings = {
        path: {_anchor(line) for line in re.findall(r"^#+ (.+)$", _without_code(path), re.M)}
        for path in [pages.ROOT / "README.md", *pages.DOCS.rglob("*.md")]
    }
    for path in headings:
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)", _without_code(path)):
            place = (path.parent / target).resolve() if target else path
            assert anchor in headings.get(place, set()), f"{path.name}: {target}#{anchor}"


def _without_code(path: Path) -> str:
    return re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)


def _anchor(heading: str) -> str:
    """A heading's anchor, as Python-Markdown makes it."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


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
    rows = re.findall(r"^\|.*\]\(([^)]+)\)", index, re.M)
    assert len(rows) == len(set(rows)), "a page is listed twice"


def test_the_site_names_every_page() -> None:
    site = (pages.DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r": ([\w/-]+\.md)$", site, re.M)
    named = set(listed)
    assert len(listed) == len(named), "a page is listed twice"
    there = {path.relative_to(pages.DOCS).as_posix() for path in pages.DOCS.rglob("*.md")}
    assert named == {path for path in there if not path.startswith("decisions/")}
