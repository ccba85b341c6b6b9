"""The documents stay short and in plain words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.advice import said

ROOT = Path(__file__).resolve().parents[2]
TOP = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES = [*TOP, *sorted((ROOT / "docs").rglob("*.md"))]
REGISTER = ROOT / "docs/decisions/031-what-is-removed.md"  # rows that a test reads; nobody reads it from top to bottom
FOLDERS = ("src", "tests", "docs", "benchmarks", "scripts", "deploy")
FILES = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.*")]
MOST_WORDS, MOST_OF_AN_EXPLANATION = 45_000, 1_200
OLD_WORDS = {  # each with the word that takes its place
    r"mend(s|ed|ing)?": "fix",
    "anew": "again",
    r"reckon(s|ed)?": "compute",
    "at rest": "idle",
    r"h[eo]ld(s|ing)? back": "paused, waits",
    "g[ia]ve way": "cancel",
    r"untold|(is|are|was|were|be|been) told": "reported",
    r"retire(s|d)?": "archive",
    r"set(s)? aside": "archive",
    "adoption|adopted": "files that are copied",
    r"lookers?": "the apply queue",
    "sought": "key look-up",
    r"survivors?": "upserted rows",
    "kept keys": "key cache",
    "touched files": "data skipping",
    r"acts? of an? operator": "operations",
    r"(is|are|was|were|be) judged": "resolved",
    "dying": "a crash",
    r"files? (that )?(lie|lies|stand|stands)": "is, are",
    r"(is|are|be) believed": "trusted",
    "as they are": "unchanged",
}


def text_of(page: Path) -> str:
    """A page without what is code."""
    without_blocks = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    return re.sub(r"`[^`\n]+`|\]\([^)]*\)|<!--.*?-->", " ", without_blocks)


def words(page: Path) -> int:
    """Words as a reader counts them: a mark of a table is none."""
    return sum(bool(re.search(r"\w", word)) for word in page.read_text(encoding="utf-8").split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_old_word_comes_back(page: Path) -> None:
    text = " ".join(text_of(page).split())
    found = {match[0]: better for old, better in OLD_WORDS.items() for match in re.finditer(rf"(?i)\b({old})\b", text)}
    assert not found, f"{page.name}: say it with {found}"


def test_old_words_are_found_in_every_form() -> None:
    for text in ("It mends this.", "He is told so.", "Files lie there.", "files are set aside", "Retired files"):
        assert any(re.search(rf"(?i)\b({old})\b", text) for old in OLD_WORDS), text


def test_all_pages_together_are_short() -> None:
    assert sum(words(page) for page in PAGES if page != REGISTER) <= MOST_WORDS


@pytest.mark.parametrize("page", sorted((ROOT / "docs/explanation").glob("*.md")), ids=lambda page: page.stem)
def test_an_explanation_takes_ten_minutes(page: Path) -> None:
    assert words(page) <= MOST_OF_AN_EXPLANATION


@pytest.mark.parametrize("page", TOP, ids=lambda page: page.stem)
def test_links_of_the_top_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (ROOT / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_that_a_page_names_exist(page: Path) -> None:
    """Files of this repository are named by their path, or by the end of it."""
    named = set(re.findall(r"`([\w/-]+\.(?:py|toml|yaml|yml|service))`", page.read_text(encoding="utf-8")))
    there = [f"/{path.relative_to(ROOT).as_posix()}" for path in FILES]
    assert not {name for name in named if not any(path.endswith(f"/{name}") for path in there)}


def test_no_message_says_an_old_word() -> None:
    """Messages, hints and `--help`; names of loggers and failpoints have no space."""
    found = {
        place: match[0]
        for place, text in said()
        for old in OLD_WORDS
        if " " in text and (match := re.search(rf"(?i)\b({old})\b", text))
    }
    assert not found
