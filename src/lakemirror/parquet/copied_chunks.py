"""Parquet files made of column chunks that were encoded by somebody else: their bytes are copied, the footer is new.

    a column of a row group, its pages checked ─▶ CopiedChunk ─▶ Footers.footer: schema, places, counts, bounds

The footer promises nothing that its caller did not compute: no bounds, page indexes or Bloom filters are copied.
Format: parquet.thrift, `FileMetaData`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.parquet.pages import (
    DATA,
    DICTIONARY,
    PLAIN,
    PLAIN_DICTIONARY,
    POINTING,
    RLE,
    Page,
    begin_of,
)
from lakemirror.parquet.thrift import BINARY, I32, I64, LIST, STRUCT
from lakemirror.parquet.thrift_bytes import encoded_fields, list_bytes, struct_bytes

MAGIC = b"PAR1"
CODECS = {"SNAPPY": 1, "GZIP": 2, "ZSTD": 6}
"""The compressions of chunks that are copied, by their number."""

_KINDS = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_ENCODINGS = {PLAIN, *POINTING}


class CopiedChunk(NamedTuple):
    """The pages of a column in a row group. `stored`, `size`: its bytes, as stored and decompressed, with page headers.

    `pages`: their kinds and encodings, and how many there are of each. `has_levels`: they say which values are NULL.
    `data_page`: where the first data page is in it; 0 if there is no dictionary before it. `nulls`, `low`, `high`: of
    its values, the bounds as Parquet stores them; None: not told.
    """

    values: int
    stored: int
    size: int
    codec: int
    pages: tuple[tuple[int, int, int], ...]
    has_levels: bool
    data_page: int
    nulls: int | None = None
    low: bytes | None = None
    high: bytes | None = None


def chunk_of(told: Any, pages: Sequence[Page], *, optional: bool) -> CopiedChunk | None:
    """The chunk that a footer tells (`told`), whose pages were compared with it; None if it is not to be copied.

    That is if some readers of tables could not read it, or what it says of its pages' places is not what they are.
    """
    dictionary = pages[0] if pages and pages[0].kind == DICTIONARY else None
    data = pages[1:] if dictionary is not None else pages
    begin = begin_of(told.data_page_offset, told.dictionary_page_offset if told.has_dictionary_page else None)
    place = dictionary.begin + dictionary.stored - begin if dictionary is not None else 0
    codec = CODECS.get(told.compression)
    if codec is None or not data or told.data_page_offset != begin + place:
        return None
    used = {page.encoding for page in data}
    if any(page.kind != DATA for page in data) or not used <= _ENCODINGS:
        return None
    if dictionary is None and used & POINTING:
        return None
    if dictionary is not None and dictionary.encoding not in (PLAIN, PLAIN_DICTIONARY):
        return None
    stored = told.total_compressed_size
    size = stored + sum(page.size - page.stored for page in pages)
    kinds = Counter((page.kind, page.encoding) for page in pages)
    counts = tuple((kind, encoding, count) for (kind, encoding), count in sorted(kinds.items()))
    return CopiedChunk(sum(page.values for page in data), stored, size, codec, counts, optional, place)


class CopiedGroup(NamedTuple):
    """A row group: its rows, where it begins in its file, and its chunks in the order of the schema, without a gap."""

    rows: int
    begin: int
    chunks: tuple[CopiedChunk, ...]


class Footers:
    """Makes footers of files with one schema. `metadata`: added to each."""

    def __init__(self, schema: pa.Schema, metadata: Mapping[str, str]) -> None:
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(sink, schema, store_schema=False) as writer:
            writer.add_key_value_metadata(dict(metadata))
        data = sink.getvalue().to_pybytes()
        self._fixed = encoded_fields(data[-8 - int.from_bytes(data[-8:-4], "little") : -8])
        self.schema = pq.read_metadata(pa.BufferReader(data)).schema
        columns = [self.schema.column(index) for index in range(len(schema))]
        self._columns = [(_KINDS.index(each.physical_type), each.path.encode()) for each in columns]

    def length(self, place: int) -> int:
        """The bytes of a value of the column at this place, if its type has a fixed length."""
        return int(self.schema.column(place).length)

    def footer(self, groups: Sequence[CopiedGroup]) -> bytes:
        """The end of a file with these row groups: footer, its length, the mark of Parquet files."""
        fixed = self._fixed
        rows = sum(group.rows for group in groups)
        fields = {**fixed, 4: (LIST, list_bytes(STRUCT, [self._group(group) for group in groups]))}
        encoded = struct_bytes(
            *((number, kind, rows if number == 3 else value) for number, (kind, value) in sorted(fields.items()))
        )
        return b"".join((encoded, len(encoded).to_bytes(4, "little"), MAGIC))

    def _group(self, group: CopiedGroup) -> bytes:
        chunks, at = [], group.begin
        for (kind, name), chunk in zip(self._columns, group.chunks, strict=True):
            told = struct_bytes((3, I64, chunk.nulls), (5, BINARY, chunk.high), (6, BINARY, chunk.low))
            encodings = {encoding for _, encoding, _ in chunk.pages} | ({RLE} if chunk.has_levels else set())
            counts = [struct_bytes(*zip((1, 2, 3), (I32,) * 3, each, strict=True)) for each in chunk.pages]
            meta = struct_bytes(
                (1, I32, kind), (2, LIST, list_bytes(I32, sorted(encodings))), (3, LIST, list_bytes(BINARY, [name])),
                (4, I32, chunk.codec), (5, I64, chunk.values), (6, I64, chunk.size), (7, I64, chunk.stored),
                (9, I64, at + chunk.data_page), (11, I64, at if chunk.data_page else None),
                (12, STRUCT, None if chunk.nulls is None else told), (13, LIST, list_bytes(STRUCT, counts)),
            )  # fmt: skip
            chunks.append(struct_bytes((2, I64, 0), (3, STRUCT, meta)))
            at += chunk.stored
        size, stored = (
            sum(values) for values in zip(*((each.size, each.stored) for each in group.chunks), strict=True)
        )
        return struct_bytes(
            (1, LIST, list_bytes(STRUCT, chunks)), (2, I64, size), (3, I64, group.rows), (5, I64, group.begin),
            (6, I64, stored),
        )  # fmt: skip
