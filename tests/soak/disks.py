"""A disk for a soak that can be full: a small tmpfs where that is allowed, else the folder as it is."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

_SIZE = 96 << 20
_SIZE_A_MINUTE = 8 << 20  # what is applied stays for days: so much at most comes in a minute
_BALLAST = "_ballast"


class Disk:
    """`can_fill` False: the folder is on an ordinary disk, which is not filled."""

    def __init__(self, place: Path, *, can_fill: bool) -> None:
        self.place, self.can_fill = place, can_fill

    def fill(self, spare: int) -> bool:
        """Leaves only so many bytes free."""
        if not self.can_fill:
            return False
        path = self.place / _BALLAST
        with contextlib.suppress(OSError), path.open("ab") as file:
            free = os.statvfs(self.place).f_bavail * os.statvfs(self.place).f_frsize
            for _ in range(max(0, free - spare) // 65536):
                file.write(bytes(65536))
                file.flush()
        return True

    def free(self) -> bool:
        """Space again."""
        path = self.place / _BALLAST
        if not path.exists():
            return False
        path.unlink()
        return True


@contextlib.contextmanager
def disk(place: Path, seconds: float) -> Iterator[Disk]:
    """The folder as a small file system of its own, if the system allows it, for a soak of so many seconds; unmounted
    at the end."""
    place.mkdir(parents=True, exist_ok=True)
    size = _SIZE + int(seconds / 60 * _SIZE_A_MINUTE)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield Disk(place, can_fill=mounted)
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(place)], capture_output=True, check=False)
