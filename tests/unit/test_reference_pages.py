"""The documents say what the code says."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lakemirror import failpoints
from lakemirror.error_codes import CODES
from lakemirror.errors import LakemirrorError
from lakemirror.settings.settings import Settings, parse_definition, resolve

ROOT = Path(__file__).resolve().parents[2]


def generator() -> Any:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs/generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "name",
    ["commands.md", "settings.md", "errors.md", "verify.md", "failpoints.md", "python.md", "storage-rights.md"],
)
def test_reference_pages_are_up_to_date(name: str) -> None:
    assert (ROOT / "docs/reference" / name).read_text(encoding="utf-8") == generator().pages()[name], "run: make docs"


def test_every_setting_and_code_has_its_sentence() -> None:
    for field in dataclasses.fields(Settings):
        assert field.metadata["help"].endswith((".", ").")), field.name
    for code, kind in CODES.items():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", code)
        assert kind.hint, code
        assert kind.exit_code in (1, 2, 3, 4), code


def test_links_in_the_documents_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), (page.name, target)


def test_settings_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    definition = {"properties": {"target": {"typeProperties": {"defaultSchema": "dbo", "retentionInDays": "2"}}}}
    definition["lakemirror"] = {"retention": 0.5, "settle": 5, "spark": {"spark.x": "1"}}
    assert resolve(definition).default_schema == "dbo"
    assert resolve(definition).retention_in_days == 2.0
    assert resolve(definition).processed_retention == 0.5
    assert resolve(definition).spark == (("spark.x", "1"),)
    monkeypatch.setenv("LAKEMIRROR_SETTLE", "7")
    assert resolve(definition).settle == 7.0
    assert resolve(definition, settle=9).settle == 9.0
    assert resolve({}, spark=["spark.a=b=c"]).spark == (("spark.a", "b=c"),)


@pytest.mark.parametrize(
    ("definition", "code"),
    [
        ({"properties": {"target": {"typeProperties": {"retentionInDays": 31}}}}, "definition-invalid"),
        ({"properties": {"target": {"typeProperties": {"retentionInDays": 0}}}}, "definition-invalid"),
        ({"lakemirror": {"settle": "soon"}}, "setting-invalid"),
        ({"lakemirror": {"spark": ["spark.jars"]}}, "setting-invalid"),
        ({"lakemirror": {"deletion_vectors": "perhaps"}}, "setting-invalid"),
        ({"lakemirror": {"retention_in_days": 0.1}}, "definition-invalid"),
        ({"lakemirror": {"retention": -1}}, "setting-invalid"),
        ({"lakemirror": {"settle": float("nan")}}, "setting-invalid"),
        ({"lakemirror": {"memory": float("inf")}}, "setting-invalid"),
        *(({"lakemirror": {name: float("inf")}}, "setting-invalid") for name in ("drop_after", "poll", "settle")),
        ({"lakemirror": {"batch_files": True}}, "setting-invalid"),
        ({"lakemirror": {"readers": {"t": 1}}}, "setting-invalid"),
        ({"lakemirror": {"readers": [1]}}, "setting-invalid"),
        ({"properties": {"target": {"typeProperties": {"defaultSchema": 5}}}}, "setting-invalid"),
        ({"properties": {"target": {"typeProperties": {"defaultSchema": "a/b"}}}}, "setting-invalid"),
        ({"properties": {"target": {"typeProperties": {"defaultSchema": ".."}}}}, "setting-invalid"),
    ],
)
def test_settings_that_are_refused(definition: dict[str, Any], code: str) -> None:
    with pytest.raises(LakemirrorError) as caught:
        resolve(definition)
    assert caught.value.code == code


def test_null_in_the_definition_is_the_default() -> None:
    names = ("defaultSchema", "retentionInDays", "enableDeltaChangeDataFeed")
    definition = {"properties": {"target": {"typeProperties": dict.fromkeys(names)}}, "lakemirror": {"settle": None}}
    assert resolve(definition) == resolve({})


@pytest.mark.parametrize("data", [b"{", b"[]", b"\xff\xfe"])
def test_definitions_that_are_refused(data: bytes) -> None:
    with pytest.raises(LakemirrorError) as caught:
        parse_definition(data)
    assert caught.value.code == "definition-invalid"


def test_every_test_that_the_page_of_failpoints_names_is_there() -> None:
    page = (ROOT / "docs/reference/failpoints.md").read_text(encoding="utf-8")
    named = set()
    for section in page.split("\n## ")[1:]:
        tests = re.findall(r"`(test_\w+\[[^`]+\])`", section)
        names = re.findall(r"^- `([\w.-]+)`", section, re.M)
        named |= {test.replace("NAME", name) for test in tests for name in names}
    assert len(named) >= 2 * len(failpoints.NAMES | failpoints.PUBLISHER_NAMES)
    command = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [
            *command, "tests/crash/test_failpoints.py", "tests/features/test_rewrites_by_kernels.py",
            "tests/stores/test_store_crashes.py", "tests/crash/test_history_kills.py",
        ],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    collected = {line.partition("::")[2] for line in done.stdout.splitlines()}
    collected |= {each.replace("[s3-", "[") for each in collected}  # the first store's
    assert named <= collected, named - collected
