"""deploy/'s manifest by the schemas of Kubernetes itself, of the oldest and the newest version that the validator has.

The validator, `kubernetes-validate`, holds 16,000 schemas, so it is installed into an environment of its own.
"""

from __future__ import annotations

import json
import subprocess
import venv
from pathlib import Path

import pytest

pytestmark = pytest.mark.full

MANIFEST = Path(__file__).resolve().parents[2] / "deploy/kubernetes.yaml"
VALIDATOR = "kubernetes-validate"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("validator")
    venv.create(folder, with_pip=True)
    command = [str(folder / "bin/pip"), "install", "-q", "--no-compile", VALIDATOR]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"{VALIDATOR} cannot be installed: {made.stderr[-200:]}")
    return folder / "bin/python"


def validate(python: Path, manifest: Path) -> subprocess.CompletedProcess[str]:
    listed = "import json, kubernetes_validate.utils as u; print(json.dumps(u.all_versions()))"
    versions = json.loads(subprocess.run([str(python), "-c", listed], capture_output=True, check=True).stdout)
    asked = [word for version in (versions[0], versions[-1]) for word in ("-k", version)]
    command = [str(python), "-m", "kubernetes_validate", "--strict", *asked, str(manifest)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_each_object_is_what_its_schema_says(python: Path) -> None:
    ran = validate(python, MANIFEST)
    passed = [line for line in ran.stdout.splitlines() if line.startswith("INFO") and " passed for " in line]
    assert (ran.returncode, len(passed)) == (0, 4), ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("replicas: 1", 'replicas: "1"'),
        ("readOnlyRootFilesystem", "readonlyRootFilesystem"),
        ("kind: Secret", "kind: Secrets"),
    ],
)
def test_a_manifest_with_a_mistake_is_refused(python: Path, tmp_path: Path, right: str, wrong: str) -> None:
    text = MANIFEST.read_text()
    assert right in text
    (tmp_path / "wrong.yaml").write_text(text.replace(right, wrong))
    ran = validate(python, tmp_path / "wrong.yaml")
    assert ran.returncode or "WARN" in ran.stdout, ran.stdout
