"""A copy has all bytes, however the file system makes it."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from lakemirror.storage import copy_file

DATA = bytes(range(256)) * 5000
NOT_THERE = -2  # Python has no such function


@pytest.mark.parametrize("works_for", [NOT_THERE, -1, 0, 300_000])
@pytest.mark.parametrize("says_so", [True, False])
def test_all_bytes_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, works_for: int, says_so: bool
) -> None:  # fmt: skip
    """-1: as this machine does it. Else the kernel gives up after so many bytes, or finds nothing more to copy."""
    true = getattr(os, "copy_file_range", None)

    def gives_up(source: int, target: int, count: int, begin: int, to: int) -> Any:
        if true is None or begin >= works_for:
            if says_so:
                raise OSError(errno.EXDEV, "two file systems")
            return 0
        return true(source, target, min(count, works_for), begin, to)

    if works_for == NOT_THERE:
        monkeypatch.delattr(os, "copy_file_range", raising=False)
    if works_for >= 0:
        monkeypatch.setattr(os, "copy_file_range", gives_up, raising=False)
    (tmp_path / "from").write_bytes(DATA)
    (tmp_path / "to").write_bytes(DATA * 2)
    copy_file(tmp_path / "from", tmp_path / "to")
    assert (tmp_path / "to").read_bytes() == DATA
    with pytest.raises(FileNotFoundError):
        copy_file(tmp_path / "gone", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_file_that_becomes_shorter_is_copied_as_far_as_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads it then finds that it is another one."""
    source, size = tmp_path / "from", os.fstat
    source.write_bytes(DATA)

    def then_cut(file: int) -> os.stat_result:
        found = size(file)
        os.truncate(source, 1000)
        return found

    monkeypatch.setattr(os, "fstat", then_cut)
    copy_file(source, tmp_path / "to")
    monkeypatch.undo()
    assert (tmp_path / "to").read_bytes() == DATA[:1000]
