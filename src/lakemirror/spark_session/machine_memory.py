"""How much memory this machine or container has, and how much of it is free."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path("/")
_CGROUPS = (  # of version 2 and 1: the limit, what is used, the pages of files, which are given back when needed
    ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current", "sys/fs/cgroup/memory.stat"),
    (
        "sys/fs/cgroup/memory/memory.limit_in_bytes",
        "sys/fs/cgroup/memory/memory.usage_in_bytes",
        "sys/fs/cgroup/memory/memory.stat",
    ),
)


def memory(root: Path = ROOT) -> int | None:
    """Bytes of memory this process may use: the machine's, or the container's where that is less."""
    found = [_machine("MemTotal", root), *(_number(root / limit) for limit, _, _ in _CGROUPS)]
    return min((each for each in found if each is not None), default=None)


def free_memory(root: Path = ROOT) -> int | None:
    """Bytes of memory that nobody uses: the machine's, or the container's where that is less; None if not known."""
    found = [_machine("MemAvailable", root)]
    for limit, used, statistics in _CGROUPS:
        most, now = _number(root / limit), _number(root / used)
        if most is not None and now is not None:
            files = re.findall(r"^(?:in)?active_file (\d+)$", _text(root / statistics), re.MULTILINE)
            found.append(max(0, most - max(0, now - sum(map(int, files)))))
    return min((each for each in found if each is not None), default=None)


def heap_bytes(text: str) -> int:
    """Bytes of a heap size such as 512m or 4g; 1 GB, Spark's default, if it is empty or invalid."""
    match = re.fullmatch(r"(\d+)\s*([kmgt])b?", text.strip().lower())
    return int(match.group(1)) * 1024 ** (1 + "kmgt".index(match.group(2))) if match else 1024**3


def _machine(name: str, root: Path) -> int | None:
    match = re.search(rf"^{name}:\s+(\d+) kB", _text(root / "proc/meminfo"), re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def _number(path: Path) -> int | None:
    """None for a file that is absent, or says "max"."""
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace")
    except OSError:
        return ""
