"""Runs the commands of an image in its files: its service, its health check, and a table through the service's folder.

    unshare --mount --net --pid --fork python3 scripts/image_try.py ROOT WORK

Called by scripts/image.sh. WORK has `image.json`, as `buildah inspect` prints it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

_PUBLISH = """
from lakemirror.publisher import Landing
people = Landing("/srv/lake/sales/shop").table("people", keys=["id"])
people.upsert([{"id": 1, "name": "Ada"}, {"id": 2, "name": "Bob"}])
people.delete([{"id": 2}])
"""
_VARIABLES = ("HOME=/var/lib/lakemirror", "PATH=/opt/lakemirror/bin:/usr/bin:/bin")


def main(root: Path, work: Path) -> None:
    """Ends with an error if the service does not start, is not healthy, or does not mirror the table."""
    image = json.loads((work / "image.json").read_text())["Docker"]["config"]
    user, health = image["User"], image["Healthcheck"]["Test"]
    assert user not in ("", "root", "0") and health[0] == "CMD", image
    lake = work / "lake"
    lake.mkdir()
    owner = [int(subprocess.check_output(["chroot", root, "id", flag, user])) for flag in ("-u", "-g")]
    os.chown(lake, *owner)
    work.chmod(0o755)
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n")  # a container engine brings it
    for words in (
        ("--bind", root, root), ("-o", "remount,ro,bind", root), ("--bind", lake, root / "srv/lake"),
        ("-t", "proc", "proc", root / "proc"), ("--bind", "/dev", root / "dev"), ("-t", "tmpfs", "tmpfs", root / "tmp"),
    ):  # fmt: skip
        subprocess.run(["mount", *map(str, words)], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    inside = ["chroot", f"--userspec={user}", str(root), "/usr/bin/env", "-i", *_VARIABLES]
    refused = subprocess.run([*inside, "touch", "/var/lib/lakemirror/x"], capture_output=True, text=True)
    assert "Read-only" in refused.stderr, refused.stderr
    said = (work / "health.txt").open("wb")
    service = subprocess.Popen([*inside, *image["Entrypoint"], *image["Cmd"]])
    try:
        healthy = [*inside, *health[1:]]
        _until(lambda: subprocess.run(healthy, stderr=said).returncode == 0, "healthy")
        subprocess.run([*inside, "python3", "-c", _PUBLISH], check=True)
        log = lake / "sales/shop/Tables/people/_delta_log"
        _until(lambda: log.is_dir() and any(log.glob("*.json")), "mirrored")
    finally:
        service.terminate()
    assert service.wait(60) == 0, "the service did not end well"


def _until(is_so: object, what: str) -> None:
    for _ in range(120):
        if is_so():  # type: ignore[operator]
            print(f"image: {what}", file=sys.stderr)
            return
        time.sleep(0.5)
    raise SystemExit(f"image: not {what} after a minute")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
