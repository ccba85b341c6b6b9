"""Packets of a server arrive in any pieces; an event with a wrong checksum is refused."""

from __future__ import annotations

import socket
import struct
import zlib

import pytest

from lakemirror.errors import LakemirrorError
from lakemirror.publisher.capture.mariadb.binlog_packets import Packets
from lakemirror.publisher.capture.mariadb.binlog_reader import BinlogReader


def packet(payload: bytes) -> bytes:
    """A payload as the protocol has it: in parts of at most 16 MiB less one byte."""
    found, rest = b"", payload
    while True:
        part, rest = rest[:0xFFFFFF], rest[0xFFFFFF:]
        found += struct.pack("<I", len(part)) + part
        if len(part) < 0xFFFFFF:
            return found


def test_packets_are_joined_and_parted() -> None:
    ours, theirs = socket.socketpair()
    packets = Packets(ours)
    theirs.sendall(packet(b"one") + packet(b"") + packet(b"three")[:5])
    assert [bytes(each) for each in packets.waiting()] == [b"one", b""]
    theirs.sendall(packet(b"three")[5:])
    assert [bytes(each) for each in packets.waiting()] == [b"three"]
    theirs.close()
    with pytest.raises(ConnectionError):
        list(packets.waiting())


def test_a_payload_that_is_longer_than_a_packet() -> None:
    packets, long = Packets(None), bytes(0xFFFFFF + 5)
    packets._data += packet(long)[:-1]
    assert packets._next() is None
    packets._data += b"\0" + packet(bytes(0xFFFFFF))
    found = packets._next()
    assert found is not None and bytes(found) == long
    found = packets._next()
    assert found is not None and len(found) == 0xFFFFFF and packets._next() is None


def event(kind: int, body: bytes, behind: int, *, is_summed: bool = True) -> memoryview:
    """An event whose next one begins at `behind`."""
    header = struct.pack("<IBIIIH", 1, kind, 1, 19 + len(body) + 4 * is_summed, behind, 0)
    found = header + body
    return memoryview(found + struct.pack("<I", zlib.crc32(found)) if is_summed else found)


def reader() -> BinlogReader:
    found = BinlogReader([("shop", "t")], lambda _: "utf-8", is_mariadb=True)
    list(found.read(event(4, struct.pack("<Q", 4) + b"binlog.000012", 0)))
    list(found.read(event(15, bytes(40) + b"\1", 256)))
    return found


def test_positions_are_of_their_file_and_transactions_have_their_names() -> None:
    found = reader()
    list(found.read(event(162, struct.pack("<QIB", 7, 0, 1) + bytes(6), 300)))
    list(found.read(event(2, struct.pack("<IIBHH", 1, 0, 4, 0, 0) + b"shop\0truncate t", 400)))
    events, ended, exchanged = found.take()
    assert [(each.transaction, each.position & 0xFFFFFFFF) for each in ended] == [("", 256), ("0-1-7", 400)]
    assert {each.position >> 32 for each in ended} == {12}
    (emptied,) = events
    assert emptied.rows["op"].to_pylist() == ["t"] and emptied.rows["transaction"].to_pylist() == ["0-1-7"]
    assert not exchanged
    list(found.read(event(2, struct.pack("<IIBHH", 1, 0, 4, 0, 0) + b"shop\0alter table t drop primary key", 500)))
    _, _, (changed,) = found.take()
    assert changed.table == ("shop", "t") and changed.position == (12 << 32) + 500


def test_a_wrong_checksum_and_events_that_cannot_be_read_are_errors() -> None:
    wrong = bytearray(event(16, bytes(8), 300))
    wrong[20] ^= 1
    with pytest.raises(LakemirrorError, match="checksum") as raised:
        list(reader().read(memoryview(wrong)))
    assert raised.value.code == "capture-source-failed"
    with pytest.raises(LakemirrorError, match="log_bin_compress") as raised:
        list(reader().read(event(166, bytes(8), 300)))
    assert raised.value.code == "capture-not-ready"
    with pytest.raises(LakemirrorError, match="4 GiB"):
        list(reader().read(event(16, bytes(8), 10)))


def test_a_file_that_was_begun_again_is_another_one() -> None:
    """By the same server, under the same name, in another second."""
    found = reader()
    assert found.begun == {12: "1-1"}
    again = bytearray(event(15, bytes(40) + b"\1", 256))
    again[0] = 2
    again[-4:] = struct.pack("<I", zlib.crc32(again[:-4]))
    list(found.read(event(15, bytes(40) + b"\1", 0)))
    with pytest.raises(LakemirrorError, match="begun again") as raised:
        list(found.read(memoryview(again)))
    assert raised.value.code == "capture-source-failed" and raised.value.retry
