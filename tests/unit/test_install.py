"""Setup: each target of make asks for what it uses, and what cannot be had is named with what it is for."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ("sh", "cat", "cksum", "dirname", "env", "id", "pwd", "printf")
PYTHON = """#!/bin/sh
case "$*" in
*java.find*) exit "${NO_JAVA:-0}" ;;
*spark_session.jars*) echo jars >>"$MADE"; [ -z "${NO_JARS:-}" ] || { echo "jars-missing: no host" >&2; exit 1; } ;;
*class_archive*) echo archive >>"$MADE" ;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder in which all packages are installed already, with programs that only note what is asked of them."""
    for name in ("scripts", "requirements", ".venv/bin", "bin"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copy(ROOT / "scripts/install.sh", tmp_path / "scripts")
    (tmp_path / "requirements/dev.txt").touch()
    (tmp_path / "pyproject.toml").touch()
    for path, text in ((".venv/bin/python", PYTHON), ("bin/apt-get", "#!/bin/sh\nexit 1\n")):
        (tmp_path / path).write_text(text)
        (tmp_path / path).chmod(0o755)
    for name in TOOLS:
        found = shutil.which(name)
        assert found
        (tmp_path / "bin" / name).symlink_to(found)
    wanted = subprocess.run(
        ["sh", "-c", "cat requirements/*.txt pyproject.toml | cksum; pwd"],
        cwd=tmp_path, capture_output=True, check=True,
    )  # fmt: skip
    (tmp_path / ".venv/.installed").write_bytes(wanted.stdout)
    return tmp_path


def install(checkout: Path, *words: str, **missing: str) -> tuple[int, str, list[str]]:
    """Exit code, what is said, and what was made."""
    made = checkout / "made"
    made.write_text("")
    done = subprocess.run(
        [str(checkout / "scripts/install.sh"), *words], capture_output=True, text=True, check=False, timeout=60,
        env={"PATH": str(checkout / "bin"), "MADE": str(made), "HOME": str(checkout), **missing},
    )  # fmt: skip
    return done.returncode, done.stderr, made.read_text().split()


def test_what_is_asked_for_is_made(checkout: Path) -> None:
    assert install(checkout) == (0, "", [])
    assert install(checkout, "java") == (0, "", [])
    assert install(checkout, "java", "jars") == (0, "", ["jars"])
    assert install(checkout, "all") == (0, "", ["jars", "archive"])
    assert install(checkout, "jar")[0] == 1


def test_without_jars(checkout: Path) -> None:
    assert install(checkout, NO_JARS="1")[0] == install(checkout, "java", NO_JARS="1")[0] == 0
    code, said, _ = install(checkout, "java", "jars", NO_JARS="1")
    assert code == 1, "make test does not leave out in silence what needs the jars"
    assert "jars-missing: no host" in said and "make test-unit" in said
    code, said, made = install(checkout, "all", NO_JARS="1")
    assert (code, made) == (0, ["jars", "archive"])
    assert "jars-missing: no host" in said and "mirroring works" in said


def test_without_java(checkout: Path) -> None:
    assert install(checkout, NO_JAVA="1")[0] == 0
    code, said, _ = install(checkout, "java", NO_JAVA="1")
    assert code == 1 and "apt-get install openjdk-17" in said
    code, said, made = install(checkout, "all", NO_JAVA="1")
    assert (code, made) == (0, [])
    assert "the local engine works" in said


@pytest.mark.parametrize(
    ("target", "asked"),
    [
        ("install", "all"), ("demo", "java"), ("demo-store", ""), ("test-unit", ""),
        ("test", "java jars postgresql mariadb"),
        ("test-full", "java jars postgresql mariadb"), ("lint", ""), ("types", ""), ("format", ""), ("docs", ""),
        ("bench", "java jars postgresql mariadb"),
    ],
)  # fmt: skip
def test_each_target_asks_for_what_it_uses(target: str, asked: str) -> None:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    done = subprocess.run(
        ["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=True, env=environment, timeout=60
    )
    assert [line for line in done.stdout.splitlines() if "install.sh" in line] == [
        f"scripts/install.sh {asked}".strip()
    ]


def test_the_demo_uses_no_delta_jars() -> None:
    for path in (ROOT / "examples/flights").glob("*.py"):
        text = path.read_text()
        assert "delta=True" not in text and "delta.`" not in text, path.name
