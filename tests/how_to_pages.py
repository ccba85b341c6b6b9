"""The examples of the pages, one after another as a reader would run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import lakemirror
from tests import preloaded

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = ("../README", "getting-started", *(f"how-to/{name}" for name in (
    "read-the-tables", "publish-spreadsheets", "publish-from-sql", "publish-from-spark",
    "run-on-your-spark", "spark-streams", "verify-a-mirror", "open-a-table-in-an-older-client", "troubleshoot",
    "recover", "coming-from-fabric", "see-what-happened", "cuts",
)))  # fmt: skip
ELSEWHERE = {  # pages whose examples another test runs
    "how-to/write-a-publisher": "tests/publisher/test_docs.py",
    "how-to/keep-history": "tests/applies/history/test_history_page.py",
    "how-to/orchestrate": "tests/clients/test_orchestrators.py",
    "how-to/mirror-a-mariadb-database": "tests/capture/test_capture_page.py",
    "how-to/mirror-a-postgresql-database": "tests/capture/test_capture_page.py",
    "how-to/share-tables": "tests/service/test_share_page.py",
    "how-to/run-the-service": "tests/service/test_deployed.py",
}
NOT_RUN = (
    "make",
    "needs a cluster",
    "needs a store",
    "needs root",
    "takes an hour",
    "in a pipeline",
)  # notes above blocks that a test cannot run
SHOWN = ("text", "json", "yaml", "ini", "toml")  # languages of blocks that are no example
_BLOCK = re.compile(r"(?:^<!-- (?P<note>[\w ]+) -->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Example:
    """One block of a page. `note`: what is above it: `spark`, `needs <package>` or one of `NOT_RUN`."""

    language: str
    code: str
    note: str


def blocks(page: str) -> list[Example]:
    """Every fenced block of a page."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    return [Example(each["language"], each["code"], each["note"] or "") for each in _BLOCK.finditer(text)]


def examples(page: str) -> list[Example]:
    """The blocks of a page that can be run."""
    return [each for each in blocks(page) if each.language in ("sh", "python") and each.note not in NOT_RUN]


def missing(example: Example) -> str:
    """The package that an example needs and that is not installed; empty where there is none."""
    named = re.findall(
        r"^(?:import|from) (polars|duckdb_extension_delta|duckdb|deltalake|openpyxl)", example.code, re.M
    )
    named += [example.note.removeprefix("needs ")] if example.note.startswith("needs ") else []
    return next((name for name in named if find_spec(name) is None), "")


def environment(folder: Path) -> dict[str, str]:
    """An environment with the command `lakemirror`, and DuckDB's extension where its package is installed."""
    binaries = folder / "bin"
    binaries.mkdir()
    preloaded.program(binaries / "lakemirror", "-m", "lakemirror.cli")
    preloaded.program(binaries / "python")
    _duckdb_extension(folder)
    source = str(Path(lakemirror.__file__).parents[1])
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}", "PYTHONPATH": path, "HOME": str(folder)}


def run(example: Example, folder: Path, variables: dict[str, str]) -> None:
    """Runs an example that needs no Spark."""
    if example.language == "sh":
        done = subprocess.run(["sh", "-euc", example.code], cwd=folder, env=variables, capture_output=True, text=True)
    else:
        command = [sys.executable, "-c", example.code]
        done = preloaded.run(command, cwd=folder, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, f"{example.code}\n{done.stdout}{done.stderr}"


def _duckdb_extension(home: Path) -> None:
    if find_spec("duckdb_extension_delta") is None or find_spec("duckdb") is None:
        return
    import duckdb
    import duckdb_extension_delta

    (found,) = Path(duckdb_extension_delta.__file__).parent.rglob("*.duckdb_extension")
    platform = duckdb.sql("PRAGMA platform").fetchone()
    assert platform is not None
    folder = home / ".duckdb" / "extensions" / f"v{duckdb.__version__}" / platform[0]
    folder.mkdir(parents=True)
    (folder / found.name).symlink_to(found)
