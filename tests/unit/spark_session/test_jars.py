from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lakemirror.errors import SetupError
from lakemirror.settings.settings import Settings
from lakemirror.spark_session import jars
from lakemirror.spark_session.jars import Jar
from lakemirror.spark_session.java import Java
from lakemirror.spark_session.jvm import StartFailed

CONTENT = {"first": b"one jar", "second": b"another"}
TWO = tuple(
    Jar("org.example", name, "1.0", len(content), hashlib.sha256(content).hexdigest())
    for name, content in CONTENT.items()
)


class Registry:
    """In place of the JVM: puts into the folder what a registry would give."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[Mapping[str, str]] = []
        self.content = dict(CONTENT)
        self.answers = True
        self.takes = 0.0
        monkeypatch.setattr(jars, "DELTA_JARS", TWO)
        monkeypatch.setattr(jars.java, "find", lambda: Java(Path("/java"), "17"))
        monkeypatch.setattr(jars.jvm, "launch", self.launch)
        monkeypatch.setattr(jars.jvm, "end", lambda gateway: None)

    def launch(self, options: Mapping[str, str], java: Java) -> Any:
        self.asked.append(options)
        time.sleep(self.takes)
        if not self.answers:
            raise StartFailed(java, "the host repo.example cannot be found")
        folder = Path(options["spark.jars.ivy"], "jars")
        folder.mkdir()
        for jar in TWO:
            if jar.artifact in self.content:
                (folder / jar.fetched_name).write_bytes(self.content[jar.artifact])


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    return Registry(monkeypatch)


def test_fetched_once_then_taken_from_the_cache(registry: Registry, tmp_path: Path) -> None:
    settings = Settings(cache_dir=str(tmp_path))
    paths = jars.ensure(settings)
    assert [path.read_bytes() for path in paths] == list(CONTENT.values())
    assert jars.ensure(settings) == jars.find(settings) == paths
    assert len(registry.asked) == 1
    assert registry.asked[0]["spark.jars.packages"] == "org.example:first:1.0,org.example:second:1.0"
    assert sorted(path.name for path in (tmp_path / "jars").iterdir()) == [".lock", "first-1.0.jar", "second-1.0.jar"]


def test_a_jar_cut_short_is_fetched_again(registry: Registry, tmp_path: Path) -> None:
    settings = Settings(cache_dir=str(tmp_path))
    first, _ = jars.ensure(settings)
    first.write_bytes(b"one")
    assert jars.find(settings) == ()
    assert jars.ensure(settings)[0].read_bytes() == CONTENT["first"]


@pytest.mark.parametrize("content", [{"first": b"one jar"}, {"first": b"one jar", "second": b"ANOTHER"}])
def test_another_content_is_refused_and_nothing_kept(
    registry: Registry, tmp_path: Path, content: dict[str, bytes]
) -> None:
    registry.content = content
    with pytest.raises(SetupError, match=r"jars-missing: .*org\.example:second:1\.0 is not the jar expected"):
        jars.ensure(Settings(cache_dir=str(tmp_path)))
    assert [path.name for path in (tmp_path / "jars").iterdir()] == [".lock"]


def test_the_cause_is_said_and_nothing_is_left(registry: Registry, tmp_path: Path) -> None:
    registry.answers = False
    with pytest.raises(SetupError, match=r"jars-missing: .*repo\.example cannot be found$") as caught:
        jars.ensure(Settings(cache_dir=str(tmp_path)))
    assert "LAKEMIRROR_JARS" in caught.value.hint
    assert [path.name for path in (tmp_path / "jars").iterdir()] == [".lock"]


def test_two_at_once_fetch_once(registry: Registry, tmp_path: Path) -> None:
    registry.takes = 0.2
    got: list[tuple[Path, ...]] = []
    settings = Settings(cache_dir=str(tmp_path))
    threads = [threading.Thread(target=lambda: got.append(jars.ensure(settings))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 2
    assert got[0] == got[1] != ()
    assert len(registry.asked) == 1


def test_a_mirror_in_the_settings_is_used(registry: Registry, tmp_path: Path) -> None:
    own = (("spark.jars.ivySettings", "mirror.xml"), ("spark.jars.ivy", "/elsewhere"), ("spark.ui.enabled", "true"))
    jars.ensure(Settings(cache_dir=str(tmp_path), spark=own))
    assert registry.asked[0]["spark.jars.ivySettings"] == "mirror.xml"
    assert registry.asked[0]["spark.jars.ivy"].startswith(str(tmp_path))
    assert "spark.ui.enabled" not in registry.asked[0]


def test_a_cache_that_cannot_be_written(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="jars-missing"):
        jars.ensure(Settings(cache_dir=str(tmp_path / "file")))


def test_named_jars_need_no_cache(registry: Registry, tmp_path: Path) -> None:
    for name in ("a.jar", "b.jar"):
        (tmp_path / name).write_bytes(b"")
    settings = Settings(jars=f"{tmp_path}/a.jar, {tmp_path}/b.jar", cache_dir=str(tmp_path / "cache"))
    assert jars.ensure(settings) == (tmp_path / "a.jar", tmp_path / "b.jar")
    assert registry.asked == []
    assert not (tmp_path / "cache").exists()


def test_a_named_jar_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"jars-missing: .*gone\.jar"):
        jars.ensure(Settings(jars=str(tmp_path / "gone.jar")))
