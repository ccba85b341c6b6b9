"""Every example of the pages that needs no Spark is run, in the order of its page."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests import how_to_pages as pages


@pytest.mark.parametrize("page", pages.PAGES[1:])
def test_examples(page: str, tmp_path: Path) -> None:
    """Getting started also works in the folder where somebody has pasted the README before."""
    variables = pages.environment(tmp_path)
    left_out = []
    examples = pages.examples(page)
    assert examples
    if page == "getting-started":
        examples = [*pages.examples("../README"), *examples]
    for example in examples:
        if example.note == "spark":
            continue
        if package := pages.missing(example):
            left_out.append(package)
            continue
        pages.run(example, tmp_path, variables)
    if left_out:
        pytest.skip(f"examples left out, because these are not installed: {', '.join(sorted(set(left_out)))}")
