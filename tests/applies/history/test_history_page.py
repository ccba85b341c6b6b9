"""The page on history: its examples, one after another as a reader would run them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from lakemirror import MirroredDatabase

sys.path.insert(0, str(Path(__file__).parents[2]))
pages = importlib.import_module("how_to_pages")


def test_examples_of_the_page(tmp_path: Path) -> None:
    variables = pages.environment(tmp_path)
    first, *rest = (each for each in pages.examples("how-to/keep-history") if each.note != "spark")
    pages.run(first, tmp_path, variables)
    for error in MirroredDatabase(tmp_path / "shop", engine="local").sync().failed.values():
        raise error
    for example in rest:
        pages.run(example, tmp_path, variables)
    assert len(rest) >= 5
