"""Who may do what on the storage plane: every operation, every letter of an account SAS, three principals.

The table below is written by hand; `docs/reference/storage-rights.md` is made of the rows that the service uses.
"""

from __future__ import annotations

import itertools
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from storage_requests import Served, content_below, served

from lakemirror.service.storage import blob, dfs
from lakemirror.service.storage_operations import OPERATIONS

LETTERS = "rlwcad"


@dataclass(frozen=True)
class Case:
    """A request, and what it takes. `{new}` is a path without anything, `{old}` a file with `abc`, `{folder}` a folder.

    `sp`: sets of letters, one of which is needed. `done`: its status where it is allowed.
    """

    operation: str
    role: str
    srt: str
    sp: str
    done: int
    request: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def allows(self, kinds: str, letters: str) -> bool:
        return set(self.srt) <= set(kinds) and any(set(each.strip("-")) <= set(letters) for each in self.sp.split())


DATABASE = "/sales/shop"
OVERRIDE = {"X-HTTP-Method-Override": "PATCH"}
BLOCK = {"x-ms-blob-type": "BlockBlob"}
LIST = b"<BlockList><Latest>MQ==</Latest></BlockList>"
PARTS = b"--b\r\nContent-Type: application/http\r\n\r\nDELETE {old} HTTP/1.1\r\n\r\n\r\n--b--"
BATCH = {"Content-Type": "multipart/mixed; boundary=b"}


def renamed(path: str) -> dict[str, str]:
    return {"x-ms-rename-source": path}


def copied(path: str) -> dict[str, str]:
    return {"x-ms-copy-source": path}


# operation, role, srt, sp, status where it is allowed, request, headers, body
CASES = [Case(*row) for row in [  # type: ignore[misc]
    ("ListFilesystems", "any", "s", "l", 200, "GET /?resource=account"),
    ("ListPaths", "read", "c", "l", 200, "GET /sales?resource=filesystem&directory=shop"),
    ("ListPaths", "read", "c", "l", 200, "GET {folder}?resource=filesystem&recursive=true"),
    ("ListPaths", "read", "c", "l", 200, "GET {old}?RESOURCE=FileSystem"),
    ("GetFilesystemAccess", "read", "c", "r", 200, "HEAD /sales?action=getAccessControl"),
    ("GetFilesystem", "read", "c", "r", 200, "HEAD /sales?resource=filesystem"),
    ("GetFilesystem", "read", "c", "r", 200, "HEAD {old}?resource=filesystem"),
    ("CreateFilesystem", "contribute", "c", "c w", 409, "PUT /sales?resource=filesystem"),
    ("DeleteFilesystem", "nobody", "c", "d", 403, "DELETE /sales?resource=filesystem"),
    ("ReadPath", "read", "o", "r", 200, "GET {old}?recursive=false"),
    ("ReadPath", "read", "o", "r", 200, "HEAD {old}?action=getStatus"),
    ("ReadPath", "read", "o", "r", 200, "HEAD {folder}?action=getAccessControl"),
    ("RenamePath", "contribute", "o", "dc dw", 201, "PUT {new}", renamed("{old}")),
    ("RenamePath", "contribute", "o", "dw", 201, "PUT {old}", renamed("{other}")),
    ("RenamePath", "contribute", "o", "dc dw", 201, "PUT {new}", renamed("{folder}?sp=racwdl")),
    ("CreateDirectory", "contribute", "o", "c w", 201, "PUT {new}?resource=directory"),
    ("CreateDirectory", "contribute", "o", "c w", 201, "PUT {folder}?resource=directory"),
    ("CreateFile", "contribute", "o", "c w", 201, "PUT {new}?resource=file"),
    ("CreateFile", "contribute", "o", "w", 201, "PUT {old}?resource=file"),
    ("AppendAndFlush", "contribute", "o", "w", 202, "PATCH {old}?action=append&position=3&flush=true", {}, b"x"),
    ("Append", "contribute", "o", "a w", 202, "PATCH {old}?action=append&position=3", {}, b"x"),
    ("Append", "contribute", "o", "a w", 202, "PUT {old}?action=append&position=3", OVERRIDE, b"x"),
    ("Flush", "contribute", "o", "w", 200, "PATCH {old}?action=flush&position=3"),
    ("SetProperties", "contribute", "o", "w", 200, "PATCH {old}?action=setProperties"),
    ("NotOffered", "read", "o", "-", 501, "PATCH {old}?action=setAccessControl"),
    ("DeletePath", "contribute", "o", "d", 200, "DELETE {old}?recursive=true"),
    ("DeletePath", "contribute", "o", "d", 200, "DELETE {folder}?recursive=true"),
    ("GetAccount", "any", "s", "r", 200, "GET /?restype=account&comp=properties"),
    ("GetAccount", "any", "s", "r", 200, "GET {old}?restype=account&comp=properties"),
    ("ListContainers", "any", "s", "l", 200, "GET /?comp=list"),
    ("ListBlobs", "read", "c", "l", 200, "GET /sales?restype=container&comp=list"),
    ("ListBlobs", "read", "c", "l", 200, "GET {old}?RESTYPE=Container&comp=List&prefix=shop/"),
    ("Batch", "contribute", "co", "d", 202, "POST /sales?restype=container&comp=batch", BATCH, PARTS),
    ("GetContainer", "read", "c", "r", 200, "GET /sales?restype=container"),
    ("GetContainer", "read", "c", "r", 200, "HEAD {old}?restype=container"),
    ("CreateContainer", "contribute", "c", "c w", 409, "PUT /sales?restype=container"),
    ("DeleteContainer", "nobody", "c", "d", 403, "DELETE /sales?restype=container"),
    ("GetBlocks", "read", "o", "r", 200, "GET {old}?comp=blocklist"),
    ("ReadBlob", "read", "o", "r", 200, "GET {old}", {"Accept": "application/xml"}),
    ("ReadBlob", "read", "o", "r", 200, "HEAD {old}?comp=metadata"),
    ("DeleteBlob", "contribute", "o", "d", 202, "DELETE {old}", {"Accept": "application/xml"}),
    ("PutBlock", "contribute", "o", "c w", 201, "PUT {new}?comp=block&blockid=MQ==", {}, b"x"),
    ("PutBlock", "contribute", "o", "w", 201, "PUT {old}?comp=block&blockid=MQ==", {}, b"x"),
    ("PutBlock", "contribute", "o", "w", 201, "PUT {blocks}?comp=block&blockid=MQ==", {}, b"x"),
    ("PutBlockList", "contribute", "o", "c w", 201, "PUT {blocks}?comp=blocklist", {}, LIST),
    ("PutBlockList", "contribute", "o", "w", 201, "PUT {old}?comp=blocklist", {}, b"<BlockList/>"),
    ("SetMetadata", "contribute", "o", "w", 200, "PUT {old}?comp=metadata"),
    ("CopyBlob", "contribute", "o", "rc rw", 202, "PUT {new}", copied("{old}")),
    ("CopyBlob", "contribute", "o", "rw", 202, "PUT {other}", copied("http://localhost{old}?sp=racwdl&srt=sco")),
    ("PutBlob", "contribute", "o", "c w", 201, "PUT {new}", BLOCK, b"x"),
    ("PutBlob", "contribute", "o", "w", 201, "PUT {old}", BLOCK, b"x"),
    ("PutBlob", "contribute", "o", "c w", 201, "PUT {new}", {**BLOCK, "x-ms-meta-hdi_isfolder": "true"}),
    ("NotOffered", "read", "o", "-", 501, "PUT {old}?comp=lease"),
    ("NotOffered", "read", "c", "-", 501, "PUT /sales?restype=container&comp=lease"),
    ("NotOffered", "any", "s", "-", 501, "GET /?comp=blobs"),
]]  # fmt: skip

NUMBERS = itertools.count()
ROLES = {"writer": ("any", "read", "contribute"), "reader": ("any", "read"), "other": ("any",)}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("root")) as made:
        yield made


def test_every_operation_is_in_the_table_and_has_one_function() -> None:
    rows = [(row.dialect, row.name) for row in OPERATIONS]
    assert {name for _, name in rows} | {"NotOffered"} == {case.operation for case in CASES}
    assert {name for dialect, name in rows if dialect == "dfs"} == set(dfs.ANSWERS)
    assert {name for dialect, name in rows if dialect == "blob"} | {"NotOffered"} == set(blob.ANSWERS)
    assert len(rows) == len(set(rows))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.request)
def test_what_each_letter_allows(service: Served, case: Case) -> None:
    for letters in {*LETTERS, *(each.strip("-") for each in case.sp.split()), LETTERS}:
        check(service, case, "writer", case.srt, letters)
    for kinds in ("s", "c", "o", "sco"):
        check(service, case, "writer", kinds, LETTERS)
    for name in ("reader", "other"):
        check(service, case, name, "sco", LETTERS)


@pytest.mark.full
@pytest.mark.parametrize("name", ROLES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.request)
def test_every_set_of_letters(service: Served, case: Case, name: str) -> None:
    every_kind = subsets("sco")[1:] if name == "writer" else ["sco"]
    for kinds, letters in itertools.product(every_kind, subsets(LETTERS)):
        check(service, case, name, kinds, letters)


def check(service: Served, case: Case, name: str, kinds: str, letters: str) -> None:
    """Sends the request once; it is done, or refused and nothing has changed."""
    paths = made_paths(service, with_block="{blocks}" in case.request)
    before = content_below(service.zone)
    method, _, target = case.request.format(**paths).partition(" ")
    headers = {key.replace("-", "_"): value.format(**paths) for key, value in case.headers.items()}
    sas = service.sas(name, kinds, letters)
    target = f"/{name}{target}{'&' if '?' in target else '?'}{sas}"
    answer = service.send(method, target, case.body.replace(b"{old}", paths["old"].encode()), **headers)
    status = answer.status
    if case.operation == "Batch" and status == 202:
        status = int(answer.body.split(b"HTTP/1.1 ")[1][:3])
    allowed = case.role in ROLES[name] and case.allows(kinds, letters)
    assert status == (case.done if allowed else 403), (case.request, name, kinds, letters, answer.body)
    if not allowed:
        assert content_below(service.zone) == before
    if name == "other":
        assert b"sales" not in answer.body and b"shop" not in answer.body


def made_paths(service: Served, with_block: bool) -> dict[str, str]:
    """New addresses: see `Case`. `{other}`: another file. `{blocks}`: a path without anything but a block."""
    for old in service.zone.iterdir():
        shutil.rmtree(old)
    folder = service.zone / f"f{next(NUMBERS)}"
    (folder / "folder").mkdir(parents=True)
    for name in ("old", "other", "folder/inner"):
        (folder / name).write_bytes(b"abc")
    base = f"{DATABASE}/Files/LandingZone/{folder.name}"
    paths = {name: f"{base}/{name}" for name in ("new", "old", "other", "folder", "blocks")}
    if with_block:
        target = f"/writer{paths['blocks']}?comp=block&blockid=MQ==&{service.sas('writer', 'o', 'w')}"
        assert service.send("PUT", target, b"block").status == 201
    return paths


def subsets(letters: str) -> list[str]:
    every = (itertools.combinations(letters, size) for size in range(len(letters) + 1))
    return ["".join(each) for each in itertools.chain(*every)]


def test_of_racing_creators_one_creates(service: Served) -> None:
    """Whether something is there is decided in the same step as the act."""
    path = made_paths(service, with_block=False)["new"]
    target, statuses = f"/writer{path}?{service.sas('writer', 'o', 'c')}", []

    def create(body: bytes) -> None:
        statuses.append(service.running.send("PUT", target, body, headers=BLOCK).status)

    racers = [threading.Thread(target=create, args=(b"%d" % each,)) for each in range(12)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert sorted(statuses) == [201] + 11 * [403]


def test_a_parameter_that_comes_twice_is_refused(service: Served) -> None:
    path = made_paths(service, with_block=False)["old"]
    full = service.sas("writer", "sco", LETTERS)
    for query in (
        f"{full}&sp=r", f"{full}&SP=r", f"sig=x&{full}", f"restype=&restype=container&{full}", f"a=1&%61=2&{full}",
    ):  # fmt: skip
        answer = service.send("GET", f"/writer{path}?{query}")
        assert (answer.status, answer.headers["x-ms-error-code"]) == (400, "InvalidQueryParameterValue"), query
    token = {"Authorization": f"Bearer {service.running.token(service.principals['writer'])}"}
    answer = service.send("GET", f"{path}?timeout=1&Timeout=2", None, **token)
    assert (answer.status, answer.headers["x-ms-error-code"]) == (400, "InvalidQueryParameterValue")
    answer = service.send("GET", "/v1/workspaces/sales/items?type=Report&TYPE=MirroredDatabase", None, **token)
    assert (answer.status, answer.json["errorCode"]) == (400, "InvalidQueryParameterValue")
    assert service.send("GET", "/v1/workspaces/sales/items?TYPE=Report", None, **token).json == {"value": []}


def test_a_sas_in_other_spellings(service: Served) -> None:
    path = made_paths(service, with_block=False)["old"]
    sas = service.sas("writer", "o", "r")
    upper = "&".join(f"{name.upper()}={value}" for name, _, value in (each.partition("=") for each in sas.split("&")))
    for target in (f"/writer{path}?{upper}", f"/%77riter{path}?{sas}", f"//writer/{path}?{sas}",
                   f"/writer%2Fsales/shop{path.removeprefix('/sales/shop')}?{sas}"):  # fmt: skip
        assert service.send("GET", target).body == b"abc", target
    assert service.send("GET", f"{path}?{sas}", Host="writer.dfs.localhost").body == b"abc"
    assert service.send("GET", f"/reader{path}?{sas}", Host="writer.dfs.localhost").body == b"abc"
    assert service.send("GET", f"/writer{path}?{sas[:-3]}%C3%BC").status == 403
    assert service.send("GET", f"/reader{path}?{sas}").status == 403


def test_parts_of_a_batch_are_deletions_of_blobs_each_by_itself(service: Served) -> None:
    """A part's own credentials add nothing to those of the batch."""
    paths = made_paths(service, with_block=False)
    old, full = paths["old"], service.sas("writer", "sco", LETTERS)
    token = f"Authorization: Bearer {service.running.token(service.principals['writer'])}\r\n"
    for line, fields, kinds, expected in (
        (f"DELETE {old}?{full} HTTP/1.1\r\n", token, "c", 403),
        (f"DELETE {old}?restype=container HTTP/1.1\r\n", "", "sco", 400),
        (f"DELETE {old}?x=1&X=2 HTTP/1.1\r\n", "", "sco", 400),
        (f"DELETE {old}?comp=lease HTTP/1.1\r\n", "", "sco", 400),
        (f"DELETE {old}?snapshot=1 HTTP/1.1\r\n", "", "sco", 400),
        (f"GET {old} HTTP/1.1\r\n", "", "sco", 400),
        (f"DELETE {old} HTTP/1.1\r\n", "X-HTTP-Method-Override: PUT\r\n", "sco", 400),
        (f"DELETE {old.replace('sales', 'depot', 1)} HTTP/1.1\r\n", "", "sco", 400),
        (f"DELETE {old} HTTP/1.1\r\n", "", "co", 202),
    ):
        body = f"--b\r\nContent-Type: application/http\r\n\r\n{line}{fields}\r\n\r\n--b--".encode()
        target = f"/writer/sales?restype=container&comp=batch&{service.sas('writer', kinds, 'd')}"
        answer = service.send("POST", target, body, Content_Type=BATCH["Content-Type"])
        assert answer.status == 202, answer.body
        assert int(answer.body.split(b"HTTP/1.1 ")[1][:3]) == expected, line
        assert (service.zone / old.removeprefix("/sales/shop/Files/LandingZone/")).exists() is (expected != 202)
