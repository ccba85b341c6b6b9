"""The examples of the page about orchestrators, by the packages themselves, each in an environment of its own."""

from __future__ import annotations

import os
import subprocess
import venv
from pathlib import Path

import pytest
from tests.how_to_pages import Example, examples
from tests.landing import declare, put, put_broken

import lakemirror
from lakemirror.status import read_status
from lakemirror.storage import LocalStorage

RUN = {
    "dagster": """
from dagster import materialize
result = materialize([shop], raise_on_error=False)
(event,) = [e for e in result.all_events if e.is_step_materialization] or [None]
print("materialized", None if event is None else dict(event.materialization.metadata))
raise SystemExit(0 if result.success else 1)
""",
    "airflow": """
run = mirror.test()
print("materialized", run.get_task_instance("sync").xcom_pull(task_ids="sync"))
raise SystemExit(0 if run.state == "success" else 1)
""",
}
PACKAGES = {"dagster": ["dagster"], "airflow": ["apache-airflow>=3"]}

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]  # an orchestrator has some hundred packages


def example(name: str) -> Example:
    (found,) = [each for each in examples("how-to/orchestrate") if each.note == f"needs {name}"]
    return found


@pytest.mark.parametrize("name", sorted(RUN))
def test_the_example_mirrors_and_says_what_failed(name: str, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=True)
    words = [*PACKAGES[name], "pyarrow>=17", "pyroaring>=1", "typer>=0.12", "rich>=13", "numpy>=1.26"]
    made = subprocess.run([str(tmp_path / "env/bin/pip"), "install", "-q", *words], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"{name} cannot be installed: {made.stderr[-200:]}")
    shop = tmp_path / "shop"
    declare(shop, "orders", ["id"])
    put(shop, "orders", 1, {"id": [1, 2, 3], "__rowMarker__": [0] * 3})
    (tmp_path / "pipeline.py").write_text(example(name).code + RUN[name])
    environment = {
        **os.environ, "PYTHONPATH": str(Path(lakemirror.__file__).parents[1]), "AIRFLOW_HOME": str(tmp_path / "home"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False", "DAGSTER_HOME": "", "AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path),
    }  # fmt: skip
    if name == "airflow":
        subprocess.run([str(tmp_path / "env/bin/airflow"), "db", "migrate"], env=environment, check=True)
    command = [str(tmp_path / "env/bin/python"), "pipeline.py"]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-1500:] + ran.stderr[-1500:]
    assert "materialized" in ran.stdout and "orders" in ran.stdout.rpartition("materialized")[2]
    status = read_status(LocalStorage(shop))
    assert status is not None and status.tables[0].processed_rows == 3
    put_broken(shop, "orders", 2)
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 1 and "file-unreadable" in ran.stdout + ran.stderr
