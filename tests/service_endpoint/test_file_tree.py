"""One file tree behind both dialects: a model of it, the dialect as a parameter, random requests (service.md 5 and 6).

After each request the status and the code are the model's, and so is what both dialects list and what is on the disk:
the engine sees what is published and nothing else.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pytest
from endpoint_double import EndpointServer
from tests.rounds import rounds
from wire import ZONE, Answer, Wire

NAMES = ("a", "b", "ü c", "a/b", "a/d", "b/a", "a/b/e", "a-b", "b/e&f/g")
INNER = "sales/Files/LandingZone"
Outcome = tuple[int, str]


@dataclass(frozen=True)
class Dialect:
    """How a dialect says what both mean: codes, and the status of a write and of a delete."""

    missing: str
    exists: str
    filled: str
    deleted: int
    accept: str


DFS = Dialect("PathNotFound", "PathAlreadyExists", "DirectoryNotEmpty", 200, "application/json")
BLOB = Dialect("BlobNotFound", "BlobAlreadyExists", "DirectoryIsNotEmpty", 202, "application/xml")


def parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


@dataclass
class FileTree:
    """What clients see, and what is published. `created`: files that clients see empty, and the engine not yet."""

    published: dict[str, bytes] = field(default_factory=dict)
    created: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=set)

    def kind(self, path: str) -> str:
        return "folder" if path in self.folders else "file" if path in self.published.keys() | self.created else ""

    def below(self, path: str) -> set[str]:
        every = self.published.keys() | self.created | self.folders
        return {each for each in every if each.startswith(f"{path}/")}

    def seen(self) -> dict[str, int | None]:
        """Every name with its length, None for folders."""
        files = {path: len(data) for path, data in self.published.items()} | dict.fromkeys(self.created, 0)
        return {**files, **dict.fromkeys(self.folders, None)}

    def refused(self, path: str, dialect: Dialect, only_new: bool) -> Outcome | None:
        """Why no file can come to a path."""
        if any(self.kind(parent) == "file" for parent in parents(path)):
            return 409, "PathConflict"
        if self.kind(path) == "folder" or (only_new and self.kind(path)):
            return 409, dialect.exists
        return None

    def write(self, path: str, dialect: Dialect, data: bytes | None, only_new: bool) -> Outcome:
        """A file with this content; None: created, and not published."""
        if refused := self.refused(path, dialect, only_new):
            return refused
        self.folders |= set(parents(path))
        if data is None:
            self.created.add(path)
        else:
            self.published[path] = data
            self.created.discard(path)
        return 201, ""

    def make_folder(self, path: str, dialect: Dialect) -> Outcome:
        if any(self.kind(parent) == "file" for parent in parents(path)):
            return 409, "PathConflict"
        if self.kind(path) == "file":
            return 409, dialect.exists
        self.folders |= {path, *parents(path)}
        return 201, ""

    def delete(self, path: str, dialect: Dialect, recursive: bool) -> Outcome:
        if not self.kind(path):
            return 404, dialect.missing
        if self.below(path) and not recursive:
            return 409, dialect.filled
        self._forget({path, *self.below(path)})
        return dialect.deleted, ""

    def move(self, source: str, target: str, only_new: bool) -> Outcome:
        kind, there, parent = self.kind(source), self.kind(target), target.rpartition("/")[0]
        if not kind:
            return 404, "SourcePathNotFound"
        if parent and self.kind(parent) != "folder":
            return 404, "RenameDestinationParentPathNotFound"
        if kind == "folder" and target.startswith(f"{source}/"):
            return 409, "InvalidRenameSourcePath"
        if only_new and there:
            return 409, DFS.exists
        if source == target:
            return 201, ""
        if there and there != kind:
            return 409, "InvalidSourceOrDestinationResourceType"
        if there == "folder" and self.below(target):
            return 409, DFS.filled
        moved = {each: target + each[len(source) :] for each in {source, *self.below(source)}}
        published = {moved[each]: data for each, data in self.published.items() if each in moved}
        created, folders = ({moved[each] for each in names & moved.keys()} for names in (self.created, self.folders))
        if source in self.created:  # what is not flushed has length 0: that is published
            published, created = {target: b""}, set()
        self._forget({*moved, target})
        self.published |= published
        self.created |= created
        self.folders |= folders
        return 201, ""

    def copy(self, source: str, target: str, only_new: bool) -> Outcome:
        refused = self.refused(target, BLOB, only_new)
        if self.kind(source) != "file" and (refused is None or refused[1] == "PathConflict"):
            return 404, "CannotVerifyCopySource"
        if refused:
            return refused
        data = b"" if source in self.created else self.published[source]
        self.write(target, BLOB, data, only_new=False)
        return 202, ""

    def _forget(self, names: set[str]) -> None:
        self.published = {path: data for path, data in self.published.items() if path not in names}
        self.created -= names
        self.folders -= names


class Walk:
    """Random requests to an endpoint and its model."""

    def __init__(self, endpoint: EndpointServer, wire: Wire, seed: int, dialects: tuple[Dialect, ...]) -> None:
        self.endpoint, self.wire, self.dice, self.dialects = endpoint, wire, random.Random(seed), dialects
        self.tree, self.done = FileTree(), list[str]()

    def step(self) -> None:
        dialect, path, other = self.dice.choice(self.dialects), *self.dice.choices(NAMES, k=2)
        if self.tree.created and self.dice.random() < 0.5:  # rare, and of most rules an exception
            path = self.dice.choice(sorted(self.tree.created))
        only_new = self.dice.random() < 0.3
        wish = {"If_None_Match": "*"} if only_new else {}
        match self.dice.choice(["write", "write", "begin", "folder", "delete", "move", "move", "read"]):
            case "write":
                data = self.dice.randbytes(self.dice.randint(0, 50))
                expected = self.tree.write(path, dialect, data, only_new)
                self.check("write", path, dialect, self.write(dialect, path, data, wish), expected)
            case "begin" if dialect is DFS:
                expected = self.tree.write(path, DFS, None, only_new)
                answer = self.ask(DFS, "PUT", f"{path}?resource=file", **wish)
                self.check("create", path, dialect, answer, expected)
                if expected[0] == 201:
                    assert self.ask(DFS, "PATCH", f"{path}?action=append&position=0", b"not yet").status == 202
            case "begin":  # blocks of no list
                assert self.ask(BLOB, "PUT", f"{path}?comp=block&blockid=MQ==", b"x").status in (201, 409)
            case "folder":
                expected = self.tree.make_folder(path, dialect)
                query, more = (
                    ("?resource=directory", {}) if dialect is DFS else ("", {"x_ms_meta_hdi__isfolder": "true"})
                )
                block = {} if dialect is DFS else {"x_ms_blob_type": "BlockBlob"}
                self.check(
                    "folder", path, dialect, self.ask(dialect, "PUT", path + query, b"", **more, **block), expected
                )
            case "delete":
                recursive = dialect is DFS and self.dice.random() < 0.5
                expected = self.tree.delete(path, dialect, recursive)
                answer = self.ask(dialect, "DELETE", path + ("?recursive=true" if recursive else ""))
                self.check("delete", path, dialect, answer, expected)
            case "move" if dialect is DFS:
                expected = self.tree.move(path, other, only_new)
                answer = self.ask(DFS, "PUT", other, x_ms_rename_source=quote(f"{ZONE}/{path}"), **wish)
                self.check(f"move {path} to", other, dialect, answer, expected)
            case "move":
                expected = self.tree.copy(path, other, only_new)
                answer = self.ask(BLOB, "PUT", other, x_ms_copy_source=quote(f"{ZONE}/{path}"), **wish)
                self.check(f"copy {path} to", other, dialect, answer, expected)
            case "read":
                self.read(dialect, path)

    def write(self, dialect: Dialect, path: str, data: bytes, wish: dict[str, str]) -> Answer:
        """Writes a file as one of the ways of the dialect does. The first answer that is an error, or the last one."""
        if dialect is BLOB and self.dice.random() < 0.5:
            return self.ask(BLOB, "PUT", path, data, x_ms_blob_type="BlockBlob", **wish)
        if dialect is BLOB:
            requests: list[tuple[str, str, bytes, dict[str, str]]] = [
                ("PUT", "?comp=block&blockid=Mg==", data[5:], {}), ("PUT", "?comp=block&blockid=MQ==", data[:5], {}),
                ("PUT", "?comp=blocklist", b"<BlockList><Latest>MQ==</Latest><Latest>Mg==</Latest></BlockList>", wish),
            ]  # fmt: skip
        else:
            requests = [
                ("PUT", "?resource=file", b"", wish), ("PATCH", "?action=append&position=0", data[:5], {}),
                ("PATCH", f"?action=append&position={len(data[:5])}", data[5:], {}),
                ("PATCH", f"?action=flush&position={len(data)}", b"", {}),
            ]  # fmt: skip
        answers = []
        for method, query, body, more in requests:
            answers.append(self.ask(dialect, method, path + query, body, **more))
            if answers[-1].status >= 400:
                return answers[-1]
        return answers[0]

    def read(self, dialect: Dialect, path: str) -> None:
        kind, head = self.tree.kind(path), self.ask(dialect, "HEAD", path)
        if not kind:
            assert (head.status, head.code) == (404, dialect.missing), self.done
            return
        assert head.headers["x-ms-resource-type"] == {"folder": "directory"}.get(kind, kind), self.done
        if kind == "file":
            data = b"" if path in self.tree.created else self.tree.published[path]
            assert self.ask(dialect, "GET", path).body == data, self.done

    def check(self, act: str, path: str, dialect: Dialect, answer: Answer, expected: Outcome) -> None:
        self.done.append(f"{'DFS' if dialect is DFS else 'Blob'} {act} {path}")
        assert (answer.status, answer.code) == expected, self.done
        zone = self.endpoint.landing_zone
        files = {p.relative_to(zone).as_posix(): p.read_bytes() for p in zone.rglob("*") if p.is_file()}
        assert files == self.tree.published, self.done
        assert {p.relative_to(zone).as_posix() for p in zone.rglob("*") if p.is_dir()} == self.tree.folders, self.done
        seen = self.tree.seen()
        assert list(self.listed_by_dfs().items()) == sorted(seen.items(), key=lambda each: each[0].encode()), self.done
        assert self.listed_by_blob() == seen, self.done

    def listed_by_dfs(self) -> dict[str, int | None]:
        """Page by page."""
        found: dict[str, int | None] = {}
        most, token = self.dice.randint(1, 5), ""
        while True:
            target = f"/ws?resource=filesystem&recursive=true&directory={INNER}&maxResults={most}&continuation={token}"
            answer = self.wire("GET", target)
            page = answer.json["paths"]
            assert len(page) <= most
            found |= {
                each["name"].removeprefix(f"{INNER}/"): None if "isDirectory" in each else int(each["contentLength"])
                for each in page
            }
            if not (token := answer.headers.get("x-ms-continuation", "")):
                return found

    def listed_by_blob(self) -> dict[str, int | None]:
        body = self.wire("GET", f"/ws?restype=container&comp=list&prefix={quote(INNER)}/", Accept=BLOB.accept).body
        found: dict[str, int | None] = {}
        for entry in body.decode().split("<Blob>")[1:]:
            name = re.search("<Name>(.*?)</Name>", entry), re.search("<Content-Length>(.*?)</Content-Length>", entry)
            assert name[0] is not None and name[1] is not None
            path = name[0][1].replace("&amp;", "&").removeprefix(f"{INNER}/")
            found[path] = None if "<ResourceType>directory<" in entry else int(name[1][1])
        return found

    def ask(self, dialect: Dialect, method: str, path: str, body: bytes | None = None, **headers: Any) -> Answer:
        return self.wire(
            method, f"{ZONE}/{path.replace(' ', '%20').replace('e&f', 'e%26f')}", body, Accept=dialect.accept, **headers
        )


@pytest.mark.parametrize("dialects", [(DFS,), (BLOB,), (DFS, BLOB)], ids=["DFS", "Blob", "both"])
@pytest.mark.parametrize("seed", range(rounds(2, 20)))
def test_random_requests(endpoint: EndpointServer, wire: Wire, dialects: tuple[Dialect, ...], seed: int) -> None:
    walk = Walk(endpoint, wire, seed, dialects)
    for _ in range(rounds(50, 150)):
        walk.step()
