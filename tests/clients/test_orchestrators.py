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
from lakemirror.status.status_reader import read_status
from lakemirror.storage import LocalStorage

MATERIALIZE = """
from dagster import materialize
result = materialize([shop], raise_on_error=False)
print([dict(event.materialization.metadata) for event in result.all_events if event.is_step_materialization])
"""
COMMANDS = {
    "dagster": [["python", "dags/pipeline.py"]],
    "airflow": [
        ["airflow", "db", "migrate"],
        ["airflow", "dags", "reserialize"],
        ["airflow", "dags", "test", "mirror_shop"],
    ],
}
"""What is run, of the environment's programs; the last one's output is looked at."""

PACKAGES = {"dagster": ["dagster"], "airflow": ["apache-airflow>=3"]}

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]  # an orchestrator has some hundred packages


def example(name: str) -> Example:
    (found,) = [each for each in examples("how-to/orchestrate") if each.note == f"needs {name}"]
    return found


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_example_mirrors_and_says_what_failed(name: str, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=True)
    words = [*PACKAGES[name], "pyarrow>=17", "pyroaring>=1", "typer>=0.12", "rich>=13", "numpy>=1.26"]
    made = subprocess.run([str(tmp_path / "env/bin/pip"), "install", "-q", *words], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"{name} cannot be installed: {made.stderr[-200:]}")
    shop = tmp_path / "shop"
    declare(shop, "orders", ["id"])
    put(shop, "orders", 1, {"id": [1, 2, 3], "__rowMarker__": [0] * 3})
    code = example(name).code.replace("retries=2", "retries=0")  # a retry waits for minutes
    (tmp_path / "dags").mkdir()  # Airflow walks all of it, and refuses the links of an environment
    (tmp_path / "dags/pipeline.py").write_text(code + (MATERIALIZE if name == "dagster" else ""))
    environment = {
        **os.environ, "PYTHONPATH": str(Path(lakemirror.__file__).parents[1]), "AIRFLOW_HOME": str(tmp_path / "home"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False", "AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path / "dags"),
    }  # fmt: skip

    def run() -> str:
        output = ""
        for program, *words in COMMANDS[name]:
            command = [str(tmp_path / "env/bin" / program), *words]
            ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
            output = ran.stdout + ran.stderr
        return output

    output = run()
    assert "orders" in output and "3" in output.rpartition("orders")[2], output[-2000:]
    status = read_status(LocalStorage(shop))
    assert status is not None and status.tables[0].processed_rows == 3
    put_broken(shop, "orders", 2)
    assert "file-unreadable" in run()
