"""Log files that were parsed before: their actions come from memory only where every byte of the file is the same."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.landing import declare, put

from lakemirror import MirroredDatabase
from lakemirror.delta import checkpoint_file, log, parsed_log
from lakemirror.delta.checkpoint_file import actions_in
from lakemirror.delta.log import read_commit, read_snapshot
from lakemirror.delta.parsed_log import LATELY_PARSED, ParsedLog
from lakemirror.errors import LakemirrorError


def test_a_commit_that_was_replaced_is_parsed_again_whatever_its_size_and_time(tmp_path: Path) -> None:
    path = tmp_path / f"{7:020}.json"
    for number in (1, 2, 1):
        path.write_text(json.dumps({"txn": {"appId": "a", "version": number}}))
        os.utime(path, (1, 1))
        assert [read_commit(path)[0]["txn"]["version"] for _ in range(2)] == [number] * 2
    path.write_text('{"txn": {"appId": "a"}}')
    for _ in range(2):
        with pytest.raises(LakemirrorError, match="txn has no version"):
            read_commit(path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        read_commit(path)


def test_a_commit_with_the_same_bytes_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / f"{7:020}.json"
    path.write_text(json.dumps({"txn": {"appId": "a", "version": 1}}))
    first = read_commit(path)
    monkeypatch.setattr(log, "_parsed", lambda *_: pytest.fail("parsed again"))
    assert read_commit(path) is first, "a tuple: nobody can add an action to it"


def test_what_is_kept_is_bounded() -> None:
    held = ParsedLog(100_000)

    def ask(number: int, size: int) -> int:
        """How many times a file of so many bytes is parsed, if it is asked for twice."""
        parsed: list[int] = []
        for _ in range(2):
            held.actions(Path(str(number)), "", b"x" * size, lambda: parsed.append(1) or [])  # type: ignore[func-returns-value]
        return len(parsed)

    assert [ask(number, 1000) for number in range(100)] == [1] * 100
    assert sum(each.size for each in held._held.values()) <= 100_000
    assert len(held._held) == 33 and ask(99, 1000) == 0 and ask(0, 1000) == 1
    assert ask(0, 9000) == 2, "a large file is not kept"
    assert ask(0, 1000) == 1
    assert held._left == 100_000 - sum(each.size for each in held._held.values())


def test_nobody_changes_the_actions_that_all_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Applies, deletes, merges and checkpoints of a table; every kept action is still what its file says."""
    monkeypatch.setattr(parsed_log, "LATELY_PARSED", ParsedLog())
    for module in (log, checkpoint_file):
        monkeypatch.setattr(module, "LATELY_PARSED", parsed_log.LATELY_PARSED)
    declare(tmp_path, "t", ["id"])
    for number in range(1, 41):
        rows: dict[str, list[Any]] = {"id": [number, number + 1, number // 2], "v": [number] * 3}
        put(tmp_path, "t", number, {"__rowMarker__": [4, 4, 2], **rows} if number > 1 else rows)
        assert not MirroredDatabase(tmp_path).sync().failed
    snapshot = read_snapshot(tmp_path / "Tables/t")
    assert snapshot is not None and snapshot.checkpoint is not None and len(snapshot.files) < 40, "merged"
    kept = dict(parsed_log.LATELY_PARSED._held)
    assert len(kept) > 40 and {what for _, what in kept} > {""}
    before = {name: copy.deepcopy(list(each.actions)) for name, each in kept.items()}
    for module in (log, checkpoint_file):
        monkeypatch.setattr(module, "LATELY_PARSED", ParsedLog())
    for (path, what), actions in before.items():
        if Path(path).exists():
            fresh = list(actions_in(Path(path), what.split(","))) if what else list(read_commit(Path(path)))
            assert fresh == actions, path


def test_large_checkpoints_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(tmp_path, "t", ["id"])
    for number in range(1, 13):
        put(tmp_path, "t", number, {"id": [number]})
        MirroredDatabase(tmp_path, maintenance=False).sync()
    snapshot = read_snapshot(tmp_path / "Tables/t")
    assert snapshot is not None and snapshot.checkpoint is not None
    monkeypatch.setattr(LATELY_PARSED, "actions", lambda *_: pytest.fail("kept"))
    monkeypatch.setattr(checkpoint_file, "_SMALL", 100)
    assert sum("add" in each for each in actions_in(snapshot.checkpoint.files[0], ["add"])) >= 10
