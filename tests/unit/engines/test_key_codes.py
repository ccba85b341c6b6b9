"""Codes of keys are equal exactly if the keys are equal, whatever the width of whole numbers."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakemirror.keys.key_values import key_codes

AT_THE_EDGES = [
    (pa.uint64(), [2**64 - 1, 2**64 - 1, 2**64 - 5]), (pa.int64(), [-(2**63), 3 - 2**63, -(2**63)]),
    (pa.int64(), [-(2**63), 2**63 - 1, 0]), (pa.int8(), [-128, 127, -128]), (pa.uint8(), [255, 0, 255]),
    (pa.int64(), [None, 0, None]), (pa.date32(), [-(2**31), 3 - 2**31, -(2**31)]),
]  # fmt: skip


@pytest.mark.parametrize("is_composite", [False, True])
@pytest.mark.parametrize(("kind", "values"), AT_THE_EDGES)
def test_whole_numbers_at_the_edges(kind: pa.DataType, values: list[Any], is_composite: bool) -> None:
    whole = pa.int32() if kind == pa.date32() else kind
    column = pa.array(values, whole).cast(kind)
    keys = {"a": column, "b": pa.array([1, 1, 1])} if is_composite else {"a": column}
    codes = key_codes(pa.table(keys)).tolist()
    assert [codes.index(code) for code in codes] == [values.index(value) for value in values]
    assert min(codes) >= 0
