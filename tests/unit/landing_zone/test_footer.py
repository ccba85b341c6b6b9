"""A footer that cannot be true is an error as soon as it is seen; one that can be is left alone (section 4)."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.damaged_parquet import DAMAGES, ROWS, written
from tests.rounds import rounds

from lakemirror.errors import Rejected
from lakemirror.landing_zone.change_file import ChangeFile, Readiness, complete
from lakemirror.landing_zone.metadata import TableMetadata
from lakemirror.parquet import footer as footer_checks
from lakemirror.parquet import pages as pages_module
from lakemirror.parquet.footer import read_footer
from lakemirror.parquet.pages import pages
from lakemirror.parquet.thrift import I64, Wire, struct
from lakemirror.storage import Entry


def seen(data: bytes, age: float = 0) -> Any:
    """What becomes of a file of these bytes."""
    entry = Entry("t/00000000000000000001.parquet", len(data), 10**12)
    return complete(entry, 1, Readiness(1000.0 + age, 30, lambda _: read_footer(io.BytesIO(data))), TableMetadata())


@pytest.mark.parametrize("name", [name for name, damage in DAMAGES.items() if damage.seen == "footer"])
def test_a_footer_that_cannot_be_true(name: str) -> None:
    damage = DAMAGES[name]
    found = seen(damage.data)
    assert isinstance(found, Rejected), found
    assert (found.code, found.file) == (damage.code, "t/00000000000000000001.parquet")
    assert damage.says in found.message


@pytest.mark.parametrize(
    "rows",
    [
        ROWS,
        ROWS.slice(0, 0),
        pa.table({"a": pa.nulls(3)}),
        pa.table({"a": [{"b": [{"c": 1}], "d": None}, None]}),
        pa.table({"m": pa.array([[("k", [1])], None], pa.map_(pa.string(), pa.list_(pa.int8())))}),
        pa.table({str(i): [i] for i in range(300)}),
        pa.table({"f": pa.array([b"abc"], pa.binary(3)), "b": [True], "x": [np.nan]}),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "options",
    [
        {}, {"compression": "none"}, {"compression": "gzip"}, {"compression": "brotli"}, {"compression": "lz4"},
        {"compression": "zstd", "data_page_version": "2.0"}, {"write_statistics": False}, {"row_group_size": 1},
        {"use_dictionary": False, "write_page_index": True}, {"write_page_checksum": True},
    ],
)  # fmt: skip
def test_a_true_footer_is_left_alone(rows: pa.Table, options: dict[str, Any]) -> None:
    data = written(rows, **options)
    found = seen(data)
    assert isinstance(found, ChangeFile)
    assert found.footer.equals(pq.read_metadata(io.BytesIO(data)))


def test_what_is_no_footer_may_still_be_written() -> None:
    for damage in (each for each in DAMAGES.values() if each.seen == "unfinished"):
        assert not isinstance(seen(damage.data), Rejected)
        late = seen(damage.data, age=1000)
        assert isinstance(late, Rejected)
        assert late.code == damage.code


@settings(max_examples=rounds(100, 300), deadline=None)
@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=4))
def test_a_damaged_footer_ends_nothing(at: int, damage: bytes) -> None:
    """Whatever a footer holds: an error, or metadata whose every field can be asked for without ending the process."""
    data = bytearray(written())
    length = int.from_bytes(data[-8:-4], "little")
    place = len(data) - 8 - length + at % length
    data[place : place + len(damage)] = damage
    try:
        footer = read_footer(io.BytesIO(bytes(data)))
    except (ValueError, OSError, pa.ArrowException):
        return
    for index in range(footer.num_row_groups):
        for column in range(footer.row_group(index).num_columns):
            told = footer.row_group(index).column(column)
            assert told.num_values >= footer.row_group(index).num_rows
            _ = told.statistics and (told.statistics.min_raw, told.statistics.max_raw)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_page_headers(version: str, dictionary: bool) -> None:
    rows = pa.table({"a": np.arange(50_000), "t": [f"{i}" * 20 for i in range(50_000)]})
    data = written(rows, data_page_version=version, use_dictionary=dictionary, data_page_size=4096, compression="none")
    footer = read_footer(io.BytesIO(data))
    for column in range(2):
        found = pages(lambda at, size: data[at : at + size], footer.row_group(0).column(column))
        assert sum(page.values for page in found if page.is_data) == 50_000
        assert len([page for page in found if page.is_data]) > 10
        assert any(not page.is_data for page in found) is dictionary
        if version == "2.0":
            assert sum(page.rows or 0 for page in found) == 50_000


@settings(max_examples=rounds(75, 200), deadline=None)
@given(st.integers(4, 500), st.binary(min_size=1, max_size=8))
def test_damaged_page_headers_are_an_error_or_pages(at: int, damage: bytes) -> None:
    data = bytearray(written(compression="none"))
    footer = read_footer(io.BytesIO(bytes(data)))
    data[at : at + len(damage)] = damage
    for column in range(footer.num_columns):
        try:
            found = pages(lambda at, size: bytes(data[at : at + size]), footer.row_group(0).column(column))
        except ValueError:
            continue
        assert all(page.values >= 0 and page.size >= 0 for page in found)


def test_every_byte_of_a_footer_may_be_wrong() -> None:
    """Arrow ends the process for some footers: in a process of its own, every byte is changed in a few ways."""
    script = (
        f"QUICK = {rounds(1, 0)}"
        + """
import io, sys
import pyarrow as pa, pyarrow.parquet as pq
from lakemirror.parquet.footer import read_footer
sink = io.BytesIO()
pq.write_table(pa.table({"a": [1, 2, None], "t": ["x", "yy", "z"], "l": [[1], [], None]}), sink)
data = sink.getvalue()
for place in range(len(data) - 8 - int.from_bytes(data[-8:-4], "little"), len(data) - 8):
    values = [0, 255, *((data[place] + step) % 256 for step in (1, -1, 16, -16)), 0x21, 0x23, 0x24, 0x26, 0x34]
    for value in {values[place % len(values)], values[place * 7 % 5]} if QUICK else {*values}:
        try:
            footer = read_footer(io.BytesIO(data[:place] + bytes([value]) + data[place + 1 :]))
            for column in range(footer.num_columns):
                for group in range(footer.num_row_groups):
                    told = footer.row_group(group).column(column)
                    told.statistics and (told.statistics.min_raw, told.statistics.max_raw)
        except (ValueError, OSError, pa.ArrowException):
            pass
print("alive")
"""
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "alive", (done.returncode, done.stderr[-300:])


def test_a_footer_that_was_proven_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []
    true = footer_checks.contradiction
    monkeypatch.setattr(footer_checks, "_proven", footer_checks.ProvenFooters())
    monkeypatch.setattr(footer_checks, "contradiction", lambda tail, size: parsed.append(tail) or true(tail, size))
    one = written(pa.table({"id": [1, 2, 3]}))
    other = written(pa.table({"id": [1, 2, 4]}))
    first = footer_checks.read_footer(io.BytesIO(one))
    assert footer_checks.read_footer(io.BytesIO(one)) is first and len(parsed) == 1
    footer_checks.read_footer(io.BytesIO(other))
    assert len(parsed) == 2
    longer = one[:4] + b"\0" * 8 + one[4:]  # the same footer at the end of a larger file
    footer_checks.read_footer(io.BytesIO(longer))
    assert len(parsed) == 3


def test_proven_footers_are_bounded() -> None:
    kept = footer_checks.ProvenFooters(most_bytes=100)
    footer = pq.read_metadata(io.BytesIO(written(pa.table({"id": [1]}))))
    for number in range(10):
        kept.keep(bytes([number]) * 30, 1000, footer)
    assert [kept.find(bytes([number]) * 30, 1000) is not None for number in range(10)] == [False] * 7 + [True] * 3
    assert kept.find(b"\x09" * 30, 1001) is None, "another size is another file"


def test_fields_that_nobody_wants_are_walked_over_and_still_checked() -> None:
    data = written(pa.table({"a": [1], "b": ["x"], "c": [[1, 2]]}))
    tail = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    everything, end = struct(tail)
    wanted, same_end = struct(tail, shape={3: Wire(I64)})
    assert wanted == {3: everything[3]} and same_end == end
    for cut in range(1, len(tail) - 1, 7):
        with pytest.raises((IndexError, ValueError)):
            struct(tail[:cut], shape={3: Wire(I64)})


@settings(max_examples=rounds(300, 2000), deadline=None)
@given(st.data())
def test_usual_page_headers_are_read_as_all_others(data: st.DataObject) -> None:
    """The fast way gives what the general one gives, or leaves the header to it; also for damaged headers."""
    rows = pa.table({"a": np.arange(300) % 7, "t": [f"{i}" * (i % 5) for i in range(300)], "n": pa.nulls(300)})
    kind = data.draw(st.sampled_from(["1.0", "2.0"]))
    options = {"data_page_version": kind, "write_page_checksum": data.draw(st.booleans()), "data_page_size": 200}
    file = bytearray(written(rows, use_dictionary=data.draw(st.booleans()), compression="none", **options))
    footer = read_footer(io.BytesIO(bytes(file)))
    chunk = footer.row_group(0).column(data.draw(st.integers(0, 2)))
    begin = pages_module.begin_of(chunk.data_page_offset, chunk.dictionary_page_offset or None)
    for _ in range(data.draw(st.integers(0, 3))):
        file[begin + data.draw(st.integers(0, 40))] = data.draw(st.sampled_from([0, 1, 4, 5, 0x15, 0x1C, 0x80, 255]))
    content = bytes(file)

    def outcome() -> object:
        try:
            return pages(lambda at, size: content[at : at + size], chunk)
        except ValueError as error:
            return str(error)

    fast = outcome()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages_module, "_usual_page", lambda *_: None)
        assert outcome() == fast
