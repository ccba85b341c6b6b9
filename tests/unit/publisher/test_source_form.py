"""What tells a table of a source from another one of its name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakemirror.publisher.capture.source_form import SourceForm

FORM = SourceForm(7, {"id": 1, "v": 2}, ("id",), {"8": 0, "9": 91})


@pytest.mark.parametrize(
    ("now", "why", "ignored"),
    [
        (FORM, "", ""),
        (replace(FORM, number=6), "another table", "another table"),
        (replace(FORM, key=("v",)), "its key is now v", "its key is now v"),
        (replace(FORM, columns={"id": 1, "v": 3}), "column v was made again", ""),
        (replace(FORM, columns={"id": 1, "w": 2}), "column v is now w", ""),
        (replace(FORM, columns={"id": 2, "v": 1}), "column id was made again", ""),
        (replace(FORM, columns={"id": 1, "v": 2, "w": 3}), "", ""),
        (replace(FORM, columns={"id": 1}), "", ""),
        (replace(FORM, parts={"8": 0}), "its partitions changed", ""),
        (replace(FORM, parts={"8": 81, "9": 91}), "its partitions changed", ""),
        (replace(FORM, parts={**FORM.parts, "10": 0}), "", ""),
        (replace(FORM, parts={**FORM.parts, "10": 10}), "its partitions changed", ""),
    ],
)
def test_a_difference_is_what_may_have_exchanged_rows(now: SourceForm, why: str, ignored: str) -> None:
    assert why in FORM.difference(now) and bool(why) == bool(FORM.difference(now))
    assert ignored in FORM.difference(now, ignore=True) and bool(ignored) == bool(FORM.difference(now, ignore=True))
    assert not SourceForm().difference(now)
    added = replace(FORM, columns={**FORM.columns, "n": 3})
    assert not FORM.difference(added)
    assert FORM.difference(replace(added, defaults=("n",))) == "column n was added with a default"
    assert not FORM.difference(replace(added, defaults=("n",)), ignore=True)


def test_a_form_is_kept_as_json() -> None:
    assert SourceForm.of(FORM.content) == FORM
    assert SourceForm.of(None) == SourceForm()
