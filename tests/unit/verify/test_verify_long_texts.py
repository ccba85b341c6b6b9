"""Long texts are verified in little memory: a batch is bounded by bytes, and a text is hashed piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemirror.verify import row_hashes
from lakemirror.verify.row_batches import all_batches, parquet_file

TEXTS = ["", "a" * 15, "b" * 16, "c" * 17, "long " * 200, "long " * 200 + "!", "é" * 40]


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(row_hashes, "_PIECE", 16)
    row_hashes._powers.cache_clear()
    yield
    row_hashes._powers.cache_clear()


COMPLETE = row_hashes.column_hashes(pa.array(TEXTS)).tolist()


@pytest.mark.usefixtures("small_pieces")
def test_a_text_has_one_hash_whatever_the_pieces() -> None:
    assert row_hashes.column_hashes(pa.array(TEXTS)).tolist() == COMPLETE
    assert [int(row_hashes.column_hashes(pa.array([text]))[0]) for text in TEXTS] == COMPLETE
    assert len(set(COMPLETE)) == len(TEXTS)


def test_batches_are_bounded_by_bytes(tmp_path: Path) -> None:
    texts = [f"{number}".rjust(4 << 20) for number in range(12)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "t.parquet", use_dictionary=False, compression="none")
    with parquet_file(tmp_path / "t.parquet") as file:
        assert file.num_row_groups == 1
        batches = list(all_batches(file))
    assert max(batch.nbytes for batch in batches) <= 17 << 20
    assert [text for batch in batches for text in batch.column(0).to_pylist()] == texts
