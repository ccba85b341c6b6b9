"""What people copy: the first publisher, the unit, the container file, the alerts."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from running_service import Running
from tests.unit.service.test_deployment import instructions

from lakemirror.service.auth.principals import Issued

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
pages = importlib.import_module("how_to_pages")
DEPLOY = ROOT / "deploy"


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine")
def test_the_page_pasted_line_by_line(running: Running, writer: Issued, tmp_path: Path) -> None:
    """The page's examples but the first, which installs and starts the service; they print what the page shows."""
    variables = pages.environment(tmp_path)
    (tmp_path / "shop.json").write_text(json.dumps(writer.shown()))
    shutil.copy(ROOT / "docs/how-to/first-publisher.sh", tmp_path)
    text = (ROOT / "docs/how-to/run-the-service.md").read_text(encoding="utf-8")
    text = text.replace("https://localhost:8443", running.url).replace("/srv/lake", str(running.root))
    first, *consoles = re.findall(r"^```console\n(.*?)^```$", text, re.M | re.S)
    assert "lakemirror serve" in first and len(consoles) == 2
    for console in consoles:
        typed = "\n".join(line[2:] for line in console.splitlines() if line.startswith("$ "))
        shown = [line for line in console.splitlines() if not line.startswith("$ ")]
        done = subprocess.run(["sh", "-euc", typed], cwd=tmp_path, env=variables, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr + done.stdout
        for line, expected in zip(done.stdout.splitlines(), shown, strict=True):
            assert line.startswith(expected.removesuffix("…"))
        if done.stdout.startswith("{"):
            row = json.loads(done.stdout)["data"][0]
            assert (row["sourceTableName"], row["status"], row["metrics"]["processedRows"]) == (
                "orders",
                "Replicating",
                2,
            )
    (vendors,) = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    names = f"client_id, client_secret = {writer.principal.client_id!r}, {writer.client_secret!r}\n"
    asked = (
        'assert lake.get_file_system_client("sales").get_directory_client("shop/Tables/customers").exists() is not None'
    )
    done = subprocess.run(
        [sys.executable, "-c", names + vendors + asked], cwd=tmp_path, env=variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze on this machine")
def test_the_unit_is_valid(tmp_path: Path) -> None:
    unit = tmp_path / "lakemirror.service"
    text = (DEPLOY / "lakemirror.service").read_text()
    unit.write_text(text.replace("/opt/lakemirror/bin/lakemirror", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def commands() -> dict[str, list[str]]:
    """What the unit and the container file start, without the program's path."""
    unit = (DEPLOY / "lakemirror.service").read_text()
    container = (DEPLOY / "Containerfile").read_text()
    started = re.search(r"^ExecStart=\S*/lakemirror (.+)$", unit, re.MULTILINE)
    default = re.search(r"^CMD (\[.+\])$", container, re.MULTILINE)
    assert started and default
    return {"unit": started[1].split(), "container": json.loads(default[1])}


def starts_and_ends(program: list[str], words: list[str], root: Path) -> None:
    """Starts the service as it is deployed, but on loopback and in `root`; asks for its health; ends it."""
    given = [str(root) if word == "/srv/lake" else word for word in words]
    given[given.index("--host") + 1] = "127.0.0.1"
    root.mkdir()
    process = subprocess.Popen([*program, *given, "--port", "0"], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        port = next(found[1] for line in process.stderr if (found := re.search(r"serving .*:(\d+)$", line.rstrip())))
        checked = health_check(root).replace("localhost:8443", f"localhost:{port}")
        assert subprocess.run([program[0], "-c", checked], timeout=60, check=False).returncode == 0
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def health_check(root: Path) -> str:
    """The container file's health check, for this root."""
    found = re.search(r'^  CMD \["python3", "-c", "(.+)"\]$', (DEPLOY / "Containerfile").read_text(), re.MULTILINE)
    assert found
    return found[1].replace("/srv/lake", str(root))


@pytest.mark.parametrize("kind", ["unit", "container"])
def test_what_is_deployed_starts_and_ends(kind: str, tmp_path: Path) -> None:
    starts_and_ends([sys.executable, "-m", "lakemirror.cli"], commands()[kind], tmp_path / "root")


@pytest.mark.full
def test_the_container_files_steps_in_a_plain_folder(tmp_path: Path) -> None:
    """What is copied is enough to install from, and what is installed serves; no container engine is needed."""
    text = (DEPLOY / "Containerfile").read_text()
    source = tmp_path / "src"
    for line in re.findall(r"^COPY (.+)$", text, re.MULTILINE):
        *paths, target = line.split()
        for path in paths:
            place = tmp_path / target.strip("/")
            if (ROOT / path).is_dir():
                shutil.copytree(ROOT / path, place)
            else:
                place.mkdir(exist_ok=True)
                shutil.copy(ROOT / path, place / path)
    assert "'/src[service]'" in text
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    words = [venv / "bin/pip", "install", "--quiet", f"{source}[service]"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode and "No matching distribution" in done.stderr:
        pytest.skip("no package registry can be reached")
    assert done.returncode == 0, done.stderr
    program = [str(venv / "bin/python"), "-P", "-m", "lakemirror.cli"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "environ", environment)
        patch.delenv("PYTHONPATH", raising=False)
        starts_and_ends(program, commands()["container"], tmp_path / "root")


PLAIN_DEBIAN = os.environ.get("LAKEMIRROR_PLAIN_DEBIAN", "")


@pytest.mark.full
@pytest.mark.skipif(not PLAIN_DEBIAN, reason="LAKEMIRROR_PLAIN_DEBIAN names no folder that debootstrap has made")
def test_the_container_file_in_a_plain_debian(tmp_path: Path) -> None:
    """Every step of the container file by chroot, in a folder that `debootstrap --variant=minbase` has made. As root.

    The service runs there as the container's user, with the container's environment and command.
    """
    chroot = shutil.which("chroot") or "/usr/sbin/chroot"
    folder, user, variables = Path(PLAIN_DEBIAN), "root", {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    build = {name: value for name, value in os.environ.items() if name.endswith(("_PROXY", "_proxy", "_CA_BUNDLE"))}
    for name, rest in instructions():
        if name == "RUN":
            words = [chroot, str(folder), "sh", "-ec", rest]
            subprocess.run(words, env={**variables, **build}, check=True, timeout=1800)
        elif name == "COPY":
            *paths, target = rest.split()
            for path in paths:
                place = folder / target.strip("/")
                if (ROOT / path).is_dir():
                    shutil.copytree(ROOT / path, place, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    place.mkdir(exist_ok=True)
                    shutil.copy(ROOT / path, place)
        elif name == "USER":
            user = rest
        elif name == "ENV":
            variables.update(pair.split("=", 1) for pair in rest.split())
    assert user != "root"
    words = commands()["container"]
    words[words.index("--host") + 1] = "127.0.0.1"
    inside = [chroot, f"--userspec={user}:{user}", str(folder)]
    process = subprocess.Popen(
        [*inside, "lakemirror", *words, "--port", "0"], env=variables, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        port = next(found[1] for line in process.stderr if (found := re.search(r"serving .*:(\d+)$", line.rstrip())))
        check = health_check(Path("/srv/lake")).replace("localhost:8443", f"localhost:{port}")
        assert subprocess.run([*inside, "python3", "-c", check], env=variables, timeout=60, check=False).returncode == 0
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.full
@pytest.mark.skipif(
    not os.environ.get("LAKEMIRROR_IMAGE"),
    reason="LAKEMIRROR_IMAGE is not set: it says that this is root, with buildah and the base image",
)
def test_an_image_is_built_and_works() -> None:
    """Read-only, as the image's user, with its health check; and it mirrors a table."""
    done = subprocess.run([ROOT / "scripts/image.sh"], capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0 and "image: mirrored" in done.stderr, done.stderr


PROMTOOL = os.environ.get("LAKEMIRROR_PROMTOOL") or shutil.which("promtool") or ""


@pytest.mark.skipif(not PROMTOOL, reason="no promtool on this machine (LAKEMIRROR_PROMTOOL)")
def test_alerts_and_metrics_are_as_prometheus_wants_them(running: Running, admin: Issued) -> None:
    rules = [PROMTOOL, "check", "rules", DEPLOY / "prometheus-rules.yml"]
    done = subprocess.run(rules, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    text = running.send("GET", "/metrics", token=running.token(admin)).body
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
