"""Shared Key and account SAS: what the vendor's libraries sign is accepted, and nothing else."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError
from azure.storage.blob import AccountSasPermissions, BlobServiceClient, ResourceTypes, generate_account_sas
from azure.storage.filedatalake import DataLakeServiceClient
from running_service import Running

from lakemirror.service.auth import account_sas, shared_key
from lakemirror.service.auth.principals import Issued

ZONE = "Files/LandingZone/orders"


def hour(shift: int = 1) -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=shift)


@pytest.fixture(scope="module")
def shop(running: Running, token: str) -> str:
    running.create(token, "shop")
    return "shop"


@pytest.fixture
def lake(running: Running, shop: str) -> Callable[..., Any]:
    """A client of the Data Lake library for an account and a credential."""

    def made(credential: Any, account: str = "writer") -> Any:
        service = DataLakeServiceClient(
            f"{running.url}/{account}", credential=credential, connection_verify=str(running.ca), retry_total=0
        )
        return service.get_file_system_client("sales").get_file_client(f"{shop}/{ZONE}/note.txt")

    return made


def sas(issued: Issued, letters: str = "rwdlac", **more: Any) -> str:
    settings: dict[str, Any] = {
        "resource_types": ResourceTypes(service=True, container=True, object=True), "expiry": hour(), **more,
    }  # fmt: skip
    return str(
        generate_account_sas(
            issued.principal.name, issued.principal.account_key,
            permission=AccountSasPermissions.from_string(letters), **settings,
        )
    )  # fmt: skip


def test_a_shared_key(lake: Callable[..., Any], running: Running, writer: Issued, reader: Issued) -> None:
    key = {"account_name": "writer", "account_key": writer.principal.account_key}
    file = lake(key)
    file.upload_data(b"by key", overwrite=True)
    assert file.download_file().readall() == b"by key"
    assert (running.root / "sales/shop" / ZONE / "note.txt").read_bytes() == b"by key"
    wrong = {"account_name": "writer", "account_key": reader.principal.account_key}
    with pytest.raises(ClientAuthenticationError) as caught:
        lake(wrong).upload_data(b"x", overwrite=True)
    assert caught.value.status_code == 403
    narrow = {"account_name": "reader", "account_key": reader.principal.account_key}
    assert lake(narrow, "reader").download_file().readall() == b"by key"
    with pytest.raises(HttpResponseError) as refused:
        lake(narrow, "reader").upload_data(b"x", overwrite=True)
    assert refused.value.status_code == 403


def test_an_account_sas(lake: Callable[..., Any], writer: Issued) -> None:
    lake(sas(writer)).upload_data(b"by sas", overwrite=True)
    assert lake(sas(writer, "r")).download_file().readall() == b"by sas"
    only_reading = sas(writer, "rl")
    with pytest.raises(HttpResponseError) as caught:
        lake(only_reading).upload_data(b"x", overwrite=True)
    assert caught.value.status_code == 403
    assert lake(sas(writer, ip="127.0.0.1")).download_file().readall() == b"by sas"
    assert lake(sas(writer, start=hour(-1))).download_file().readall() == b"by sas"


@pytest.mark.parametrize(
    "more",
    [
        {"expiry": hour(-1)},
        {"start": hour(1), "expiry": hour(2)},
        {"ip": "10.0.0.1"},
        {"ip": "10.0.0.1-10.0.0.9"},
        {"resource_types": ResourceTypes(service=True)},
        {"resource_types": ResourceTypes(container=True)},
    ],
)
def test_a_sas_that_does_not_fit(lake: Callable[..., Any], writer: Issued, more: dict[str, Any]) -> None:
    with pytest.raises(ClientAuthenticationError) as caught:
        lake(sas(writer, **more)).download_file()
    assert caught.value.status_code == 403


def test_a_changed_sas(running: Running, shop: str, writer: Issued) -> None:
    path = f"/writer/sales/{shop}/{ZONE}/note.txt"
    good = sas(writer, "r")
    assert running.send("HEAD", f"{path}?{good}").status in (200, 404)
    for bad in (good.replace("sp=r", "sp=rwdlac"), good[:-4] + "AAA%3D", good.replace("se=", "se=9"), "sig=x"):
        assert running.send("HEAD", f"{path}?{bad}").status == 403, bad
    assert running.send("HEAD", f"/reader/sales/{shop}/x?{good}").status == 403
    assert running.send("HEAD", f"/sales/{shop}/x?{good}").status == 403
    service_sas = good.replace("srt=sco", "sr=b")
    assert running.send("HEAD", f"{path}?{service_sas}").status == 403


def test_credentials_that_are_not_offered(running: Running, shop: str) -> None:
    for value, status, code in (
        ("SharedKeyLite writer:abc", 403, "AuthenticationFailed"),
        ("SharedKey writer:abc", 403, "AuthenticationFailed"),
        ("SharedKey nobody:abc", 403, "AuthenticationFailed"),
        ("SharedKey", 403, "AuthenticationFailed"),
        ("Bearer x", 401, "InvalidAuthenticationInfo"),
        ("", 401, "NoAuthenticationInformation"),
    ):
        answer = running.send("GET", f"/sales/{shop}/x", headers={"Authorization": value} if value else {})
        assert (answer.status, answer.headers["x-ms-error-code"]) == (status, code), value
        if status == 401:
            challenge = answer.headers["WWW-Authenticate"]
            assert challenge.startswith(f"Bearer authorization_uri={running.url}/")
            assert challenge.endswith("/oauth2/authorize resource_id=https://storage.azure.com")


def test_the_string_to_sign_and_its_date(writer: Issued) -> None:
    headers = {"x-ms-date": "Sun, 22 Nov 2026 03:00:00 GMT", "x-ms-version": "2020-10-02", "content-length": "0"}
    target = "/writer/sales/a%20b?comp=list&restype=container&prefix=x%2By"
    text = shared_key.string_to_sign("GET", target, headers, "writer")
    assert text == (
        "GET\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:Sun, 22 Nov 2026 03:00:00 GMT\nx-ms-version:2020-10-02\n"
        "/writer/writer/sales/a%20b\ncomp:list\nprefix:x+y\nrestype:container"
    )
    key = writer.principal.account_key
    signed = shared_key.signature(key, text)
    now = datetime.datetime(2026, 11, 22, 3, tzinfo=datetime.timezone.utc).timestamp()
    for shift, expected in ((0, True), (890, True), (-890, True), (901, False), (-901, False)):
        found = shared_key.is_signed(signed, key, "GET", target, headers.items(), "writer", now + shift)
        assert found is expected, shift
    assert not shared_key.is_signed(signed, key, "PUT", target, headers.items(), "writer", now)
    assert not shared_key.is_signed(signed, key, "GET", target, [], "writer", now)


def test_what_a_sas_grants() -> None:
    query = {"ss": "b", "srt": "o", "sp": "rq", "sv": "2020-10-02", "spr": "https"}
    grant = account_sas.Grant(frozenset("r"), frozenset("o"))
    for ends, secure, expected in (
        ("2100-01-01T00:00:00Z", True, grant), ("2100-01-01T00:00Z", True, grant), ("2100-01-01", True, grant),
        ("2100-01-01T00:00:00.0000000Z", True, grant), ("2100-01-01", False, None), ("soon", True, None),
        ("", True, None),
    ):  # fmt: skip
        asked = {**query, "se": ends}
        text = "\n".join(["acc", "rq", "b", "o", "", ends, "", "https", "2020-10-02", ""])
        asked["sig"] = shared_key.signature("c2VjcmV0", text)
        found = account_sas.grant_of(asked, "acc", "c2VjcmV0", secure=secure, remote="::1", now=time.time())
        assert found == expected, ends


def test_two_fields_of_a_sas_are_not_one() -> None:
    ends = "2100-01-01T00:00:00.0000000Z"
    query = {"ss": "b", "srt": "o", "sp": "r", "sv": "2021-08-06", "se": ends}
    for more, changed in (
        ({"spr": "https"}, {"spr": "https\n2021-08-06", "sv": ""}),
        ({"sip": "9.9.9.9"}, {"se": f"{ends}\n9.9.9.9", "sip": "", "spr": "2021-08-06", "sv": ""}),
    ):
        signed = {**query, **more}
        lines = [signed.get(name, "") for name in ("sp", "ss", "srt", "st", "se", "sip", "spr", "sv", "ses")]
        text = "\n".join(["acc", *lines, ""])
        for asked in (signed, {**signed, **changed}):
            asked = {**asked, "sig": shared_key.signature("c2VjcmV0", text)}
            assert account_sas.grant_of(asked, "acc", "c2VjcmV0", secure=False, remote="::1", now=time.time()) is None


def blobs(running: Running, credential: str) -> Any:
    """The container of the vendor's Blob library, with a SAS."""
    service = BlobServiceClient(
        f"{running.url}/writer", credential=credential, connection_verify=str(running.ca), retry_total=0
    )
    return service.get_container_client("sales")


def test_what_the_vendors_libraries_do_with_a_narrow_sas(
    running: Running, shop: str, writer: Issued, lake: Callable[..., Any]
) -> None:
    """Creates where nothing is, no more; renames with `d`; deletes in a batch with `srt=co`."""
    name = f"{shop}/{ZONE}/narrow.txt"
    blobs(running, sas(writer, "c")).upload_blob(name, b"one")
    for overwrite in (False, True):
        with pytest.raises(HttpResponseError):
            blobs(running, sas(writer, "c")).upload_blob(name, b"two", overwrite=overwrite)
    assert (running.root / "sales" / name).read_bytes() == b"one"
    file = lake(sas(writer, "rwdlac"))
    file.upload_data(b"moves", overwrite=True)
    for letters in ("w", "d", "c", "rwcal"):
        with pytest.raises(HttpResponseError) as refused:
            lake(sas(writer, letters)).rename_file(f"sales/{shop}/{ZONE}/moved.txt")
        assert refused.value.status_code == 403, letters
    lake(sas(writer, "dc")).rename_file(f"sales/{shop}/{ZONE}/moved.txt")
    names = [name, f"{shop}/{ZONE}/moved.txt"]
    container = ResourceTypes(container=True)
    answers = list(
        blobs(running, sas(writer, "d", resource_types=container)).delete_blobs(*names, raise_on_any_failure=False)
    )
    assert [answer.status_code for answer in answers] == [403, 403]
    answers = list(blobs(running, sas(writer, "d")).delete_blobs(*names))
    assert [answer.status_code for answer in answers] == [202, 202]
    with pytest.raises(HttpResponseError):
        list(blobs(running, sas(writer, "l", resource_types=ResourceTypes(object=True))).list_blobs())
    assert list(blobs(running, sas(writer, "l")).list_blobs(name_starts_with=f"{shop}/Files"))
