from __future__ import annotations

from pathlib import Path

import pytest

from lakemirror.errors import SetupError
from lakemirror.spark_session import java
from lakemirror.spark_session.java import Java


def install(folder: Path, version: str, *, release: bool = True) -> Path:
    """A Java that consists of what is looked at."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2021-09-14' >&2\n")
    program.chmod(0o755)
    if release:
        (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return folder


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("21", 21), ("1.8.0_392", 8), ("25-ea", 25), ("", 0), ("?", 0)]
)
def test_major_version(version: str, major: int) -> None:
    assert Java(Path("/x"), version).major == major


@pytest.mark.parametrize(
    ("versions", "prefer_first", "chosen"),
    [
        (["21.0.1", "17.0.1"], False, "17.0.1"),
        (["21.0.1", "17.0.1"], True, "21.0.1"),
        (["25", "21.0.1"], True, "21.0.1"),
        (["17.0.1", "17.0.2"], False, "17.0.1"),
        (["11.0.2", "25"], True, None),
        ([], True, None),
    ],
)
def test_17_before_21_unless_named_on_purpose(versions: list[str], prefer_first: bool, chosen: str | None) -> None:
    found = java.choose([Java(Path("/x"), version) for version in versions], prefer_first=prefer_first)
    assert (found and found.version) == chosen


def test_java_home_that_fits_wins_over_the_path(tmp_path: Path) -> None:
    named = install(tmp_path / "named", "21.0.4")
    on_path = install(tmp_path / "other", "17.0.1")
    found = java.find({"JAVA_HOME": str(named), "PATH": str(on_path / "bin")}, places=())
    assert found == Java(named, "21.0.4")


def test_usual_places_help_out_where_java_home_does_not_fit(tmp_path: Path) -> None:
    named = install(tmp_path / "old", "11.0.2")
    good = install(tmp_path / "jvm" / "java-17", "17.0.9")
    install(tmp_path / "jvm" / "java-21", "21.0.1")
    found = java.find({"JAVA_HOME": str(named), "PATH": ""}, places=(f"{tmp_path}/jvm/*",))
    assert found == Java(good, "17.0.9")


def test_a_link_on_the_path_leads_to_the_home(tmp_path: Path) -> None:
    home = install(tmp_path / "java-17", "17.0.9")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert java.find({"PATH": str(tmp_path / "bin")}, places=()) == Java(home, "17.0.9")


def test_without_a_release_file_java_itself_is_asked(tmp_path: Path) -> None:
    home = install(tmp_path / "java", "17.0.2", release=False)
    assert java.find({"JAVA_HOME": str(home), "PATH": ""}, places=()).version == "17.0.2"


def test_missing_java_names_what_was_looked_at(tmp_path: Path) -> None:
    old = install(tmp_path / "old", "11.0.2")
    with pytest.raises(SetupError) as caught:
        java.find({"JAVA_HOME": str(old), "PATH": str(tmp_path)}, places=("/nowhere/*",))
    assert caught.value.code == "java-missing"
    assert "JAVA_HOME, PATH, /nowhere/*" in caught.value.message
    assert f"{old}: Java 11.0.2" in caught.value.message
    assert "openjdk-17" in caught.value.hint
