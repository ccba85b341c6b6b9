"""Finds the Java that runs Spark: 17, or else 21. Starts none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lakemirror.errors import SetupError

FITTING = (17, 21)
"""Major versions that run Spark 4.2, the preferred one first."""

USUAL_PLACES = ("/usr/lib/jvm/*", "/opt/java/*", "~/.sdkman/candidates/java/*")


@dataclass(frozen=True)
class Java:
    """A Java installation: its home folder and its version, such as 17.0.15."""

    home: Path
    version: str

    @property
    def major(self) -> int:
        """17 of 17.0.15, 8 of 1.8.0; 0 when the version could not be read."""
        numbers = [int(n) for n in re.findall(r"\d+", self.version)]
        if len(numbers) > 1 and numbers[0] == 1:
            return numbers[1]
        return numbers[0] if numbers else 0


def find(environment: Mapping[str, str] | None = None, places: Iterable[str] = USUAL_PLACES) -> Java:
    """The Java to use: JAVA_HOME if its version fits, else the best of PATH and the usual places.

    SetupError `java-missing` names every place that was searched.
    """
    environment = os.environ if environment is None else environment
    found = list(_candidates(environment, places))
    chosen = choose([java for _, java in found], prefer_first="JAVA_HOME" in [origin for origin, _ in found])
    if chosen is None:
        seen = ", ".join(f"{origin} ({java.home}: Java {java.version or 'unknown'})" for origin, java in found)
        looked = ", ".join(["JAVA_HOME", "PATH", *places])
        raise SetupError("java-missing", f"no Java 17 found in {looked}; found there: {seen or 'none'}")
    return chosen


def choose(found: list[Java], *, prefer_first: bool) -> Java | None:
    """The Java that fits best: the explicitly named one if it fits, else 17 before 21, in order."""
    if prefer_first and found and found[0].major in FITTING:
        return found[0]
    fitting = [java for java in found if java.major in FITTING]
    return min(fitting, key=lambda java: FITTING.index(java.major), default=None)


def _candidates(environment: Mapping[str, str], places: Iterable[str]) -> Iterator[tuple[str, Java]]:
    seen: set[Path] = set()
    named = environment.get("JAVA_HOME", "")
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    homes = [("JAVA_HOME", Path(named))] if named else []
    if on_path:
        homes.append(("PATH", Path(on_path).resolve().parent.parent))
    for place in places:
        pattern = Path(place).expanduser()
        homes += [(place, home) for home in sorted(pattern.parent.glob(pattern.name))]
    for origin, home in homes:
        real = home.resolve()
        if real not in seen and (real / "bin" / "java").is_file():
            seen.add(real)
            yield origin, Java(real, _version(real))


def _version(home: Path) -> str:
    """The version from the installation's `release` file, else from `java -version`; empty if neither gives one."""
    try:
        match = re.search(r'^JAVA_VERSION="([^"]+)"', (home / "release").read_text(), re.MULTILINE)
    except OSError:
        match = None
    if match is None:
        try:
            answer = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=20)
        except (OSError, subprocess.SubprocessError):
            return ""
        match = re.search(r'version "([^"]+)"', answer.stderr + answer.stdout)
    return match.group(1) if match else ""
