"""The key index: whatever happens to its files, an apply gives what the model gives; a miss and a hit are exact."""

from __future__ import annotations

import json
import logging
import os
import resource
import shutil
import tempfile
import threading
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.mirror import Mirror, target_of, unit
from tests.model import ModelTable
from tests.rounds import rounds
from tests.unit.engines.test_local_engine import KEYS

from lakemirror.engines.local_engine import LocalEngine
from lakemirror.engines.row_work import Action, Target
from lakemirror.keys import index_builder, key_format, key_index, key_layout, look_up, write_keys
from lakemirror.keys.find_keys import find_keys, find_spilled, search_files
from lakemirror.keys.index_folder import IndexFolder
from lakemirror.keys.key_file import KeyFile, KeysOfLayout
from lakemirror.keys.key_index import KeyIndex
from lakemirror.keys.key_layout import ColumnLayout, KeyLayout, encode, layout_of
from lakemirror.keys.key_search import rows_in
from lakemirror.keys.spill import Spill
from lakemirror.keys.wanted_keys import WantedKeys
from lakemirror.keys.write_keys import write_key_file
from lakemirror.landing_zone.row_markers import ROW_MARKER
from lakemirror.storage import own_files

UUIDS = [str(uuid.UUID(int=n * 7**45 % 2**128)) for n in range(6)]
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    **KEYS,
    "uuid": (pa.string(), [*UUIDS, UUIDS[0].upper(), None]),
    "long": (pa.string(), ["x" * 70, "x" * 71, "y" * 90, "", None]),
}


@pytest.fixture(autouse=True)
def every_file_has_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_index, "FEWEST_ROWS", 1)
    monkeypatch.setattr(key_index, "_READ_ALL", 0)
    monkeypatch.setattr(key_index, "_READ_NUMBERS", 0)
    monkeypatch.setattr(key_index, "_REPEATED", 1 << 40)


@settings(max_examples=rounds(15, 60), deadline=None)
@given(st.data())
def test_tables_equal_the_model_whatever_happens_to_index_files(data: Any) -> None:
    kinds = data.draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=2))
    keys = tuple(f"k{i}" for i in range(len(kinds)))
    columns = {key: KINDS[kind][0] for key, kind in zip(keys, kinds, strict=True)} | {"v": pa.int32()}
    model = ModelTable(keys, True)
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        index = KeyIndex(place / "keys", 1 << 30)
        mirror = Mirror(place / "t", target_of(place / "t", columns, keys))
        for number in range(1, data.draw(st.integers(3, 7))):
            changes = [
                (
                    data.draw(st.sampled_from([4, 4, 2, None])),
                    {key: data.draw(st.sampled_from(KINDS[kind][1])) for key, kind in zip(keys, kinds, strict=True)}
                    | {"v": data.draw(st.integers(0, 9))},
                )
                for _ in range(data.draw(st.integers(1, 9)))
            ]
            rows = pa.table({name: pa.array([row[name] for _, row in changes], kind) for name, kind in columns.items()})
            rows = rows.append_column(ROW_MARKER, pa.array([marker for marker, _ in changes], pa.int8()))
            model.apply(columns, changes)
            engine = LocalEngine(threads=1, index=index)
            assert mirror.apply(engine, [unit(place, number, rows)], 4).error is None
            assert mirror.bag() == model.bag()
            index.wait()
            happen(data, sorted((place / "keys").glob("*/*.keys")))
            if data.draw(st.booleans()):
                index = restarted(place / "keys")


def restarted(folder: Path) -> KeyIndex:
    """The index as a new process sees it: nothing is in memory."""
    look_up.LATELY_READ.clear()
    return KeyIndex(folder, 1 << 30)


def happen(data: Any, files: list[Path]) -> None:
    """Something bad to one of the index files, or nothing."""
    what = data.draw(st.sampled_from(["nothing", "damage", "cut", "remove", "swap", "replace", "empty", "grow"]))
    chosen = [data.draw(st.integers(0, 1 << 30)) for _ in range(3)]  # what there is to choose from is not drawn
    if not files or what == "nothing" or not files[chosen[0] % len(files)].stat().st_size:
        return
    path, other = files[chosen[0] % len(files)], files[chosen[1] % len(files)]
    content = path.read_bytes()
    if what == "damage":
        written = np.flatnonzero(np.frombuffer(content, np.uint8) if any(content) else np.ones(1))
        place = int(written[chosen[2] % len(written)])
        path.write_bytes(content[:place] + bytes([content[place] ^ 64]) + content[place + 1 :])
    elif what == "cut":
        path.write_bytes(content[: chosen[2] % len(content)])
    elif what == "remove":
        path.unlink()
    elif what == "swap":
        path.write_bytes(other.read_bytes())
        other.write_bytes(content)
    elif what == "replace":
        path.write_bytes(other.read_bytes())
    elif what == "empty":
        path.write_bytes(bytes(len(content)))
    else:
        path.write_bytes(content + b"\0" * 1024)


def with_table(place: Path, keys: pa.Table, **options: Any) -> tuple[Target, dict[str, Any]]:
    """A table with one data file, and its `add`."""
    folder = place / "t"
    folder.mkdir(exist_ok=True)
    pq.write_table(keys, folder / "a.parquet", **options)
    size = (folder / "a.parquet").stat().st_size
    stats = json.dumps({"numRecords": keys.num_rows})
    kinds = {field.name: field.type for field in keys.schema}
    return target_of(folder, kinds, tuple(kinds)), {"path": "a.parquet", "size": size, "stats": stats}


def found(index: KeyIndex, add: dict[str, Any], target: Target, keys: pa.Table) -> list[int] | None:
    rows = index.find(add, target, WantedKeys(keys))
    return None if rows is None else rows.tolist()


TABLES = {
    "uuid": pa.table({"k": [str(uuid.UUID(int=n * 7**40 % 2**128)) for n in range(5000)]}),
    "mixed text": pa.table({"k": [*(str(uuid.UUID(int=n)) for n in range(300)), "short", "x" * 60, "", "\0", "\0\0"]}),
    "long text": pa.table({"k": [f"{n:080}" for n in range(2000)]}),
    "number": pa.table({"k": [n * 7919 % 100_003 for n in range(5000)]}),
    "composite": pa.table(
        {"a": [n % 7 for n in range(3000)], "b": [None if n % 5 == 0 else str(n // 7) for n in range(3000)]}
    ),
    "equal": pa.table({"k": ["same"] * 3000 + ["other"]}),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("in_memory", [1 << 20, 4096])
def test_an_index_finds_what_reading_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, in_memory: int
) -> None:
    monkeypatch.setattr(write_keys, "_IN_MEMORY", in_memory)
    monkeypatch.setattr(write_keys, "_AT_ONCE", 300)
    monkeypatch.setattr(key_format, "_AT_ONCE", 300)
    monkeypatch.setattr(key_index, "_ROWS_AT_ONCE", 256)
    table = TABLES[name]
    target, add = with_table(tmp_path, table, row_group_size=700)
    index = KeyIndex(tmp_path / "keys", 1 << 30)
    assert index.build(add, target)
    (path,) = (tmp_path / "keys").glob("*/*")
    assert path.suffix == ".keys", "nothing else is left"
    some = table.take(list(range(0, table.num_rows, 37)))
    strange = {
        c: pa.array(["no such key", "x" * 100] if pa.types.is_string(some[c].type) else [-1, None], some[c].type)
        for c in some.column_names
    }
    for keys in (some, pa.table(strange), pa.concat_tables([some, pa.table(strange)])):
        read = search(add, target, keys)
        assert found(index, add, target, keys) == (read[0].tolist() if read else [])


def test_many_files_are_searched_together_and_one_that_is_damaged_costs_the_others_nothing(
    tmp_path: Path,
) -> None:
    """Files with other layouts and numbers of buckets, the same key in several of them, one several times in one."""
    texts = [TABLES[name]["k"].to_pylist() for name in ("uuid", "mixed text", "long text", "equal")]
    contents = [*texts, texts[0][:50], ["x"], texts[1][100:] + texts[0][:2000] + texts[1][100:110]]
    adds = []
    for number, keys in enumerate(contents):
        target, add = with_table(tmp_path, pa.table({"k": pa.array(keys, pa.string())}))
        (tmp_path / "t/a.parquet").rename(tmp_path / f"t/{number}.parquet")
        adds.append({**add, "path": f"{number}.parquet"})
    index = KeyIndex(tmp_path / "keys", 1 << 30)
    paths = []
    for add in adds:
        assert index.build(add, target)
        (new,) = {*(tmp_path / "keys").glob("*/*")} - {*paths}
        paths.append(new)
    some = [key for keys in texts for key in keys[7:300:3]] + ["x", "no such key"]
    right = [[row for row, key in enumerate(keys) if key in set(some)] for keys in contents]

    def asked() -> list[list[int] | None]:
        rows = index.find_in(adds, target, WantedKeys(pa.table({"k": some})))
        return [None if each is None else each.tolist() for each in rows]

    assert asked() == right
    assert asked() == right, "also from memory"
    content = paths[0].read_bytes()
    paths[0].write_bytes(content[:-60_000] + bytes(60_000))
    os.utime(paths[0], ns=(index_time := look_up.LATELY_READ.get(key_index.name_of(paths[0])).state[2], index_time))  # type: ignore[union-attr]
    assert asked() == [None, *right[1:]] and not paths[0].exists()
    assert index.build(adds[0], target)
    assert asked() == right
    paths[3].with_suffix(".new").write_bytes(paths[3].read_bytes())
    paths[3].with_suffix(".new").replace(paths[3])
    assert asked() == right, "another engine has replaced one"
    paths[3].write_bytes(paths[2].read_bytes())
    assert asked() == [*right[:3], None, *right[4:]], "one is that of another file"
    paths[5].unlink()
    assert asked() == [*right[:3], None, right[4], None, right[6]]


def test_entries_that_only_look_alike_are_told_apart(tmp_path: Path) -> None:
    """Keys with one first word, and keys whose bytes hold the first word of another: complete entries are compared."""
    seed, layout = 7, KeyLayout((ColumnLayout("uuid", 16, False),))
    random = np.random.default_rng(3)
    words = random.integers(0, 1 << 63, (200, 2)).astype(np.uint64)
    with np.errstate(over="ignore"):
        second = key_format.mixed(words[:, 1] + np.uint64(seed ^ 1))
    words[100:150, 0] = words[50:100, 0] ^ second[50:100] ^ second[100:150]
    first = key_format.scramble(words, seed)[:, 0]
    assert (first[50:100] == first[100:150]).all() and (words[50:100] != words[100:150]).all()
    words[150:, 1] = first[:50]
    write_key_file(tmp_path / "a", "one", 200, layout, [words], seed=seed)
    file = KeyFile(tmp_path / "a", "one")

    def rows(keys: np.ndarray) -> Any:
        (found,) = rows_in([file], lambda _: KeysOfLayout(keys))
        return found

    for row in range(200):
        assert rows(words[row : row + 1]).tolist() == [row]
    assert rows(words[::-1]).tolist() == list(range(200))
    assert rows(words[[3, 3, 120]]).tolist() == [3, 120]
    assert rows_in([None, file], lambda _: KeysOfLayout(words[5:6]))[0] is None
    file.rows = 150
    assert rows(words[:150]).tolist() == list(range(150))
    assert isinstance(rows(words[:151]), key_format.Damaged), "no data file has such a row"


def test_a_hit_of_a_hash_is_held_against_the_true_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that are too long to be stored have a hash. Here 2,000 keys share 50 hashes, and no wrong row is found."""
    hashes = key_layout.key_hashes
    monkeypatch.setattr(key_layout, "key_hashes", lambda keys: hashes(keys) % np.uint64(50))
    target, add = with_table(tmp_path, TABLES["long text"], row_group_size=300)
    index = KeyIndex(tmp_path / "keys", 1 << 30)
    assert index.build(add, target)
    keys = TABLES["long text"].take([3, 299, 300, 1999])
    assert found(index, add, target, keys) == [3, 299, 300, 1999]
    assert found(index, add, target, pa.table({"k": ["z" * 80]})) == []


def test_a_miss_is_believed_only_of_a_complete_index(tmp_path: Path) -> None:
    """Every byte that a look-up depends on is held against a checksum: no damage makes a key unfindable."""
    keys = TABLES["uuid"].slice(0, 500)
    target, add = with_table(tmp_path, keys)
    KeyIndex(tmp_path / "keys", 1 << 30).build(add, target)
    (path,) = (tmp_path / "keys").glob("*/*")
    content, used = path.read_bytes(), 0
    for place in range(0, len(content), 61):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])
        index = restarted(tmp_path / "keys")
        two = found(index, add, target, keys.slice(7, 2))
        used += two is not None
        assert two in (None, [7, 8])
        assert found(index, add, target, keys) in (None, list(range(500)))
    assert used, "blocks that are not touched cost nothing"
    path.write_bytes(content)
    assert found(restarted(tmp_path / "keys"), add, target, keys.slice(7, 2)) == [7, 8]
    assert found(restarted(tmp_path / "keys"), {**add, "stats": '{"numRecords": 499}'}, target, keys) is None


def test_another_data_file_at_the_same_place_has_no_index(tmp_path: Path) -> None:
    target, add = with_table(tmp_path, TABLES["number"])
    index = KeyIndex(tmp_path / "keys", 1 << 30)
    assert index.build(add, target)
    assert found(index, add, target, TABLES["number"].slice(3, 1)) == [3]
    os.utime(tmp_path / "t/a.parquet", (1, 1))
    assert found(index, add, target, TABLES["number"].slice(3, 1)) is None
    (tmp_path / "t/a.parquet").unlink()
    with pytest.raises(FileNotFoundError):
        found(index, add, target, TABLES["number"].slice(3, 1))


def test_numbers_that_rise_and_small_files_have_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, add = with_table(tmp_path, pa.table({"k": np.arange(9000)}))
    index = KeyIndex(tmp_path / "keys", 1 << 30)
    assert not index.build(add, target)
    monkeypatch.setattr(key_index, "FEWEST_ROWS", 9001)
    index.want(add, target)
    index.wait()
    assert not (tmp_path / "keys").exists()


def test_equal_keys_of_random_tables_have_equal_words() -> None:
    for name, (kind, values) in KINDS.items():
        keys = pa.table({"k": pa.array(values, kind)})
        layout = layout_of(keys)
        words, fits = encode(keys, layout)
        same = look_up.comparable(keys)["k"].to_pylist()
        assert fits.all(), name
        for a in range(len(values)):
            for b in range(len(values)):
                assert (words[a].tolist() == words[b].tolist()) == (same[a] == same[b]), (name, a, b)


@pytest.mark.parametrize("form", ["uuid", "UUID"])
def test_only_text_of_its_form_is_packed_as_a_uuid(form: str) -> None:
    """Every byte in every place: text that is held as a UUID gives the same text again."""
    text = bytearray(str(uuid.UUID("01234567-89ab-cdef-fedc-ba9876543210")).encode())
    digits = b"0123456789abcdef"
    if form == "UUID":
        text, digits = bytearray(bytes(text).upper()), digits.upper()
    values, fit = [], []
    for place in range(36):
        for byte in range(256):
            values.append(bytes(text[:place]) + bytes([byte]) + bytes(text[place + 1 :]))
            fit.append(byte in digits if text[place] != ord("-") else byte == ord("-"))
    keys = pa.table({"k": pa.array(values, pa.binary())})
    words, fits = encode(keys, KeyLayout((ColumnLayout(form, 16, False),)))
    assert fits.tolist() == fit
    for place in np.flatnonzero(fits).tolist():
        assert words[place].tobytes() == uuid.UUID(values[place].decode()).bytes


def test_more_rows_of_one_key_than_a_bucket_takes_have_no_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_keys, "MOST_IN_BUCKET", 2999)
    monkeypatch.setattr(write_keys, "_AT_ONCE", 100)
    target, add = with_table(tmp_path, TABLES["equal"])
    assert not KeyIndex(tmp_path / "keys", 1 << 30).build(add, target)
    assert not list((tmp_path / "keys").glob("*/*"))
    monkeypatch.setattr(write_keys, "MOST_IN_BUCKET", 3001)
    assert KeyIndex(tmp_path / "keys", 1 << 30).build(add, target)


@pytest.mark.parametrize(("rows", "is_built"), [(10, True), (11, False)])
def test_inserts_whose_keys_are_none_have_no_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, is_built: bool
) -> None:
    """`rows`: of each key."""
    monkeypatch.setattr(key_index, "_REPEATED", 11)
    target, add = with_table(tmp_path, pa.table({"k": ["c", "a", "b"] * rows}))
    assert KeyIndex(tmp_path / "keys", 1 << 30).build(add, target) is is_built


def search(add: Action, target: Target, keys: pa.Table, index: KeyIndex | None = None) -> dict[int, np.ndarray]:
    """The rows with these keys, from the index if it answers, else from the data file."""

    def read(files: Any, target: Target, wanted: WantedKeys) -> Any:
        return search_files(files, target, wanted, 1 << 26, map, index)

    return find_keys([add], target, keys, read, map, index)


def test_keys_that_were_spilled_are_looked_up_in_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, add = with_table(tmp_path, TABLES["uuid"])
    index = KeyIndex(tmp_path / "keys", 1 << 30)
    with Spill(tmp_path, 3, ["k"]) as deletes:
        deletes.add(TABLES["uuid"].slice(40, 7))
        each = lambda act, items: [act(item) for item in items]  # noqa: E731
        rows = find_spilled((add,), target, deletes, each, index)
        assert rows[0].tolist() == list(range(40, 47))
        index.wait()
        monkeypatch.setattr("lakemirror.keys.find_keys.read_footer", lambda *_: pytest.fail("a file is read"))
        rows = find_spilled((add,), target, deletes, each, index)
        assert rows[0].tolist() == list(range(40, 47))


def test_a_file_that_is_cut_or_fails_while_it_is_read_is_an_error_and_not_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, add = with_table(tmp_path, TABLES["uuid"])
    index = KeyIndex(tmp_path / "keys", 1 << 30)
    read = os.pread
    for what in ("cut", "fail"):
        index.build(add, target)
        assert found(index, add, target, TABLES["uuid"].slice(3, 1)) == [3]
        (path,) = (tmp_path / "keys").glob("*/*")

        def pread(number: int, size: int, place: int, path: Path = path, what: str = what) -> bytes:
            if what == "fail":
                raise OSError(5, "Input/output error")
            os.truncate(path, 5000)
            return read(number, size, place)

        with monkeypatch.context() as patch:
            patch.setattr("os.pread", pread)
            assert found(index, add, target, TABLES["uuid"].slice(4, 1)) is None
        assert found(restarted(tmp_path / "keys"), add, target, TABLES["uuid"].slice(4, 1)) == (
            [4] if what == "fail" else None
        )


def test_the_index_is_bounded_and_drops_what_was_used_longest_ago(tmp_path: Path) -> None:
    places = []
    for number in range(3):
        (tmp_path / str(number)).mkdir()
        places.append(with_table(tmp_path / str(number), TABLES["uuid"]))
    size = key_format.size_of(5000, layout_of(TABLES["uuid"]))
    index = KeyIndex(tmp_path / "keys", 2 * size + 100)
    files: list[Path] = []
    for number, (target, add) in enumerate(places[:2]):
        assert index.build(add, target)
        (new,) = {*(tmp_path / "keys").glob("*/*")} - {*files}
        files.append(new)
        os.utime(new, (number, number))
    target, add = places[2]
    assert index.build(add, target) and [file.exists() for file in files] == [False, True]
    assert sum(file.stat().st_size for file in (tmp_path / "keys").glob("*/*")) <= 2 * size + 100
    os.utime(files[1])
    assert not index.build(places[0][1], places[0][0]), "what was used lately stays"
    shutil.rmtree(tmp_path / "1/t")
    assert index.build(places[0][1], places[0][0]) and not files[1].exists(), "its data file is gone"


def test_what_a_killed_process_was_writing_is_removed_later(tmp_path: Path) -> None:
    target, add = with_table(tmp_path, TABLES["uuid"])
    KeyIndex(tmp_path / "keys", 1 << 30).build(add, target)
    (file,) = (tmp_path / "keys").glob("*/*")
    for number, (place, is_old) in enumerate((("old", True), ("young", False), ("at work", True))):
        made = work_folder_left_behind(file.parent, str(number) * 32)
        (made / place).write_bytes(b"half")
        if is_old:
            for each in (*made.iterdir(), made):
                os.utime(each, (1, 1))
        if place == "at work":
            os.utime(made / place)
    KeyIndex(tmp_path / "keys", 1 << 30).build(add, target)
    assert {each.name for each in file.parent.iterdir()} == {
        file.name,
        f".building-{'1' * 32}",
        f".building-{'2' * 32}",
    }


def work_folder_left_behind(parent: Path, name: str) -> Path:
    """What a killed process leaves of a `work_folder`."""
    with own_files.work_folder(parent, ".building-") as made:
        return made.rename(parent / f".building-{name}")


def test_what_somebody_else_keeps_in_the_folder_stays(tmp_path: Path) -> None:
    """Whoever named it: the folder of the index may hold databases. Links lead nowhere."""
    target, add = with_table(tmp_path, TABLES["uuid"])
    keys = tmp_path / "keys"
    KeyIndex(keys, 1 << 30).build(add, target)
    (index,) = keys.glob("*/*.keys")
    elsewhere = tmp_path / "elsewhere"
    foreign = [
        keys / "sales/shop/mirroring.json",
        keys / "sales/orders.parquet",
        keys / "sales" / index.name,  # the folder is no table's
        index.parent / "notes.keys",
        index.parent / f"{'a' * 32}.keys",  # the name of an index, and other content
        index.parent / ".abc.tmp",
        index.parent / ".parts-old/1",
        index.parent / f".building-{'b' * 32}/thesis.txt",  # no mark is in it
        elsewhere / index.name,
        elsewhere / f".building-{'c' * 32}/.lakemirror-work",
    ]
    for path in foreign:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"somebody's")
    for path in (keys / "sales" / index.name, elsewhere / index.name):
        path.write_bytes(index.read_bytes())
    (keys / ("d" * 32)).symlink_to(elsewhere)
    (index.parent / f"{'e' * 32}.keys").symlink_to(elsewhere / index.name)
    (index.parent / f".building-{'f' * 32}").symlink_to(elsewhere)
    held = {path: path.read_bytes() for path in foreign}
    for path in tmp_path.rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)
    shutil.rmtree(tmp_path / "t")
    folder = IndexFolder(keys, 1)
    assert not folder.make_room(1 << 20)
    assert not index.exists(), "an index without its data file goes"
    assert {path: path.read_bytes() for path in foreign} == held
    assert len(list(index.parent.iterdir())) == len([p for p in foreign if p.is_relative_to(index.parent)]) + 2


def test_a_file_in_the_place_of_an_index_is_not_written_over(tmp_path: Path) -> None:
    target, add = with_table(tmp_path, TABLES["uuid"])
    index = KeyIndex(tmp_path / "keys", 1 << 30)
    index.build(add, target)
    (path,) = (tmp_path / "keys").glob("*/*")
    path.write_bytes(b"somebody's")
    index = restarted(tmp_path / "keys")
    assert found(index, add, target, TABLES["uuid"].slice(5, 1)) is None
    with pytest.raises(ValueError, match="is no key index"):
        index.build(add, target)
    assert path.read_bytes() == b"somebody's"


def test_a_full_disk_costs_speed_and_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "lakemirror")
    target, add = with_table(tmp_path, TABLES["uuid"])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    index = KeyIndex(tmp_path / "keys", 1 << 30)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
    try:
        for _ in range(3):
            index.builder._not_before = 0.0  # as if ten minutes had passed
            rows = search(add, target, TABLES["uuid"].slice(5, 2), index)
            assert rows[0].tolist() == [5, 6]
            index.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    said = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert len([each for each in said if str(tmp_path) in each]) == 1, said
    assert not list((tmp_path / "keys").glob("*/*")), "nothing half written is left"
    index.builder._not_before = 0.0
    index.want(add, target)
    index.wait()
    assert found(index, add, target, TABLES["uuid"].slice(5, 2)) == [5, 6]


def test_building_lets_an_apply_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_builder, "_YIELD", 60.0)
    target, add = with_table(tmp_path, TABLES["uuid"])
    index, begun = KeyIndex(tmp_path / "keys", 1 << 30), threading.Event()
    build = index.build
    monkeypatch.setattr(index, "build", lambda *given: begun.set() or build(*given))
    with index.at_work():
        index.want(add, target)
        assert not begun.wait(0.1), "not a byte of the data file is read before"
    index.wait()
    assert begun.is_set()
    assert found(index, add, target, TABLES["uuid"].slice(1, 1)) == [1]


def test_a_truncated_file_that_is_open_is_opened_again(tmp_path: Path) -> None:
    target, add = with_table(tmp_path, TABLES["uuid"])
    index = KeyIndex(tmp_path / "keys", 1 << 30)
    index.build(add, target)
    assert found(index, add, target, TABLES["uuid"].slice(1, 1)) == [1]
    (path,) = (tmp_path / "keys").glob("*/*")
    os.truncate(path, 5000)
    assert found(index, add, target, TABLES["uuid"].slice(9, 1)) is None and not path.exists()


def test_a_file_of_another_identity_is_refused(tmp_path: Path) -> None:
    keys = TABLES["number"]
    layout = layout_of(keys)
    write_key_file(tmp_path / "a", "one", 5000, layout, [encode(keys, layout)[0]])
    KeyFile(tmp_path / "a", "one")
    with pytest.raises(key_format.Damaged):
        KeyFile(tmp_path / "a", "two")
    with pytest.raises(ValueError, match="more than 4999 keys"):
        write_key_file(tmp_path / "b", "one", 4999, layout, [encode(keys, layout)[0]])


@pytest.mark.parametrize("size", [0, 7, 8, 12, 16, 4095, 4096, 5000])
def test_an_index_that_is_cut_short_is_dropped(tmp_path: Path, size: int) -> None:
    target, add = with_table(tmp_path, TABLES["uuid"])
    index = KeyIndex(tmp_path / "keys", 1 << 30)
    index.build(add, target)
    (path,) = (tmp_path / "keys").glob("*/*")
    os.truncate(path, size)
    assert found(index, add, target, TABLES["uuid"].slice(9, 1)) is None and not path.exists()


@pytest.mark.parametrize("name", ["number", "uuid"])
def test_many_numbers_are_found_faster_by_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(key_index, "_READ_NUMBERS", 256)
    keys = TABLES[name]
    target, add = with_table(tmp_path, keys)
    index = KeyIndex(tmp_path / "keys", 1 << 30)
    assert index.build(add, target)
    many = keys.num_rows // 256 + 1
    assert found(index, add, target, keys.slice(9, many - 1)) == list(range(9, 8 + many))
    assert found(index, add, target, keys.slice(9, many)) == (None if name == "number" else list(range(9, 9 + many)))
    store = SimpleNamespace(waits=True)
    monkeypatch.setattr(key_index, "capabilities_of", lambda place: store)
    assert found(index, add, target, keys.slice(9, many)) == list(range(9, 9 + many)), "reading a store takes long"
    search(add, target, keys)
    assert (found(index, add, target, keys.slice(9, many)) is None) == (name == "number"), "they are in memory now"


def test_a_new_file_that_may_be_merged_soon_gets_an_index_when_one_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = TABLES["uuid"]
    target, add = with_table(tmp_path, keys)
    monkeypatch.setattr(key_index, "FEWEST_ROWS", keys.num_rows // 8 + 1)
    monkeypatch.setattr(key_index, "_READ_ALL", 8)
    index = KeyIndex(tmp_path / "keys", 1 << 30)

    def held() -> int:
        index.wait()
        return len(list((tmp_path / "keys").glob("*/*.keys")))

    index.want_lasting([add], target)
    assert not held(), "the next merge may replace it"
    search(add, target, keys, index)
    assert not held(), "an index finds so many keys no faster"
    search(add, target, keys.slice(0, 1), index)
    assert held() == 1
    monkeypatch.setattr(key_index, "FEWEST_ROWS", keys.num_rows // 8)
    index = KeyIndex(tmp_path / "keys", 1 << 30)
    shutil.rmtree(tmp_path / "keys")
    index.want_lasting([add], target)
    assert held() == 1
