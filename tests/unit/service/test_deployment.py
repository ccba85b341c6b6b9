"""What people copy: the first publisher, the unit, the container file, the alerts."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running_service import Running

from lakemirror.service.authority.principals import Issued
from lakemirror.service.operating import metrics

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine")
def test_the_first_publisher(running: Running, writer: Issued, tmp_path: Path) -> None:
    principal, file = tmp_path / "shop.json", tmp_path / "orders.parquet"
    principal.write_text(json.dumps(writer.shown()))
    pq.write_table(pa.table({"id": [1, 2]}), file)
    script = ROOT / "docs/how-to/first-publisher.sh"
    done = subprocess.run(
        ["sh", script, running.url, running.ca, principal, file],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    row = json.loads(done.stdout)["data"][0]
    assert (row["sourceTableName"], row["status"], row["metrics"]["processedRows"]) == ("orders", "Replicating", 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["orders.parquet", "shop.json"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze on this machine")
def test_the_unit_is_valid(tmp_path: Path) -> None:
    unit = tmp_path / "lakemirror.service"
    text = (DEPLOY / "lakemirror.service").read_text()
    unit.write_text(text.replace("/opt/lakemirror/bin/lakemirror", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_the_container_file_copies_what_is_there() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    copied = [word for line in re.findall(r"^COPY (.+)$", text, re.MULTILINE) for word in line.split()[:-1]]
    assert copied
    for path in copied:
        assert (ROOT / path).exists(), path
    assert 'CMD ["serve", "/srv/lake"' in text


def test_alerts_name_metrics_that_there_are() -> None:
    text = (DEPLOY / "prometheus-rules.yml").read_text()
    source = Path(metrics.__file__).read_text()
    named = set(re.findall(r"\blakemirror_[a-z_]+\b", text))
    assert len(named) > 3
    for name in named:
        assert name in source, name
