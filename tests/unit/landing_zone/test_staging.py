"""Files that are staged together: in their order, up to the first that cannot be read, and nothing is left behind."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from folders import write

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.change_file import ChangeFile
from lakemirror.landing_zone.metadata import parse_metadata
from lakemirror.landing_zone.staging import STAGED, Staging, sweep
from lakemirror.storage import Entry, LocalStorage

METADATA = parse_metadata(b'{"fileFormat": "CSV"}', "_metadata.json")


def change_file(database: Path, number: int, text: str) -> ChangeFile:
    path = write(database, f"t/{number:020}.csv", text).relative_to(database)
    footer: Any = None  # until it is converted
    return ChangeFile(Entry(str(path), len(text), 1), number, footer)


def test_the_first_that_cannot_be_read_ends_it(tmp_path: Path) -> None:
    texts = ["a\n1\n", "a\n2\n", "a,a\n3,3\n", "a\n4\n", "a\n5\n"]
    files = [change_file(tmp_path, number, text) for number, text in enumerate(texts, 1)]
    staging = Staging(LocalStorage(tmp_path), 1 << 29)
    staged, error = staging.stage_all(files[:2], METADATA, undeclared="error")
    assert error is None and [file.footer.num_rows for file in staged if file.footer] == [1, 1]
    staged, error = staging.stage_all(files, METADATA, undeclared="error")
    assert [file.number for file in staged] == [1, 2]
    assert error is not None and (error.code, error.file) == ("columns-ambiguous", files[2].entry.path)
    left = [path.name for path in (tmp_path / STAGED).rglob("*") if path.is_file()]
    assert sorted(left) == [f"{number:020}.parquet" for number in (1, 2)]
    staging.clear(staged)
    (tmp_path / files[1].entry.path).unlink()
    with pytest.raises(LakemirrorError, match=r"2\.csv is gone") as gone:
        staging.stage_all(files, METADATA, undeclared="error")
    assert gone.value.code == "concurrent-commit"
    assert not [path for path in (tmp_path / STAGED).rglob("*") if path.is_file()]


def test_what_somebody_else_keeps_in_the_folder_stays(tmp_path: Path) -> None:
    """Of what killed processes left, only Parquet files under names that are given here are removed."""
    left = [f"{'a' * 32}/{1:020}.parquet", f"{'a' * 32}/{2:020}.parquet", f"{'b' * 32}/{1:020}.parquet"]
    foreign = [
        "notes.txt", f"sales/{1:020}.parquet", f"{'b' * 32}/notes.parquet", f"{'b' * 32}/{7:020}.parquet",
        f"{'b' * 32}/inner/{1:020}.parquet",
    ]  # fmt: skip
    for name in [*left, *foreign]:
        (tmp_path / STAGED / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / STAGED / name).write_bytes(b"PAR1" if name != foreign[3] else b"somebody's")
    (tmp_path / STAGED / left[1]).write_bytes(b"")  # killed before the first byte
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / f"{1:020}.parquet").write_bytes(b"PAR1")
    (tmp_path / STAGED / ("c" * 32)).symlink_to(tmp_path / "elsewhere")
    storage = LocalStorage(tmp_path)
    sweep(storage, 100)
    assert all((tmp_path / STAGED / name).exists() for name in [*left, *foreign]), "they are young"
    sweep(storage, 100, now=time.time() + 200)
    assert not any((tmp_path / STAGED / name).exists() for name in left)
    assert not (tmp_path / STAGED / ("a" * 32)).exists()
    assert all((tmp_path / STAGED / name).exists() for name in foreign)
    assert (tmp_path / "elsewhere" / f"{1:020}.parquet").exists()
