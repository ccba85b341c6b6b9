"""The type that a column of text gets: its values give each text back, or it stays text."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.publisher.published_contents import changes, fold

from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing
from lakemirror.publisher.declared_types import TypeWarning
from lakemirror.publisher.sources.file_options import FileOptions
from lakemirror.publisher.sources.files import publish_files, read_file
from lakemirror.publisher.sources.text_types import Choice, Guess, KnownTypes

NAIVE, UTC = pa.timestamp("us"), pa.timestamp("us", "UTC")


def choice(*texts: str | None, form: FileOptions | None = None) -> Choice:
    """What is chosen where each text comes in a batch of its own, which is the same as in one batch."""
    wanted = (form or FileOptions()).delimited(";")
    one_by_one, at_once = Guess(wanted), Guess(wanted)
    for text in texts:
        one_by_one.look_at(pa.array([text], pa.string()))
    at_once.look_at(pa.array(texts, pa.string()))
    found = one_by_one.choice("c")
    assert found.kind == at_once.choice("c").kind
    return found


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1", "-5", "0", None], pa.int64()),
        (["9223372036854775807", "-9223372036854775808"], pa.int64()),
        (["9223372036854775808"], pa.decimal128(38, 0)),
        (["89490200001234567890", "89490200001234567891"], pa.decimal128(38, 0)),
        (["1", "89490200001234567890"], pa.decimal128(38, 0)),
        (["9" * 38, "-1"], pa.decimal128(38, 0)),
        (["9" * 39], pa.string()),
        (["0123", "123"], pa.string()),
        (["123", "0123"], pa.string()),
        (["-01"], pa.string()),
        (["1E5", "100000"], pa.string()),
        (["100000", "1E05"], pa.string()),
        (["1", "2.5e3"], pa.string()),
        (["+1"], pa.string()),
        (["1", " 1"], pa.string()),
        (["-0"], pa.string()),
        (["1", "-0"], pa.string()),
        (["-0.00", "1.00"], pa.string()),
        (["0x1F"], pa.string()),
        (["1", ""], pa.string()),
        (["2.50", "19.00"], pa.decimal128(38, 2)),
        (["-0.5", "0.0"], pa.decimal128(38, 1)),
        (["12345678901234567.89"], pa.decimal128(38, 2)),
        (["1.5", "2.25", "3"], pa.float64()),
        (["3", "0.30000000000000004"], pa.float64()),
        (["0.0000001", "1.5"], pa.float64()),
        (["1.50", "2.5"], pa.string()),
        (["1", "2.0", "0.25"], pa.string()),
        (["5.0", "2.25"], pa.float64()),
        (["5.00", "2.5"], pa.string()),
        (["5.0", "9007199254740993.0", "2.25"], pa.string()),
        (["12345678901234567.89", "1.5"], pa.string()),
        (["9007199254740993", "1.5"], pa.string()),
        (["1.5", "9007199254740993"], pa.string()),
        (["0." + "1" * 38], pa.string()),
        (["1" * 37 + ".25", "1.25"], pa.string()),
        ([".5"], pa.string()),
        (["5."], pa.string()),
        (["nan", "1.5"], pa.string()),
        (["1.5", "Infinity"], pa.string()),
        (["true", "false"], pa.bool_()),
        (["true", "True"], pa.string()),
        (["1", "true"], pa.string()),
        (["2026-01-31", "0001-01-01"], pa.date32()),
        (["2026-02-30"], pa.string()),
        (["0000-01-01"], pa.string()),
        (["2026-1-1"], pa.string()),
        (["2026-01-31", "2026-01-31 00:00:00"], pa.string()),
        (["2026-01-02 03:04:05", "2026-01-02 23:59:59"], NAIVE),
        (["2026-01-02 03:04:05", "2026-01-02T03:04:05"], pa.string()),
        (["2026-01-02T03:04:05Z"], UTC),
        (["2026-01-02T03:04:05Z", "2026-01-02T03:04:05"], pa.string()),
        (["2026-01-02T03:04:05+01:00"], pa.string()),
        (["2026-01-02T03:04:05.250000Z"], UTC),
        (["2026-01-02T03:04:05.25Z", "2026-01-02T03:04:05.250Z"], pa.string()),
        (["2026-01-02T03:04:05.1234567Z"], pa.string()),
        (["2026-01-02 24:00:00"], pa.string()),
        (["2026-01-02 03:04:60"], pa.string()),
        (["٣"], pa.string()),
        (["1\n"], pa.string()),
        ([None, None], pa.null()),
        ([], pa.null()),
    ],
)
def test_a_type_only_where_each_text_comes_back(texts: list[str | None], kind: pa.DataType) -> None:
    assert choice(*texts).kind == kind


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        (["89490200001234567890"], "c: decimal(38,0), 20 digits"),
        (["8" * 45], "c: text, 45 digits"),
        (["007"], "c: text, a leading zero, such as '007'"),
        (["1", "1E05"], "c: text, an exponent, such as '1E05'"),
        (["+49"], "c: text, a plus sign, such as '+49'"),
        (["a" * 60], f"c: text, such as '{'a' * 39}…'"),
        (["1.50", "2.5"], "c: text, '1.50' is no double's own text, and scales differ"),
        (["2026-01-02 03:04:05.50"], "c: timestamp, yyyy-MM-dd HH:mm:ss.SS"),
        (["1.5", "2.25"], "c: double, up to 2 digits behind the point"),
        (["1", "2.0", "2.25"], "c: text, whole numbers with and without .0 beside fractions"),
        ([" 7"], "c: text, blanks around ' 7'"),
        ([""], "c: text, an empty text"),
        ([], "c: no type, no value yet"),
    ],
)
def test_the_reason_is_said(texts: list[str], reason: str) -> None:
    assert str(choice(*texts)) == reason


GERMAN = FileOptions(";", ",", ".", "dd.MM.yyyy", "dd.MM.yyyy HH:mm")


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1.234,50", "2,00"], pa.decimal128(38, 2)),
        (["1234,50", "2,00"], pa.decimal128(38, 2)),
        (["1234,50", "1.234,50"], pa.string()),
        (["1.234,50", "1234,50"], pa.string()),
        (["1.234", "5"], pa.int64()),
        (["12.34"], pa.string()),
        (["1.23,4"], pa.string()),
        (["0.012"], pa.string()),
        (["01.03.2026"], pa.date32()),
        (["31.02.2026"], pa.string()),
        (["01.03.2026 07:08"], NAIVE),
    ],
)
def test_numbers_and_dates_in_a_form_that_is_given(texts: list[str], kind: pa.DataType) -> None:
    assert choice(*texts, form=GERMAN).kind == kind


def test_a_date_whose_form_is_a_number(tmp_path: Path) -> None:
    form = FileOptions(date_format="yyyyMMdd")
    assert choice("20260301", "00010101", form=form).kind == pa.date32()
    assert choice("20260301", "2026030", form=form).kind == pa.int64()


def test_keys_that_resemble_each_other_stay_apart(tmp_path: Path) -> None:
    for column in (
        "89490200001234567890,89490200001234567891,89490200001234567892",
        "0123,123,00123",
        "1E5,100000,1E05",
    ):
        texts = column.split(",")
        (tmp_path / "t.csv").write_text("k\n" + "\n".join(texts) + "\n")
        table = Landing(tmp_path).table("t", ["k"])
        table.recreate()
        publish_files(table, [tmp_path / "t.csv"])
        assert [str(row["k"]) for row in fold(changes(table.folder), ["k"])] == texts


def test_the_choice_is_made_over_the_whole_input(tmp_path: Path) -> None:
    content = "k,v\n" + "".join(f"{number},{number}\n" for number in range(300_000)) + "1,007\n"
    (tmp_path / "t.csv").write_text(content)
    rows = read_file(tmp_path / "t.csv").read_all()
    assert (rows.schema.types, rows["v"][-1].as_py()) == ([pa.int64(), pa.string()], "007")


@pytest.mark.parametrize("packed", [False, True])
def test_standard_input_is_read_twice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, packed: bool) -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    class Stdin:
        buffer = io.BufferedReader(Pipe(b"v\n1\n2\n03\n"))  # type: ignore[arg-type]

    monkeypatch.setattr(sys, "stdin", Stdin())
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"v\n1\n2\n03\n"))
    rows = read_file(tmp_path / "t.csv.gz" if packed else "-", options=FileOptions(format="csv")).read_all()
    assert rows.to_pydict() == {"v": ["1", "2", "03"]}


def test_a_file_that_grows_meanwhile_is_published_in_the_types_of_its_rows(tmp_path: Path) -> None:
    """The text is read once: types and rows are of the same text."""
    path = tmp_path / "t.csv"
    path.write_text("v\n1\n")
    rows = read_file(path, tell=lambda _: path.write_text("v\n1\n007\n")).read_all()
    assert rows.to_pydict() == {"v": [1]}


@pytest.mark.parametrize(
    ("before", "later"),
    [
        ("1", "007"),
        ("1", "1E2"),
        ("1", "+5"),
        ("1", "-0"),
        ("1", "1.5"),
        ("1", "9223372036854775808"),
        ("1", "soon"),
        ("2.50", "2.505"),
        ("2.50", "02.50"),
        ("2.50", "1e1"),
        ("89490200001234567890", "9" * 39),
        ("1.5\n2.25", "12345678901234567.89"),
        ("1.5\n2.25", "1e5"),
        ("1.5\n2.25", "nan"),
        ("1.5\n2.25", "1.2345678901234567891e-7"),
        ("true", "1"),
        ("2026-01-01", "01.01.2026"),
        ("2026-01-01", '""'),
        ("1", '""'),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.1234567Z"),
        ("2026-01-01T00:00:00Z", " 2026-01-01T00:00:00Z"),
        ("2026-01-01T00:00:00", "2026-01-01T00:00:00Z"),
        ("2026-01-01T00:00:00", "2026-01-01 00:00+01"),
    ],
)
@pytest.mark.filterwarnings("ignore::lakemirror.publisher.declared_types.TypeWarning")
def test_a_later_text_that_does_not_fit_is_refused_with_its_row(tmp_path: Path, before: str, later: str) -> None:
    table = Landing(tmp_path).table("t")
    (tmp_path / "t.csv").write_text(f"v\n{before}\n")
    publish_files(table, [tmp_path / "t.csv"])
    good = before.splitlines()[0]
    (tmp_path / "t.csv").write_text(f"v\n{good}\n{later}\n")
    with pytest.raises(LakemirrorError) as caught:
        publish_files(table, [tmp_path / "t.csv"])
    assert (caught.value.code, caught.value.row, caught.value.column) == ("value-invalid", 3, "v")
    assert len(changes(table.folder)) == len(before.splitlines())


@pytest.mark.parametrize(
    ("before", "later", "value"),
    [
        ("1", "-7", -7),
        ("2.50", "2.5", Decimal("2.50")),
        ("2.50", "3", Decimal("3.00")),
        ("89490200001234567890", "7", Decimal(7)),
        ("1.5\n2.25", "1e-07", 1e-07),
        ("1.5\n2.25", "2.5E+20", 2.5e20),
        ("1.5\n2.25", "2.50", 2.5),
        ("1.5\n2.25", "3", 3.0),
        ("007", "7", "7"),
        ("true", "FALSE", False),
        ("2026-01-01T00:00:00Z", "2026-01-01 01:00:00.5", dt.datetime(2026, 1, 1, 1, 0, 0, 500_000, dt.timezone.utc)),
    ],
)
@pytest.mark.filterwarnings("ignore::lakemirror.publisher.declared_types.TypeWarning")
def test_a_later_text_keeps_the_type_of_before(tmp_path: Path, before: str, later: str, value: Any) -> None:
    table = Landing(tmp_path).table("t")
    for text in (before, later):
        (tmp_path / "t.csv").write_text(f"V\n{text}\n" if text is later else f"v\n{text}\n")
        publish_files(Landing(tmp_path).table("t"), [tmp_path / "t.csv"])
    assert list(changes(table.folder)[-1][1].values()) == [value]


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
@pytest.mark.parametrize(
    ("before", "later"), [("1.1", "1.10"), ("1.1", "1"), ("1.5 2.25", "1.50"), ("1.5 2.25", "2.250"), ("1.25", "1.5")]
)
def test_a_later_text_of_a_key_is_no_second_spelling_of_its_value(
    tmp_path: Path, before: str, later: str, suffix: str
) -> None:
    table = Landing(tmp_path).table("t", ["K"])
    for texts, is_taken in ((before, True), (before.split()[0], True), (later, False)):
        rows = [f'{{"k": {text}, "v": {text}}}' for text in texts.split()]
        path = tmp_path / f"t.{suffix}"
        path.write_text(
            "\n".join(rows if suffix == "jsonl" else ["k,v", *(f"{text},{text}" for text in texts.split())])
        )
        if is_taken:
            assert len(publish_files(table, [path])) == 1
            continue
        with pytest.raises(LakemirrorError) as caught:
            publish_files(table, [path])
        assert (caught.value.code, caught.value.column) == ("value-invalid", "k")


def test_row_markers_in_csv_are_no_column_to_guess(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,__rowMarker__,v\n1,0,a\n2,4,b\n1,2,\n")
    publish_files(Landing(tmp_path).table("t", ["id"]), [path], marker="__rowMarker__")
    assert fold(changes(tmp_path / "Files/LandingZone/t"), ["id"]) == [{"id": 2, "v": "b"}]
    path.write_text("id,__rowMarker__,v\n1,x,a\n")
    with pytest.raises(LakemirrorError) as caught:
        publish_files(Landing(tmp_path).table("t", ["id"]), [path], marker="__rowMarker__")
    assert (caught.value.code, caught.value.row) == ("row-marker-invalid", 2)
    with pytest.raises(LakemirrorError) as caught:
        publish_files(Landing(tmp_path).table("t", ["id"]), [path])
    assert caught.value.code in ("row-marker-invalid", "input-invalid")


@pytest.mark.parametrize(("later", "word"), [("1.0,b", "--types id=text"), ("1,b,c", "Correct the line")])
def test_the_hint_of_a_refused_text_is_for_its_publisher(tmp_path: Path, later: str, word: str) -> None:
    for text in ("1,a", later):
        (tmp_path / "t.csv").write_text(f"id,v\n{text}\n")
        if text is not later:
            publish_files(Landing(tmp_path).table("t", ["id"]), [tmp_path / "t.csv"])
    with pytest.raises(LakemirrorError) as caught:
        publish_files(Landing(tmp_path).table("t", ["id"]), [tmp_path / "t.csv"])
    assert caught.value.code == "value-invalid"
    assert word in caught.value.hint


def test_a_type_that_is_named_for_no_column_is_said(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id\n1\n")
    with pytest.warns(TypeWarning, match="no column 'idd'"):
        read_file(tmp_path / "t.csv", KnownTypes({"idd": pa.string()})).read_all()


def test_an_array_of_objects_may_begin_after_blank_lines(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('\n\n[{"id": 1},\n{"id": 2}]\n')
    assert read_file(tmp_path / "t.json").read_all().to_pydict() == {"id": [1, 2]}


def test_a_named_type_reads_texts_as_declared(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("v\n007\n+5\n1\n")
    assert read_file(tmp_path / "t.csv", KnownTypes({"V": pa.int64()})).read_all().to_pydict() == {"v": [7, 5, 1]}


def test_types_are_known_behind_a_file_that_lacks_the_column(tmp_path: Path) -> None:
    for text, mode in (("id,zip\n1,007\n", "upsert"), ("id\n1\n", "delete"), ("id,zip\n1,12345\n", "upsert")):
        (tmp_path / "t.csv").write_text(text)
        publish_files(Landing(tmp_path).table("t", ["id"]), [tmp_path / "t.csv"], mode)
    assert fold(changes(tmp_path / "Files/LandingZone/t"), ["id"]) == [{"id": 1, "zip": "12345"}]


def test_a_snapshot_of_several_files_has_one_type(tmp_path: Path) -> None:
    for name, text in (("a.csv", "id,v\n1,7\n"), ("b.csv", "id,v\n2,007\n")):
        (tmp_path / name).write_text(text)
    table = Landing(tmp_path).table("t", ["id"])
    with pytest.raises(LakemirrorError) as caught:
        publish_files(table, [tmp_path / "a.csv", tmp_path / "b.csv"], "snapshot")
    assert (caught.value.code, caught.value.row) == ("value-invalid", 2)
    publish_files(table, [tmp_path / "b.csv", tmp_path / "a.csv"], "snapshot")
    assert fold(changes(table.folder), ["id"]) == [{"id": 2, "v": "007"}, {"id": 1, "v": "7"}]


def test_a_small_double_is_its_value(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("v\n0.00001\n2.5\n")
    assert read_file(tmp_path / "t.csv").read_all().to_pydict() == {"v": [0.00001, 2.5]}
