"""The page about sharing, pasted line by line; its client's example is run by tests/clients/test_sharing_client.py."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from running_service import Running
from tests.landing import declare, put

from lakemirror.api import MirroredDatabase

sys.path.insert(0, str(Path(__file__).parents[1]))

import how_to_pages as pages

PAGE = "how-to/share-tables"


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine")
def test_the_page_pasted_line_by_line(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    declare(root / "sales/shop", "orders", ["id"])
    put(root / "sales/shop", "orders", 1, {"id": [1]})
    MirroredDatabase(root / "sales/shop", engine="local").sync()
    variables = pages.environment(tmp_path)
    (console,) = [each.code for each in pages.blocks(PAGE) if each.language == "console"]
    install, *typed = [line[2:] for line in console.splitlines() if line.startswith("$ ")]
    assert install == "pip install 'lakemirror[service]'"
    assert pasted("\n".join(typed), root, "", tmp_path, variables) == "analyst.share\n"
    lists, keys = [each.code for each in pages.blocks(PAGE) if each.code.count("curl")]
    service = Running(root)
    try:
        catalogs, tables, table = read(pasted(lists, root, service.url, tmp_path, variables))
        assert [each["name"] for each in catalogs["catalogs"]] == ["sales"] and tables["tables"] == [table]
        ask, shown = keys[: keys.index("\n{")], keys[keys.index("\n{") :]
        secrets = json.loads((tmp_path / "analyst.json").read_text())
        variables |= {"ID": secrets["client_id"], "SECRET": secrets["client_secret"]}
        variables["CURL_CA_BUNDLE"] = str(service.ca)  # the list's lines have exported it
        (found,) = read(pasted(ask.replace("6a1b5c0e-…", table["table_id"]), root, service.url, tmp_path, variables))
        pattern = re.sub("…|[0-9]{13}", ".*", re.sub(r"([{}?&.])", r"\\\1", shown.strip()))
        assert re.fullmatch(pattern, json.dumps(found))
    finally:
        service.stop()


def pasted(lines: str, root: Path, url: str, folder: Path, variables: dict[str, str]) -> str:
    """What lines of the page print, for this root and this address."""
    lines = re.sub(r"https://lake\.example:8443", url, lines).replace("/srv/lake", str(root))
    done = subprocess.run(["bash", "-euc", lines], cwd=folder, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def read(text: str) -> list[Any]:
    """JSON values, one behind the other."""
    found, decoder = [], json.JSONDecoder()
    while text.strip():
        value, end = decoder.raw_decode(text := text.lstrip())
        found.append(value)
        text = text[end:]
    return found
