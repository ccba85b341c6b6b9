"""Random requests with random account SAS: what happens is what the SAS allows, however the request is spelt.

Nothing here knows the operations: only what was changed on disk, and what the answer gave away.
"""

from __future__ import annotations

import http.client
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from running_service import Answer
from storage_requests import Served, content_below, served
from tests.rounds import rounds

CHOSEN = os.environ.get("FUZZ_EXAMPLES", "")
NAME, CONTENT = "n-secret", b"c-secret"  # of the file t/n-secret, which requests name as %2A%2A
BLOCKS = b"<BlockList><Latest>MQ==</Latest></BlockList>"
BATCH = (
    b"--b\r\nContent-Type: application/http\r\n\r\nDELETE /sales/shop/Files/LandingZone/t/%6E-secret HTTP/1.1\r\n\r\n"
    b"\r\n--b--"
)


@dataclass(frozen=True)
class Sent:
    method: str
    path: str
    query: tuple[tuple[str, str], ...]
    headers: tuple[tuple[str, str], ...]
    body: bytes
    kinds: str
    letters: str


SECRET, NEW, FOLDER, EMPTY = "t/%6E-secret", "t/new", "t", "t/empty"
ZONE = "/Files/LandingZone/"
SHOPS = ("/sales/shop", "/SALES/Shop.MirroredDatabase", "/sales//shop", "/sales%2Fshop", "/{id}")
ACTS: tuple[tuple[str, str, tuple[tuple[str, str], ...], dict[str, str], bytes], ...] = (
    ("GET", SECRET, (), {}, b""), ("HEAD", SECRET, (), {}, b""), ("GET", SECRET, (("comp", "blocklist"),), {}, b""),
    ("GET", "", (("resource", "filesystem"), ("recursive", "true")), {}, b""),
    ("GET", FOLDER, (("resource", "filesystem"),), {}, b""), ("HEAD", FOLDER, (("resource", "filesystem"),), {}, b""),
    ("GET", "", (("restype", "container"), ("comp", "list")), {}, b""), ("GET", "/", (("comp", "list"),), {}, b""),
    ("GET", "/", (("resource", "account"),), {}, b""), ("GET", SECRET, (("restype", "account"),), {}, b""),
    ("POST", "", (("restype", "container"), ("comp", "batch")), {"Content-Type": "multipart/mixed; boundary=b"}, BATCH),
    ("PUT", NEW, (("resource", "file"),), {}, b""), ("PUT", SECRET, (("resource", "file"),), {}, b""),
    ("PUT", NEW, (("resource", "directory"),), {}, b""), ("PUT", EMPTY, (("resource", "directory"),), {}, b""),
    ("PATCH", SECRET, (("action", "append"), ("position", "8"), ("flush", "true")), {}, b"x"),
    ("PATCH", SECRET, (("action", "append"), ("position", "8")), {}, b"x"),
    ("PATCH", NEW, (("action", "append"), ("position", "0"), ("flush", "true")), {}, b"x"),
    ("PATCH", NEW, (("action", "flush"), ("position", "0")), {}, b""),
    ("PATCH", SECRET, (("action", "flush"), ("position", "9")), {}, b""),
    ("DELETE", SECRET, (), {}, b""), ("DELETE", EMPTY, (), {}, b""),
    ("DELETE", FOLDER, (("recursive", "true"),), {}, b""),
    ("PUT", NEW, (), {"x-ms-rename-source": "/sales/shop/Files/LandingZone/t/%6E-secret"}, b""),
    ("PUT", SECRET, (), {"x-ms-rename-source": "/sales/shop/Files/LandingZone/t/file"}, b""),
    ("PUT", "t/empty", (), {"x-ms-rename-source": "/sales/shop/Files/LandingZone/t/folder?sp=d"}, b""),
    ("PUT", NEW, (), {"x-ms-copy-source": "/sales/shop/Files/LandingZone/t/%6E-secret"}, b""),
    ("PUT", "t/file", (), {"x-ms-copy-source": "https://h/sales/shop/Files/LandingZone/t/%6E-secret?sp=r"}, b""),
    ("PUT", NEW, (), {"x-ms-blob-type": "BlockBlob"}, b"x"), ("PUT", SECRET, (), {"x-ms-blob-type": "BlockBlob"}, b"x"),
    ("PUT", NEW, (("comp", "block"), ("blockid", "MQ==")), {}, b"x"),
    ("PUT", NEW, (("comp", "blocklist"),), {}, BLOCKS),
    ("PUT", SECRET, (("comp", "blocklist"),), {}, b"<BlockList/>"), ("PUT", SECRET, (("comp", "metadata"),), {}, b""),
)  # fmt: skip
NOISE = (
    ("restype", "container"), ("restype", ""), ("restype", "account"), ("restype", "service"),
    ("resource", "filesystem"),
    ("resource", "account"), ("resource", "file"), ("resource", ""), ("comp", "list"), ("comp", "batch"), ("comp", ""),
    ("comp", "block"), ("action", "append"), ("action", ""), ("recursive", "true"), ("directory", "shop/Files"),
    ("prefix", "shop/"), ("snapshot", ""), ("sp", "racwdl"), ("srt", "sco"), ("timeout", "9"), ("flush", "true"),
    ("delimiter", "/"), ("mode", "legacy"), ("sr", "b"), ("", ""),
)  # fmt: skip
FIELDS = (
    ("Accept", "application/xml"), ("Accept", "application/json"), ("X-HTTP-Method-Override", "PATCH"),
    ("x-ms-version", "2021-08-06"), ("x-ms-meta-hdi_isfolder", "true"), ("If-None-Match", "*"), ("Range", "bytes=0-3"),
    ("x-ms-blob-type", "BlockBlob"), ("Host", "writer.dfs.localhost"), ("Host", "writer.blob.localhost"),
    ("x-ms-rename-source", "/sales/shop/Files/LandingZone/t/file"),
    ("x-ms-copy-source", "/sales/shop/Files/LandingZone/t/%6E-secret"),
)  # fmt: skip


def few(choices: tuple[tuple[str, str], ...]) -> st.SearchStrategy[list[tuple[str, str]]]:
    one = st.lists(st.sampled_from(choices), max_size=1)
    return st.one_of(st.just([]), one, one, st.lists(st.sampled_from(choices), max_size=3))


@st.composite
def requests(draw: st.DrawFn) -> Sent:
    method, path, query, headers, body = draw(st.sampled_from(ACTS))
    if draw(st.integers(0, 9)) == 0:
        method = draw(st.sampled_from(("GET", "HEAD", "PUT", "PATCH", "POST", "DELETE")))
    if path != "/":
        path = (
            (draw(st.sampled_from(SHOPS)) + ZONE + path)
            if path
            else draw(st.sampled_from(("/sales", "/Sales/", "/{ws}")))
        )
    mixed = [*query, *draw(few(NOISE))]
    mixed = draw(st.permutations(mixed)) if draw(st.booleans()) else mixed
    spelt = [(draw(st.sampled_from((name, name.upper(), name.title()))), value) for name, value in mixed]
    fields = {**headers, **dict(draw(few(FIELDS)))}
    account = draw(st.sampled_from(("/writer", "/writer", "/writer/", "/%77riter", "/writer", "")))
    kinds = draw(st.sampled_from(("s", "c", "o", "sc", "so", "co", "sco")))
    letters = "".join(draw(st.sampled_from((letter, ""))) for letter in "rlwcad")
    return Sent(method, account + path, tuple(spelt), tuple(fields.items()), body, kinds, letters)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("root")) as made:
        yield made


def fuzz(service: Served, sent: Sent) -> None:
    prepare(service)
    before, staged = content_below(service.zone), content_below(service.staged)
    answer = ask(service, sent)
    if answer is None:
        return
    assert answer.status != 500, (sent, answer.body)
    for kind, letters in needed(answer, before, content_below(service.zone), staged, content_below(service.staged)):
        assert kind in sent.kinds and set(letters) & set(sent.letters), (kind, letters, answer.status, sent)


def needed(
    answer: Answer, before: dict[str, bytes | None], after: dict[str, bytes | None],
    staged: dict[str, bytes | None], staged_after: dict[str, bytes | None],
) -> Iterator[tuple[str, str]]:  # fmt: skip
    """The kind of resource, and the letters of which one is needed, for everything that was done."""
    if before.keys() - after.keys():
        yield "o", "d"
    if after.keys() - before.keys():
        yield "o", "cw"
    if any(after.get(path, content) != content for path, content in before.items()):
        yield "o", "w"
    if any("trash" not in path and staged.get(path, b"?") != content for path, content in staged_after.items()):
        yield "o", "acw"
    if sum(content == CONTENT for content in after.values()) > sum(content == CONTENT for content in before.values()):
        yield "o", "r"
    if CONTENT in answer.body or CONTENT[:4] == answer.body:
        yield "o", "r"
    if 200 <= answer.status < 300 and answer.headers.get("x-ms-resource-type"):
        yield "o", "r"
    if NAME.encode() in answer.body:
        yield "c", "l"
    if b'"name": "sales"' in answer.body or b"<Name>sales<" in answer.body:
        yield "s", "l"


def prepare(service: Served) -> None:
    folder = service.zone / "t"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "folder").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / NAME).write_bytes(CONTENT)
    (folder / "file").write_bytes(b"file")


def ask(service: Served, sent: Sent) -> Answer | None:
    sas = service.sas("writer", sent.kinds, sent.letters)
    query = "&".join([*(f"{name}={value}" for name, value in sent.query), sas])
    path = sent.path.replace("{id}", f"sales/{service.id}").replace("{ws}", service.workspace)
    headers = {name.replace("-", "_"): value for name, value in sent.headers}
    try:
        return service.send(sent.method, f"{path}?{query}", sent.body, **headers)
    except http.client.HTTPException:
        service.reconnect()
        return None


@settings(max_examples=int(CHOSEN or rounds(100, 300)), derandomize=not CHOSEN, deadline=None, database=None,
          suppress_health_check=list(HealthCheck))  # fmt: skip
@given(requests())
def test_what_happens_is_what_the_sas_allows(service: Served, sent: Sent) -> None:
    fuzz(service, sent)


@pytest.mark.full
@settings(max_examples=int(CHOSEN or 20_000), deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(requests())
def test_many_of_them(service: Served, sent: Sent) -> None:
    fuzz(service, sent)
