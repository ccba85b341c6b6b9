"""Whole numbers in parameters and headers: ASCII digits, whatever their count."""

from __future__ import annotations

import re

from lakemirror.service.storage.storage_answers import invalid_parameter

MOST_LENGTH = 4 << 40  # bytes of a file; no position is beyond

_DIGITS = re.compile(r"[0-9]+")
_KEPT = 40  # digits: what is cut off does not make a number less than any that counts here


def number_of(text: str, parameter: str) -> int:
    """The number that a parameter's digits mean. Refused 400 for anything else."""
    if not _DIGITS.fullmatch(text):
        raise invalid_parameter(parameter)
    return number_in(text)


def number_in(digits: str) -> int:
    """The number of ASCII digits; of more than 40 only that it is greater than any length."""
    return int(digits.lstrip("0")[:_KEPT] or "0")


def position_of(text: str) -> int:
    """Where an append begins. Refused 400 for no number, and where no file has a byte."""
    position = number_of(text, "position")
    if position > MOST_LENGTH:
        raise invalid_parameter("position")
    return position
