from __future__ import annotations

import os
from pathlib import Path

import pytest

from lakemirror import doctor
from lakemirror.doctor import Check
from lakemirror.errors import SetupError
from lakemirror.settings.settings import Settings
from lakemirror.spark_session.java import Java


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Of a machine with Java and jars."""
    (tmp_path / "delta.jar").write_bytes(b"")
    monkeypatch.setattr(doctor.java, "find", lambda: Java(Path("/java"), "17.0.1"))
    monkeypatch.setattr(doctor, "memory", lambda: 8 * 1024**3)
    return Settings(jars=str(tmp_path / "delta.jar"), cache_dir=str(tmp_path / "cache"))


def examine(settings: Settings, database: Path | None = None) -> dict[str, Check]:
    return {check.name: check for check in doctor.examine(settings, database)}


def test_all_is_well(settings: Settings, tmp_path: Path) -> None:
    checks = examine(settings, tmp_path)
    assert [check for check in checks.values() if not check.ok] == []
    assert list(checks) == [
        *("python", "pyspark", "delta-spark", "java", "memory", "jars", "archive", "cache folder", "database folder")
    ]
    assert "Java 17.0.1" in checks["java"].detail


def test_every_fault_has_a_hint(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_java() -> Java:
        raise SetupError("java-missing", "no Java 17 found")

    monkeypatch.setattr(doctor.java, "find", no_java)
    monkeypatch.setattr(doctor, "memory", lambda: 1024**3)
    monkeypatch.setattr(doctor, "OPTIONAL", {"pyspark": (("3.4.",), "", ""), "no-such-package": (("1.",), "", "")})
    (tmp_path / "file").write_text("")
    lacking = Settings(cache_dir=str(tmp_path / "file" / "cache"))
    checks = examine(lacking, tmp_path / "file")
    faults = {name for name, check in checks.items() if not check.ok}
    expected = {"pyspark", "java", "memory", "cache folder", "database folder"}
    assert faults == expected
    assert all(checks[name].hint for name in faults)


def test_a_larger_heap_needs_more_memory(settings: Settings) -> None:
    import dataclasses

    assert examine(dataclasses.replace(settings, driver_memory="5g"))["memory"].ok
    assert not examine(dataclasses.replace(settings, driver_memory="6g"))["memory"].ok


@pytest.mark.parametrize(
    ("text", "size"), [("512m", 512 * 1024**2), ("4G", 4 * 1024**3), ("2gb", 2 * 1024**3), ("", 1024**3)]
)
def test_heap(text: str, size: int) -> None:
    assert doctor.heap_bytes(text) == size


def test_memory_of_a_container(tmp_path: Path) -> None:
    assert doctor.memory(tmp_path) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:       4096 kB\nMemFree: 1 kB\n")
    assert doctor.memory(tmp_path) == 4096 * 1024
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("max\n")
    assert doctor.memory(tmp_path) == 4096 * 1024
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("1000\n")
    assert doctor.memory(tmp_path) == 1000


def test_writable_leaves_nothing_behind(tmp_path: Path) -> None:
    assert doctor.writable(tmp_path / "a" / "b", name="x").ok
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_the_right_to_write(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    check = doctor.writable(tmp_path, name="x")
    tmp_path.chmod(0o700)
    assert not check.ok
    assert str(tmp_path) in check.hint
