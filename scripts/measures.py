"""Counts how large lakemirror is, and how long the way of one change through it is.

    .venv/bin/python scripts/measures.py

The way: one row is upserted into a local table of three rows, by the third `sync()` of a process. What counts are
the calls of functions inside the package, on every thread. `tests/unit/test_measures.py` holds the limits.
"""

from __future__ import annotations

import ast
import re
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import TypeGuard

import lakemirror

PACKAGE = Path(lakemirror.__file__).parent
MOST_LINES, MOST_PARAMETERS, MOST_FIELDS = 50, 7, 12
MOST_OF_A_FILE = 400

_REASON = re.compile(r"#\s*(\d+) fields: \S.*")
"""A comment beside `class`, which says why a dataclass has so many fields."""

ONE_NAME_FOR_ONE_THING = {
    "doctor.py": "cli/ has one file for a command, with the command's name; the other file is what the command shows",
    "operations.py": "as doctor.py",
    "status.py": "as doctor.py",
}
"""Names of files that may occur twice, and why."""


@dataclass(frozen=True)
class Way:
    """What one change runs through inside the package: files, functions, calls, and calls from one file to another."""

    files: int
    functions: int
    calls: int
    crossings: int


@dataclass(frozen=True)
class Size:
    """The size of the package. `code`: lines without imports, docstrings, comments and blank lines.

    The lists name what is over a limit: `file (lines)`, `file:line name (count)`, files that import each other, names
    that occur twice. A dataclass with the reason beside it, and a name in ONE_NAME_FOR_ONE_THING, are left out.
    """

    lines: int
    code: int
    long_files: tuple[str, ...]
    long_functions: tuple[str, ...]
    many_parameters: tuple[str, ...]
    wide_records: tuple[str, ...]
    circles: tuple[tuple[str, ...], ...]
    doubled_names: tuple[str, ...]


class _Counter:
    """A profile function that counts calls inside the package."""

    def __init__(self) -> None:
        self.codes: Counter[CodeType] = Counter()
        self.crossings = 0
        self._root = f"{PACKAGE}/"

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call" or not self._counts(frame.f_code):
            return
        self.codes[frame.f_code] += 1
        caller = frame.f_back
        while caller is not None and not self._counts(caller.f_code):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_filename != frame.f_code.co_filename:
            self.crossings += 1

    def _counts(self, code: CodeType) -> bool:
        """True for functions of the package. Comprehensions are no functions in newer Pythons, and are left out."""
        return code.co_filename.startswith(self._root) and not code.co_name.startswith("<")


def way() -> Way:
    """The way of one upserted row through a local table."""
    count = _Counter()
    upsert_one_row(count)
    files = {code.co_filename for code in count.codes}
    return Way(len(files), len(count.codes), sum(count.codes.values()), count.crossings)


def upsert_one_row(profile: Callable[[FrameType, str, object], None]) -> None:
    """Upserts one row into a local table, in a `sync()` whose calls `profile` gets, as in `sys.setprofile`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from lakemirror import MirroredDatabase

    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "shop/Files/LandingZone/orders"
        table.mkdir(parents=True)
        (table / "_metadata.json").write_text('{"keyColumns": ["id"]}')

        def write(number: int, ids: list[int], marker: int) -> None:
            rows = {"id": ids, "text": [f"text {i}" for i in ids], "__rowMarker__": [marker] * len(ids)}
            pq.write_table(pa.table(rows), table / f"{number:020}.parquet")

        database = MirroredDatabase(Path(folder) / "shop", cache_dir=str(Path(folder) / "cache"))
        write(1, [1, 2, 3], 0)
        database.sync()
        write(2, [2], 4)
        database.sync()
        write(3, [3], 4)
        threading.setprofile(profile)
        sys.setprofile(profile)
        try:
            result = database.sync()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
        assert [each.files for each in result.tables.values()] == [1], result


def _nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def size(nodes_of: Callable[[Path], list[ast.AST]] = _nodes) -> Size:
    """The size of the package, and what is over the limits. `nodes_of`: gives all that is in the tree of a file."""
    lines = code = 0
    files, functions, parameters, records, names = [], [], [], [], Counter[str]()
    uses: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        nodes = nodes_of(path)
        lines += text.count("\n")
        code += _code_lines(text, nodes)
        place = path.relative_to(PACKAGE).as_posix()
        if text.count("\n") > MOST_OF_A_FILE:
            files.append(f"{place} ({text.count(chr(10))})")
        names[path.name] += path.name not in ("__init__.py", "__main__.py")
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = _length(node)
                if length > MOST_LINES:
                    functions.append(f"{place}:{node.lineno} {node.name} ({length})")
                taken = _parameters(node)
                if taken > MOST_PARAMETERS:
                    parameters.append(f"{place}:{node.lineno} {node.name} ({taken})")
            elif isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(d) for d in node.decorator_list):
                fields = sum(isinstance(each, ast.AnnAssign) for each in node.body)
                reason = _REASON.search(text.splitlines()[node.lineno - 1])
                if fields > MOST_FIELDS and (reason is None or int(reason[1]) != fields):
                    records.append(f"{place}:{node.lineno} {node.name} ({fields})")
        uses[place] = set(_imported(nodes))
    twice = tuple(sorted(name for name, count in names.items() if count > 1 and name not in ONE_NAME_FOR_ONE_THING))
    over = (tuple(found) for found in (files, functions, parameters, records, _circles(uses)))
    return Size(lines, code, *over, twice)


def _code_lines(text: str, nodes: list[ast.AST]) -> int:
    """Lines that hold code: no imports, docstrings, comments or blank lines."""
    left_out: set[int] = set()
    for node in nodes:
        if _is_text(node) or isinstance(node, ast.Import | ast.ImportFrom):
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    stripped = (line.strip() for line in text.splitlines())
    return sum(bool(line) and not line.startswith("#") and n not in left_out for n, line in enumerate(stripped, 1))


def _is_text(node: ast.AST) -> TypeGuard[ast.Expr]:
    """True for a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring."""
    length = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if _is_text(first):
        length -= (first.end_lineno or first.lineno) - first.lineno + 1
    return length


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    taken = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return len([each for each in taken if each.arg not in ("self", "cls")])


def _imported(nodes: list[ast.AST]) -> Iterator[str]:
    """Files of the package that a module imports anywhere, also for types alone."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lakemirror"):
            for alias in node.names:
                yield from _files(f"{node.module}.{alias.name}") or _files(node.module or "")
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files(alias.name)


def _files(module: str) -> list[str]:
    """The file of a module, in a list; empty for what is no module of the package."""
    if not module.startswith("lakemirror."):
        return []
    place = module.removeprefix("lakemirror.").replace(".", "/")
    candidates = (f"{place}.py", f"{place}/__init__.py")
    return [each for each in candidates if (PACKAGE / each).is_file()]


def _circles(uses: dict[str, set[str]]) -> Iterator[tuple[str, ...]]:
    """Files that import each other, directly or through others."""
    reached = {place: _reached(place, uses) for place in uses}
    seen: set[str] = set()
    for place in sorted(uses):
        if place not in seen and place in reached[place]:
            circle = {place, *(other for other in reached[place] if place in reached.get(other, ()))}
            seen |= circle
            yield tuple(sorted(circle))


def _reached(place: str, uses: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = list(uses[place])
    while waiting:
        other = waiting.pop()
        if other not in found:
            found.add(other)
            waiting += uses.get(other, ())
    return found


def main() -> None:
    """Prints the measures."""
    measured, counted = way(), size()
    print(f"way of one upserted row: {measured.files} files, {measured.functions} functions")
    print(f"  {measured.calls} calls, {measured.crossings} of them from file to file")
    print(f"lines: {counted.lines} (of them code: {counted.code})")
    for title, found in (
        (f"files over {MOST_OF_A_FILE} lines", counted.long_files),
        (f"functions over {MOST_LINES} lines", counted.long_functions),
        (f"functions with more than {MOST_PARAMETERS} parameters", counted.many_parameters),
        (f"dataclasses with more than {MOST_FIELDS} fields", counted.wide_records),
        ("circles", tuple(" ".join(circle) for circle in counted.circles)),
        ("names of files that occur twice", counted.doubled_names),
    ):
        print(f"{title}: {len(found)}")
        for each in found:
            print(f"  {each}")


if __name__ == "__main__":
    main()
