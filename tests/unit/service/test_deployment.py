"""The container file and the alerts, read; what is deployed is started in `tests/service/test_deployed.py`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import typer
import yaml

import lakemirror
from lakemirror.cli import app
from lakemirror.service.operating import metrics
from lakemirror.status import table_metrics

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"


def instructions() -> list[tuple[str, str]]:
    """The container file's instructions in order, each with what follows it in one line."""
    text = re.sub(r"\\\n", " ", (DEPLOY / "Containerfile").read_text())
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(name, re.sub(r"\s+", " ", rest)) for name, rest in lines]


def test_the_container_file_keeps_the_usual_rules() -> None:
    """What linters of container files ask for."""
    found = instructions()
    names = [name for name, _ in found]
    values = dict(found)
    assert names[0] == "FROM" and names.count("FROM") == 1
    assert re.fullmatch(r"docker\.io/library/debian:[a-z]+-\d{8}-slim", values["FROM"]), "the base is not pinned"
    made = [rest for name, rest in found if name == "RUN" and "useradd --system" in rest]
    assert made and values["USER"] not in ("root", "0") and values["USER"] in made[0].split()
    assert "RUN" not in names[names.index("USER") :], "nothing is installed or changed after root is given up"
    assert {"HEALTHCHECK", "ENTRYPOINT", "CMD", "EXPOSE", "VOLUME"} <= set(names)
    assert not {"ADD", "ARG", "MAINTAINER", "SHELL"} & set(names)
    for name in ("ENTRYPOINT", "CMD"):
        assert json.loads(values[name]), "a signal reaches the service: no shell is between"
    assert values["STOPSIGNAL"] == "SIGTERM"
    for name, rest in found:
        if name == "RUN" and "apt-get install" in rest:
            assert "--no-install-recommends" in rest and "rm -rf /var/lib/apt/lists/*" in rest
        if name == "RUN" and "pip install" in rest:
            assert "--no-cache-dir" in rest
        assert not re.search(r"password|secret|token", rest, re.IGNORECASE)
    assert not re.search(r"\b(sudo|curl|wget|latest)\b", str(found))


def test_the_container_file_copies_what_is_there() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    copied = [word for line in re.findall(r"^COPY (.+)$", text, re.MULTILINE) for word in line.split()[:-1]]
    assert copied
    for path in copied:
        assert (ROOT / path).exists(), path
    assert 'CMD ["serve", "/srv/lake"' in text


def test_alerts_name_metrics_that_there_are() -> None:
    text = (DEPLOY / "prometheus-rules.yml").read_text()
    code = "".join(Path(module.__file__).read_text() for module in (metrics, table_metrics))
    names = set(re.findall(r'"(lakemirror_[a-z_]+)"', code))
    names |= {f"{name}{end}" for name in names for end in ("_total", "_bucket", "_sum", "_count")}
    named = set(re.findall(r"\blakemirror_[a-z_]+\b", text))
    assert len(named) > 3
    for name in named:
        assert name in names, name


def test_the_manifest_runs_what_there_is() -> None:
    """Its command, port, probes, user, image and folders, as the command line and the container file have them."""
    objects = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    secret, deployment = objects
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == f"lakemirror:{lakemirror.__version__}"
    assert container["envFrom"][0]["secretRef"]["name"] == secret["metadata"]["name"]
    command = typer.main.get_command(app).commands[container["args"][0]]  # type: ignore[attr-defined]
    given = command.make_context("run", list(container["args"][1:]), resilient_parsing=True).params
    port = container["ports"][0]
    assert given["listen"].endswith(f":{port['containerPort']}") and given["log_format"] == "json"
    assert deployment["spec"]["template"]["metadata"]["annotations"]["prometheus.io/port"] == str(port["containerPort"])
    for probe, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"] == {"path": path, "port": port["name"]}
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] and pod["securityContext"]["runAsNonRoot"]
