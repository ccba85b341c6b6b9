"""Staged uploads: which parts make a file, what a restart finds, what is removed after 7 days."""

from __future__ import annotations

import errno
import itertools
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest
from endpoint_double import DATABASE_ID, EndpointServer
from wire import ZONE, Wire

from lakemirror.service.storage.blocks import remove_old_blocks
from lakemirror.service.storage.conditions import Conditions
from lakemirror.service.storage.database_files import DatabaseFiles
from lakemirror.service.storage.publish_file import create_file, flush, publish
from lakemirror.service.storage.uploads import Part, chain, load_uploads

FILE = "Files/LandingZone/t/1.parquet"


def files(root: Path) -> DatabaseFiles:
    (root / "db").mkdir(exist_ok=True)
    return DatabaseFiles(root / "db", root / "staged")


def test_of_overlapping_writers_one_counts() -> None:
    one, other = Part(0, 10, "data"), Part(0, 6, "part-b")
    assert chain([one, other], 0, 10) == [one]
    assert chain([one, other], 0, 6) == [other]
    assert chain([one, Part(0, 10, "part-c")], 0, 10) == [Part(0, 10, "part-c")]
    halves = [Part(0, 5, "data"), Part(5, 5, "data"), Part(5, 2, "part-d")]
    assert chain(halves, 0, 10) == halves[:2]
    assert chain([Part(0, 6, "data"), Part(4, 6, "part-e")], 0, 10) == [Part(0, 6, "data"), Part(4, 6, "part-e")]
    assert chain([], 0, 0) == []


def test_random_orders_of_appends(wire: Wire, endpoint: EndpointServer) -> None:
    chosen = random.Random(7)
    for number in range(10):
        data = chosen.randbytes(5000)
        cuts = sorted({0, 5000, *(chosen.randrange(5000) for _ in range(6))})
        pieces = list(itertools.pairwise(cuts))
        pieces += chosen.sample(pieces, 2)  # sent again, as after a lost answer
        chosen.shuffle(pieces)
        assert wire("PUT", f"{ZONE}/{number}?resource=file").status == 201
        for start, end in pieces:
            assert wire("PATCH", f"{ZONE}/{number}?action=append&position={start}", data[start:end]).status == 202
        assert wire("PATCH", f"{ZONE}/{number}?action=flush&position=5000").status == 200
        assert (endpoint.landing_zone / str(number)).read_bytes() == data


def test_a_restart_finds_what_was_staged(tmp_path: Path) -> None:
    first = files(tmp_path)
    create_file(first, FILE, Conditions())
    upload = first.uploads[FILE]
    upload.data.write_bytes(b"abcdef")
    upload.count(Part(0, 3, "data"))
    with (upload.folder / "journal").open("a") as journal:
        journal.write("[3, 3,")  # cut off by the end of the process
    (tmp_path / "staged" / f"put-{'1' * 32}").write_bytes(b"left over")
    (tmp_path / "staged" / f"trash-{'2' * 32}" / "inner").mkdir(parents=True)
    broken = tmp_path / "staged" / f"up-{'3' * 32}"
    broken.mkdir()
    (broken / "journal").write_text("{}\n")
    again = files(tmp_path)
    assert again.uploads[FILE].parts == [Part(0, 3, "data")]
    assert [each.name for each in (tmp_path / "staged").iterdir()] == [upload.folder.name]
    assert flush(again, FILE, 3, Conditions(), None).length == 3
    assert (tmp_path / "db" / FILE).read_bytes() == b"abc"
    assert load_uploads(tmp_path / "staged") == {}


def test_what_somebody_else_keeps_in_the_staging_folder_stays(tmp_path: Path) -> None:
    staged, elsewhere = tmp_path / "staged", tmp_path / "elsewhere"
    upload, block = f"up-{'3' * 32}", f"blocks/{'4' * 64}"
    ours = [f"{upload}/journal", f"{upload}/data", f"{upload}/part-0a", f"{block}/QQ==", f"blocks/{'5' * 64}/QQ=="]
    foreign = [
        "sales/orders.parquet", "notes.txt", "put-notes", "up-notes/data", "trash-talk/x", f"{upload}/thesis.txt",
        f"{block}/thesis.txt", "blocks/sales/QQ==",
    ]  # fmt: skip
    for name in [*ours, *foreign]:
        (staged / name).parent.mkdir(parents=True, exist_ok=True)
        (staged / name).write_bytes(b"{}\n")
    elsewhere.mkdir()
    (elsewhere / "data").write_bytes(b"somebody's")
    (elsewhere / "QQ==").write_bytes(b"somebody's")
    for name in (f"up-{'6' * 32}", f"put-{'7' * 32}", f"trash-{'8' * 32}", f"blocks/{'9' * 64}"):
        (staged / name).symlink_to(elsewhere)
    here = files(tmp_path)
    here.remove_old_uploads(time.time() + 60)
    remove_old_blocks(here, time.time() + 60)
    assert not any((staged / name).exists() for name in ours)
    assert not (staged / f"blocks/{'5' * 64}").exists()
    assert all((staged / name).exists() for name in foreign)
    assert sorted(each.name for each in elsewhere.iterdir()) == ["QQ==", "data"]


def test_a_database_on_another_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = files(tmp_path)
    rename = os.rename

    def refuse(source: Any, target: Any, **fds: int) -> None:
        if "staged" in str(source) and "dst_dir_fd" in fds:
            raise OSError(errno.EXDEV, "other file system")
        rename(source, target, **fds)

    monkeypatch.setattr(os, "rename", refuse)
    complete = here.temporary("put")
    complete.write_bytes(b"abc")
    publish(here, complete, FILE, Conditions(), "BlobAlreadyExists")
    assert (tmp_path / "db" / FILE).read_bytes() == b"abc" and not complete.exists()
    assert [each.name for each in (tmp_path / "db" / FILE).parent.iterdir()] == ["1.parquet"]


def test_what_nobody_goes_on_with_is_removed(wire: Wire, endpoint: EndpointServer) -> None:
    wire("PUT", f"{ZONE}/old?resource=file")
    wire("PUT", f"{ZONE}/blocks?comp=block&blockid=MQ==", b"x")
    staged = endpoint.registry.staging / DATABASE_ID
    for path in (staged, *staged.rglob("*")):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    endpoint.close()
    other = EndpointServer(endpoint.root)
    try:
        again = Wire(other.port)
        assert again("PUT", f"{ZONE}/new?resource=file").status == 201
        for _ in range(500):
            if again("HEAD", f"{ZONE}/old").status == 404 and not list(staged.glob("blocks/*")):
                break
            time.sleep(0.01)
        else:
            pytest.fail("the old upload is still there")
        assert again("HEAD", f"{ZONE}/new").status == 200
        again.close()
    finally:
        other.close()
