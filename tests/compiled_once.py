"""Compiles before the processes of a run start what each of them would compile: the package, and the tests, in which
pytest rewrites what is asserted. In a fresh clone that is a third of the time until the first test."""

from __future__ import annotations

import compileall
import multiprocessing
from pathlib import Path
from typing import Any

import pytest
from _pytest.assertion import rewrite  # not public: where it changes, pytest compiles what this has not

ROOT = Path(__file__).parents[1]
PROCESSES = 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: Any) -> None:
    """Compiles all that is not yet compiled, in `PROCESSES` processes."""
    del specs
    tests = [path for given in config.args for path in _tests(Path(given.partition("::")[0]).absolute())]
    fork = multiprocessing.get_context("fork")
    parts = [fork.Process(target=_compile, args=(config, tests, part)) for part in range(PROCESSES)]
    for part in parts:
        part.start()
    for part in parts:
        part.join()


def _tests(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(path.rglob("test_*.py"))


def _compile(config: pytest.Config, tests: list[Path], part: int) -> None:
    """Compiles every `PROCESSES`th file."""
    for path in tests[part::PROCESSES]:
        folder = rewrite.get_cache_dir(path)
        compiled = folder / f"{path.stem}{rewrite.PYC_TAIL}"
        if rewrite._read_pyc(path, compiled) is None:
            folder.mkdir(parents=True, exist_ok=True)
            digest, code = rewrite._rewrite_test(path, config)
            rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, digest, compiled)
    for path in sorted((ROOT / "src").rglob("*.py"))[part::PROCESSES]:
        compileall.compile_file(path, quiet=2)
