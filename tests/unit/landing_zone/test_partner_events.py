"""`_partnerEvents.json`: shown, never fatal (contract section 1)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from folders import patient, storage_with, write
from hypothesis import given
from hypothesis import strategies as st

from lakemirror.landing_zone.partner_events import MAX_SIZE, Partner, parse_partner, read_partner
from lakemirror.landing_zone.zone import scan

DOCUMENT = {
    "partnerName": "testPartner",
    "sourceInfo": {"sourceType": "SQL", "sourceVersion": "2019", "additionalInformation": {"testKey": "testValue"}},
}


def test_who_publishes(tmp_path: Path) -> None:
    write(tmp_path, "_partnerEvents.json", json.dumps(DOCUMENT))
    storage = storage_with(tmp_path)
    expected = Partner("testPartner", "SQL", "2019", {"testKey": "testValue"})
    assert read_partner(storage, scan(storage)) == (expected, None)


def test_nobody_has_to_say(tmp_path: Path) -> None:
    storage = storage_with(tmp_path, "orders/_partnerEvents.json")
    assert read_partner(storage, scan(storage)) == (None, None)


def test_a_file_deleted_since_the_listing_says_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, "_partnerEvents.json", json.dumps(DOCUMENT))
    storage = storage_with(tmp_path)
    zone = scan(storage)
    path.unlink()
    assert read_partner(storage, zone) == (None, None)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff\xfe\xfd", b"[" * 100_000, b"{}" + b" " * MAX_SIZE])
def test_a_file_that_makes_no_sense_is_warned_of(tmp_path: Path, content: bytes) -> None:
    write(tmp_path, "_partnerEvents.json", content)
    storage = storage_with(tmp_path)
    partner, warning = read_partner(storage, scan(storage))
    assert partner is None
    assert warning is not None
    assert warning.code == "partner-events-invalid"


def test_other_spellings_and_missing_parts() -> None:
    assert parse_partner(b'\xef\xbb\xbf{"PartnerName": "x", "SourceInfo": {"sourceversion": 8.4}}') == Partner(
        "x", "", "8.4"
    )
    assert parse_partner(b'{"sourceInfo": 3, "partnerName": ["x"]}') == Partner()


@patient
@given(st.binary(max_size=100) | st.recursive(st.none() | st.text(), st.lists).map(lambda v: json.dumps(v).encode()))
def test_nothing_is_fatal(data: bytes) -> None:
    assert parse_partner(data) is None or isinstance(parse_partner(data), Partner)
