"""Every example of the pages that needs Spark is run in one session, after those of its page that need none."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parents[1]))
pages = importlib.import_module("how_to_pages")


@pytest.mark.parametrize("page", [page for page in pages.PAGES if any(e.note == "spark" for e in pages.blocks(page))])
def test_examples(page: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = pages.environment(tmp_path)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"spark": spark}
    for example in pages.examples(page):
        if example.note != "spark":
            if not pages.missing(example):
                pages.run(example, tmp_path, variables)
            continue
        # Spark's own process stays where it was started: paths are written out
        code = example.code
        for folder in ("shop", "feed", "checkpoints"):
            code = code.replace(f'"{folder}/', f'"{tmp_path}{os.sep}{folder}/').replace(
                f"`{folder}/", f"`{tmp_path}/{folder}/"
            )
        exec(compile(code, page, "exec"), names)
    spark.sql("DROP SCHEMA IF EXISTS shop CASCADE")
