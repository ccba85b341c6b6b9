from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from lakemirror.settings.settings import Settings
from lakemirror.spark_session import class_archive, jvm
from lakemirror.spark_session.archive_path import archive_path, find_archive
from lakemirror.spark_session.java import Java
from lakemirror.storage.own_files import work_folder


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Settings, Java, tuple[Path, ...]]:
    """A Spark of one jar, a Delta of one jar, a Java."""
    for name in ("spark/jars/spark.jar", "delta.jar"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"jar")
    monkeypatch.setattr(jvm, "spark_home", lambda: tmp_path / "spark")
    return Settings(cache_dir=str(tmp_path / "cache")), Java(tmp_path / "java", "17.0.1"), (tmp_path / "delta.jar",)


def test_none_until_there_is_one(programs: tuple[Settings, Java, tuple[Path, ...]]) -> None:
    assert find_archive(*programs) is None
    path = archive_path(*programs)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")
    assert find_archive(*programs) == path


@pytest.mark.parametrize("changed", ["spark/jars/spark.jar", "delta.jar", "spark/jars/new.jar", "java"])
def test_whatever_changes_asks_for_another(
    programs: tuple[Settings, Java, tuple[Path, ...]], tmp_path: Path, changed: str
) -> None:
    settings, java, jars = programs
    before = archive_path(*programs)
    assert before == archive_path(*programs)
    if changed == "java":
        java = Java(java.home, "17.0.2")
    else:
        (tmp_path / changed).write_bytes(b"jar")
        os.utime(tmp_path / changed, (1, 1))
    assert archive_path(settings, java, jars) != before


def test_only_one_makes_it(programs: tuple[Settings, Java, tuple[Path, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    settings, java, jars = programs
    monkeypatch.setattr(class_archive.java, "find", lambda: java)
    monkeypatch.setattr(class_archive.jars, "ensure", lambda settings: jars)
    monkeypatch.setattr(
        "lakemirror.spark_session.session.start", lambda *_, **__: pytest.fail("a second maker started Spark")
    )
    folder = archive_path(*programs).parent
    folder.mkdir(parents=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert class_archive.make(settings) is None


@pytest.mark.parametrize("ended", [True, False])
def test_an_archive_of_a_jvm_that_was_killed_is_not_taken(
    programs: tuple[Settings, Java, tuple[Path, ...]], monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    """A part of it is there: it would be found from then on, and fit no Java."""
    settings, java, _ = programs
    monkeypatch.setattr(class_archive.java, "find", lambda: java)
    monkeypatch.setattr(class_archive, "train", lambda _: None)

    def start(given: Settings, *, delta: bool) -> str:
        (flag,) = [value for name, value in given.spark if name == "spark.driver.extraJavaOptions"]
        Path(flag.strip('"').partition("=")[2]).write_bytes(b"a part")
        return "session"

    monkeypatch.setattr("lakemirror.spark_session.session.start", start)
    monkeypatch.setattr("lakemirror.spark_session.session.stop", lambda _, *, patience: ended and patience > 600)
    path = archive_path(settings, java, ())
    assert class_archive.make(settings) == (path if ended else None)
    assert [each.name for each in path.parent.glob("*.jsa")] == ([path.name] if ended else [])


@pytest.mark.parametrize(("program", "ended"), [("cat", True), ("sleep", False)])
def test_a_jvm_that_does_not_end_is_killed_and_that_is_said(program: str, ended: bool) -> None:
    with subprocess.Popen([program, *(["600"] if program == "sleep" else [])], stdin=subprocess.PIPE) as process:
        gateway = SimpleNamespace(proc=process, shutdown=lambda: None)
        assert jvm.end(gateway, patience=60.0 if ended else 0.05) is ended
        assert process.returncode == (0 if ended else -signal.SIGKILL)


def test_the_oldest_go(tmp_path: Path) -> None:
    with work_folder(tmp_path, ".making-") as made:
        made.rename(tmp_path / f".making-{'a' * 32}")  # of a killed one
    names = [f"java17.0.2-spark-{number:016x}.jsa" for number in range(6)]
    foreign = ["notes.jsa", f"java17.0.2-spark-{9:016x}.jsa", ".making-of-somebody/thesis.txt"]
    for number, name in enumerate(names):
        (tmp_path / name).write_bytes(0xF00BABA8.to_bytes(4, sys.byteorder) + b"classes")
        os.utime(tmp_path / name, (number, number))
    for name in foreign:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"somebody's")
        os.utime(tmp_path / name, (0, 0))
    class_archive._prune(tmp_path, keep=tmp_path / names[0])
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {*names, *foreign} - {names[1]}
    assert not (tmp_path / f".making-{'a' * 32}").exists()
