"""The documents stay short and in plain words."""

from __future__ import annotations

import re
from pathlib import Path

from tests.advice import said

ROOT = Path(__file__).resolve().parents[2]
TOP = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES = [*TOP, *sorted((ROOT / "docs").rglob("*.md"))]
REGISTER = ROOT / "docs/decisions/031-what-is-removed.md"  # rows that a test reads; nobody reads it from top to bottom
FOLDERS = ("src", "tests", "docs", "benchmarks", "scripts", "deploy")
FILES = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.*")]
MOST_WORDS, MOST_OF_AN_EXPLANATION = 45_700, 1_200
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


_OLD = re.compile(rf"(?i)\b({'|'.join(OLD_WORDS)})\b")


def old_words(text: str) -> dict[str, str]:
    """The old words of a text, each with the one that takes its place."""
    return {
        match[0]: next(better for old, better in OLD_WORDS.items() if re.fullmatch(f"(?i){old}", match[0]))
        for match in _OLD.finditer(text)
    }


def test_no_old_word_comes_back() -> None:
    found = {page.relative_to(ROOT): old_words(" ".join(text_of(page).split())) for page in PAGES}
    assert not {page: words for page, words in found.items() if words}, "say it with the words beside"


def test_old_words_are_found_in_every_form() -> None:
    for text in ("It mends this.", "He is told so.", "Files lie there.", "files are set aside", "Retired files"):
        assert old_words(text), text


def test_all_pages_together_are_short() -> None:
    assert sum(words(page) for page in PAGES if page != REGISTER) <= MOST_WORDS


def test_an_explanation_takes_ten_minutes() -> None:
    found = {page.stem: words(page) for page in (ROOT / "docs/explanation").glob("*.md")}
    assert found
    assert not {page: count for page, count in found.items() if count > MOST_OF_AN_EXPLANATION}


def test_links_of_the_top_pages_lead_somewhere() -> None:
    for page in TOP:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (ROOT / target).exists(), (page.name, target)


def test_files_that_a_page_names_exist() -> None:
    """Files of this repository are named by their path, or by the end of it."""
    parts = [path.relative_to(ROOT).parts for path in FILES]
    there = {"/".join(each[start:]) for each in parts for start in range(len(each))}
    for page in PAGES:
        named = set(re.findall(r"`([\w/-]+\.(?:py|toml|yaml|yml|service))`", page.read_text(encoding="utf-8")))
        assert not named - there, page.name


def test_no_message_says_an_old_word() -> None:
    """Messages, hints and `--help`; names of loggers and failpoints have no space."""
    assert not {place: old for place, text in said() if " " in text and (old := old_words(text))}
