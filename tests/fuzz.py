"""Files as no publisher should write them: valid ones, broken in every way that a seed gives.

python -m tests.fuzz COUNT SEED FOLDER     reads them all; exits 0 if each was read or met a coded error
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.errors import Bad, LakemirrorError
from lakemirror.landing_zone.change_file import ChangeFile
from lakemirror.landing_zone.column_types import file_columns
from lakemirror.landing_zone.delimited import convert
from lakemirror.landing_zone.metadata import TableMetadata, parse_metadata
from lakemirror.lint import check
from lakemirror.mirror.next_batch import Limits, next_batch
from lakemirror.storage import Entry

KEYS = ["keyColumns", "fileFormat", "fileExtension", "isPartitionEnabled", "fileDetectionStrategy", "SchemaDefinition",
        "fileFormatTypeProperties", "isUpsertDefaultRowMarker", "ConditionalUpdateColumn", "x"]  # fmt: skip
TYPES = ["Int16", "Int32", "Int64", "Single", "Double", "Boolean", "String", "DateTime", "IDate", "ITime", "ByteArray",
         "Decimal(9,2)"]  # fmt: skip


_WEIGHTY = [b'"', b"\\", b",", b"\n", b"\r", b"\0", b"\xff", b"{", b"}", b"[", b"'"]


def broken(data: bytes, chance: random.Random) -> bytes:
    """The bytes with a few of them flipped, cut, doubled or replaced."""
    found = bytearray(data)
    for _ in range(chance.randrange(1, 6)):
        if not found:
            break
        at = chance.randrange(len(found))
        how = chance.randrange(6)
        if how == 0:
            found[at] ^= 1 << chance.randrange(8)
        elif how == 1:
            del found[at:]
        elif how == 2:
            del found[at : at + chance.randrange(1, 40)]
        elif how == 3:
            found[at:at] = found[max(0, at - chance.randrange(1, 60)) : at]
        elif how == 4:
            found[at : at + 1] = chance.choice(_WEIGHTY)
        else:
            found[at:at] = chance.randbytes(chance.randrange(1, 9))
    return bytes(found)


def metadata_file(chance: random.Random) -> bytes:
    how = chance.randrange(12)
    if how == 0:
        return b"[" * 200_000
    if how == 1:
        return b'{"keyColumns":' * 50_000
    if how == 2:
        return b'{"keyColumns": ["' + b"k" * 3_000_000 + b'"]}'
    values: list[Any] = [
        "CSV", "Parquet", "DelimitedText", "LastUpdateTimeFileDetection", True, "true", None, 7, 1e308, [], ["id"], {},
        {"Columns": [{"Name": "id", "DataType": chance.choice(TYPES)}]}, {"encoding": "utf-16"},
    ]  # fmt: skip
    document = {key: chance.choice(values) for key in chance.sample(KEYS, chance.randrange(len(KEYS)))}
    data = json.dumps(document).encode(chance.choice(["utf-8", "utf-8", "utf-16", "utf-8-sig"]))
    return broken(data, chance) if chance.random() < 0.8 else data


def text_file(chance: random.Random) -> tuple[str, bytes]:
    """A delimited file and its name's end."""
    how = chance.randrange(40)
    if how == 0:
        return "csv.gz", gzip.compress(b"id,v\r\n" + b"1,aaaa\r\n" * 3_000_000)  # a bomb of rows
    if how == 1:
        return "csv.gz", gzip.compress(b"id,v\r\n1," + b"a" * 90_000_000)  # a bomb of one field
    if how == 2:
        return "csv", b'id,v\r\n1,"' + b"a,\r\n" * 400_000
    if how == 3:
        return "csv", b"id," * 20_000 + b"v\r\n" + b"," * 20_000
    values = ["a", "", "1.5", "x,y", "2024-01-01", "true", "AAEC"]
    rows = [f"{chance.randrange(9)},{chance.choice(values)}" for _ in range(30)]
    data = ("id,v\r\n" + "\r\n".join(rows)).encode(chance.choice(["utf-8", "utf-16"]))
    suffix = chance.choice(["csv", "csv", "csv.gz", "csv.zst", "csv.snappy"])
    if chance.random() < 0.5:
        data = broken(data, chance)
    if suffix != "csv":
        codec = {"csv.gz": "gzip", "csv.zst": "zstd", "csv.snappy": "snappy"}[suffix]
        data = gzip.compress(data) if codec == "gzip" else bytes(pa.compress(data, codec))
    return suffix, broken(data, chance) if chance.random() < 0.6 else data


def parquet_file(chance: random.Random) -> bytes:
    how = chance.randrange(30)
    if how == 0:  # a bomb: a hundred megabytes in a few kilobytes
        rows = pa.table({"id": pa.array([1] * 1000), "v": pa.array(["x" * 1000] * 1000)})
        sink = io.BytesIO()
        with pq.ParquetWriter(sink, rows.schema, compression="zstd") as writer:
            for _ in range(100):
                writer.write_table(rows)
        return sink.getvalue()
    kinds: list[Any] = [
        pa.int8(), pa.int64(), pa.string(), pa.float64(), pa.timestamp("ns"), pa.date32(), pa.bool_(), pa.uint64(),
        pa.list_(pa.int32()), pa.struct([("a", pa.int32())]), pa.null(), pa.decimal128(20, 3), pa.binary(),
    ]  # fmt: skip
    marker = pa.array([0, 4, 2], chance.choice([pa.int32(), pa.int64()]))
    columns = {"id": pa.array([1, 2, None]), "__rowMarker__": marker}
    for name in chance.sample(["a", "A", "b c", "ü", "v"], chance.randrange(4)):
        columns[name] = pa.nulls(3, chance.choice(kinds))
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, compression=chance.choice(["snappy", "zstd", "gzip", "none"]))
    data = sink.getvalue()
    if chance.random() < 0.4:  # only the footer, where the lies are
        cut = max(0, len(data) - 600)
        return data[:cut] + broken(data[cut:], chance)
    return broken(data, chance)


def read_metadata(data: bytes) -> None:
    parse_metadata(data, "_metadata.json")


def read_text(name: str, data: bytes, metadata: TableMetadata) -> None:
    convert(io.BytesIO(data), io.BytesIO(), file=f"t/{1:020}.{name}", metadata=metadata)


def read_parquet(data: bytes) -> None:
    """What a look reads of a file: its footer, its columns, what a batch would do with it."""
    try:
        footer = pq.read_metadata(io.BytesIO(data))
        file_columns(footer)
    except (pa.ArrowException, OSError, ValueError, MemoryError):
        return  # `pending` makes `file-unreadable` of these
    entry = Entry(f"t/{1:020}.parquet", len(data), 1)
    with contextlib.suppress(Bad):
        next_batch([ChangeFile(entry, 1, footer)], (), TableMetadata(("id",)), limits=Limits(9, 10**9))


def expect_coded(what: str, action: Callable[..., None], *given: Any) -> None:
    try:
        action(*given)
    except LakemirrorError as error:
        assert error.code and len(error.message) < 5000, what
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error


def run(count: int, seed: int, place: Path) -> None:
    """Reads `count` broken files, a third of each kind, and checks a landing zone that holds some of them."""
    chance = random.Random(seed)
    zone = place / "Files/LandingZone"
    for number in range(count):
        what = f"seed {seed}, file {number}"
        table = zone / f"t{number}"
        table.mkdir(parents=True)
        kind = number % 3
        if kind == 0:
            metadata = metadata_file(chance)
            expect_coded(what, read_metadata, metadata)
            (table / "_metadata.json").write_bytes(metadata)
            (table / f"{1:020}.parquet").write_bytes(parquet_file(chance))
        elif kind == 1:
            name, text = text_file(chance)
            columns = [{"Name": n, "DataType": chance.choice(TYPES)} for n in ("id", "v")]
            document: dict[str, Any] = {"fileFormat": "CSV", "keyColumns": ["id"]}
            if chance.random() < 0.7:
                document["SchemaDefinition"] = {"Columns": columns}
            declared = json.dumps(document).encode()
            expect_coded(what, read_text, name, text, parse_metadata(declared, "m"))
            (table / "_metadata.json").write_bytes(declared)
            (table / f"{1:020}.{name}").write_bytes(text)
        else:
            data = parquet_file(chance)
            expect_coded(what, read_parquet, data)
            (table / f"{1:020}.parquet").write_bytes(data)
    for finding in check(place, settle=0):
        assert (finding.code and finding.advice and finding.table) or finding.file


if __name__ == "__main__":
    run(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
