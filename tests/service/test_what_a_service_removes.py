"""What the registry of a service removes from `ROOT/.lakemirror`, and what it leaves alone."""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path

import pytest

from lakemirror.service.rest.registry import FolderRegistry


def item(state: str, database_id: str) -> str:
    return json.dumps({"id": database_id, "displayName": "x", "description": "", "state": state})


def made(place: Path, content: str = "somebody's") -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(content)
    return place


@pytest.mark.parametrize("state", ["Deleted", "HardDeleted"])
def test_only_deleted_databases_are_swept(tmp_path: Path, state: str) -> None:
    deleted, ids = tmp_path / ".lakemirror/deleted", [str(uuid.uuid4()) for _ in range(4)]
    ours = made(deleted / "sales" / ids[0] / ".lakemirror-item.json", item(state, ids[0]))
    foreign = [
        made(deleted / "sales/notes.txt"),
        made(deleted / "sales" / ids[1] / "Tables/orders/a.parquet"),  # no item file
        made(deleted / "sales" / ids[2] / ".lakemirror-item.json", item("Running", ids[2])),
        made(deleted / "sales/shop/.lakemirror-item.json", item(state, ids[3])),  # another id
        made(tmp_path / "elsewhere" / ids[0] / ".lakemirror-item.json", item(state, ids[0])),
    ]
    (deleted / "linked").symlink_to(tmp_path / "elsewhere")
    (deleted / "stock").mkdir()
    (deleted / "stock" / ids[0]).symlink_to(tmp_path / "elsewhere" / ids[0])
    FolderRegistry(tmp_path).sweep(time.time() + 8 * 86_400)
    assert not ours.parent.exists()
    assert all(path.exists() for path in foreign)


def test_what_a_killed_create_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    own = tmp_path / ".lakemirror"
    half, kept, linked = (own / f"new-{uuid.uuid4()}" for _ in range(3))
    for folder in (half, kept):
        (folder / "Files/LandingZone").mkdir(parents=True)
        (folder / "Tables").mkdir()
        made(folder / "mirroring.json")
        made(folder / ".mirroring.json.0123456789ab")
        made(folder / f".mirroring.json.{uuid.uuid4().hex}.tmp")
        made(folder / ".lakemirror-item.json")
    foreign = [
        made(kept / "Files/LandingZone/orders/1.parquet"),
        made(kept / "thesis.txt"),
        made(own / "new-ideas/thesis.txt"),
        made(tmp_path / "elsewhere/mirroring.json"),
    ]
    linked.symlink_to(tmp_path / "elsewhere")
    FolderRegistry(tmp_path)
    assert not half.exists()
    assert all(path.exists() for path in foreign)
    assert sorted(each.name for each in kept.iterdir()) == ["Files", "thesis.txt"]
