"""Every place that deletes, moves or overwrites has a row in `docs/decisions/031-what-is-removed.md`, with tests."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.source import nodes, parsed

import lakemirror
from lakemirror import failures
from lakemirror.storage import own_files
from lakemirror.storage.durable import put_over
from lakemirror.storage.own_files import remove_work_folder, work_folder
from lakemirror.storage.private_files import write_private

PACKAGE = Path(lakemirror.__file__).parent
EXAMPLES = Path(__file__).parents[2] / "examples"
TESTS = Path(__file__).parents[1]
PAGE = Path(__file__).parents[2] / "docs/decisions/031-what-is-removed.md"

_ANYWHERE = {
    "unlink", "rmtree", "rmdir", "truncate", "ftruncate", "put_over", "write_text", "write_bytes", "write_private",
    "change_private", "move_listed", "move_all_listed", "remove_own_file", "remove_work_folder", "remove_files",
    "put_table", "remove_file", "remove_unchanged", "remove_hadoop_checksum", "put_file", "put_new_file",
}  # fmt: skip
_METHODS = {"rename", "link", "move", "delete"}
_OF_STORAGE = {"write", "rewrite", "create"}
_OF_STORE = {"put", "replace"}
_OVERWRITES = re.compile(r"w[bt+]*|r[bt]*\+[bt]*")  # modes of `open`


def places() -> dict[str, set[str]]:
    """`file:function` of every call that may delete, move or overwrite something, with the verbs."""
    found: dict[str, set[str]] = {}
    files = [(root, path) for root in (PACKAGE, EXAMPLES) for path in sorted(root.rglob("*.py"))]
    for root, path in files:
        file = path.relative_to(root).as_posix()
        if not any(isinstance(node, ast.Call) and removing(node) for node in nodes(path)):
            continue
        for function, call in calls(parsed(path), ()):
            if verb := removing(call):
                found.setdefault(f"{file}:{function}", set()).add(verb)
    return found


def calls(node: ast.AST, inside: tuple[str, ...]) -> Iterator[tuple[str, ast.Call]]:
    for child in ast.iter_child_nodes(node):
        is_named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        name = (*inside, child.name) if is_named else inside  # type: ignore[attr-defined]
        if isinstance(child, ast.Call):
            yield ".".join(inside), child
        yield from calls(child, name)


def removing(call: ast.Call) -> str:
    """The verb of a call that may delete, move or overwrite; empty for any other."""
    function = call.func
    is_method = isinstance(function, ast.Attribute)
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    owner = _last_name(function.value) if isinstance(function, ast.Attribute) else ""
    texts = [each.value for each in (*call.args, *(k.value for k in call.keywords)) if isinstance(each, ast.Constant)]
    first = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
    is_removing = (
        name in _ANYWHERE
        or (is_method and name in _METHODS)
        or (name in ("remove", "replace", "removedirs", "renames") and owner == "os")
        or (name == "move" and owner == "shutil")
        or (name == "replace" and owner == "folder")
        or (name == "replace" and is_method and len(call.args) == 1 and not call.keywords)
        or (is_method and name in _OF_STORAGE and owner.endswith("storage"))
        or (is_method and name in _OF_STORE and owner.endswith("store"))
        or (name == "ask" and first in ("DELETE", "PUT", "PATCH"))
        or (name in ("open", "fdopen") and any(isinstance(t, str) and _OVERWRITES.fullmatch(t) for t in texts))
    )
    return name if is_removing else ""


def _last_name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def rows() -> list[tuple[set[str], set[str]]]:
    """Of each row of the page: the places, and the tests."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ") and "`" in line]
    return [
        (set(re.findall(r"`([a-z_/0-9]+\.py:[\w.]+)`", line)), set(re.findall(r"`(test_\w+)`", line))) for line in lines
    ]


def test_every_place_is_on_the_page_and_no_other() -> None:
    listed = {place for row, _ in rows() for place in row}
    there = places()
    assert not there.keys() - listed, "give it a row, with what bounds it and the test that holds the bound"
    assert not listed - there.keys(), "it is not there any more"


def test_every_row_names_tests_that_exist() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py"))
    defined = set(re.findall(r"def (test_\w+)\(", text))
    for where, tests in rows():
        assert where
        assert tests, where
        assert not tests - defined, where


@pytest.mark.parametrize(
    ("code", "verb"),
    [
        ("Path(x).unlink()", "unlink"),
        ("path.replace(target)", "replace"),
        ("os.replace(a, b)", "replace"),
        ("text.replace('a', 'b')", ""),
        ("moment.replace(second=0)", ""),
        ("storage.write(path, data)", "write"),
        ("file.write(data)", ""),
        ("path.open('w+b')", "open"),
        ("path.open('xb')", ""),
        ("open(path, mode='w')", "open"),
        ("endpoint.ask('DELETE', path)", "ask"),
        ("endpoint.ask('GET', path)", ""),
    ],
)
def test_what_the_search_finds(code: str, verb: str) -> None:
    call = ast.parse(code, mode="eval").body
    assert isinstance(call, ast.Call)
    assert removing(call) == verb


def test_a_work_folder_goes_with_what_is_in_it_and_no_other_does(tmp_path: Path) -> None:
    with work_folder(tmp_path, ".making-") as made:
        (made / "inner").mkdir()
        (made / "inner/a").write_bytes(b"a")
        kept = made.rename(tmp_path / f".making-{'a' * 32}")
    (tmp_path / f".making-{'b' * 32}").mkdir()  # killed before the mark
    (tmp_path / f".making-{'c' * 32}").symlink_to(kept)
    foreign = [tmp_path / f".making-{'d' * 32}", tmp_path / ".making-thesis", tmp_path / f".other-{'a' * 32}"]
    for each in foreign:
        each.mkdir()
        (each / "thesis.txt").write_bytes(b"somebody's")
    (foreign[0] / own_files.MARK).write_bytes(b"somebody's")
    everything = list(tmp_path.iterdir())
    assert not any(remove_work_folder(each, ".making-", 0) for each in everything), "all are too young"
    gone = {each.name for each in everything if remove_work_folder(each, ".making-", 4e9)}
    assert gone == {f".making-{'a' * 32}", f".making-{'b' * 32}"}
    assert all((each / "thesis.txt").exists() for each in foreign)


@pytest.mark.parametrize("write", [put_over, write_private])
def test_what_is_overwritten_is_the_name_and_never_what_a_link_leads_to(tmp_path: Path, write: object) -> None:
    (tmp_path / "elsewhere").write_bytes(b"somebody's")
    (tmp_path / "file").symlink_to(tmp_path / "elsewhere")
    if write is put_over:
        put_over(tmp_path / "file", b"new", durable=False)
    else:
        write_private(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert (tmp_path / "elsewhere").read_bytes() == b"somebody's"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["elsewhere", "file"]


def test_the_log_of_unexpected_errors_keeps_one_older_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "MOST_BYTES", 10)
    for number in range(3):
        failures._append(tmp_path, f"failure {number}")
    assert sorted(os.listdir(tmp_path)) == [failures.LOG_NAME, f"{failures.LOG_NAME}.1"]  # noqa: PTH208  names alone
    assert "failure 1" in (tmp_path / f"{failures.LOG_NAME}.1").read_text()
