"""The authority over the wire: tokens, discovery, and what is refused."""

from __future__ import annotations

import base64
import json
import ssl
import time
from pathlib import Path
from urllib.parse import urlencode

import jwt
import pytest
from azure.identity import ClientSecretCredential
from cryptography.hazmat.primitives.asymmetric import rsa
from running_service import Answer, Running, principals_of, until

from lakemirror.service.auth import tokens as tokens_module
from lakemirror.service.auth.failure_limit import FailureLimit
from lakemirror.service.auth.principals import Issued, Principals
from lakemirror.service.auth.tokens import TokenRefused, Tokens

LIST = "/v1/workspaces"


def form(service: Running, path: str, fields: dict[str, str], **headers: str) -> Answer:
    sent = {"Content-Type": "application/x-www-form-urlencoded", **headers}
    return service.send("POST", path, urlencode(fields).encode(), headers=sent)


def test_azure_identity_gets_a_token(running: Running, writer: Issued, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(running.ca))
    for tenant in ("adfs", writer.tenant_id):
        credential = ClientSecretCredential(
            tenant, writer.principal.client_id, writer.client_secret, authority=running.url,
            disable_instance_discovery=True,
        )  # fmt: skip
        found = credential.get_token("https://api.fabric.microsoft.com/.default")
        assert 3500 < found.expires_on - time.time() <= 3600
        assert running.send("GET", LIST, token=found.token).status == 200


@pytest.mark.parametrize("tenant", ["adfs", "common", "organizations", "ADFS", "own"])
def test_a_token_by_either_version(running: Running, writer: Issued, tenant: str) -> None:
    tenant = writer.tenant_id if tenant == "own" else tenant
    fields = {
        "grant_type": "client_credentials", "client_id": "writer", "client_secret": writer.client_secret,
    }  # fmt: skip
    second = form(running, f"/{tenant}/oauth2/v2.0/token", {**fields, "scope": "https://storage.azure.com/.default"})
    first = form(running, f"/{tenant}/oauth2/token", {**fields, "resource": "https://storage.azure.com"})
    for answer in (first, second):
        assert answer.status == 200
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.json["token_type"] == "Bearer"
        assert answer.json["expires_in"] == answer.json["ext_expires_in"] == 3600
        assert isinstance(answer.json["expires_on"], str)
        claims = jwt.decode(answer.json["access_token"], options={"verify_signature": False})
        assert claims["aud"] == "https://storage.azure.com"
        assert claims["tid"] == writer.tenant_id
        assert claims["appid"] == claims["azp"] == claims["oid"] == claims["sub"] == writer.principal.client_id
        assert claims["exp"] - claims["iat"] == 3600
        assert claims["iss"].startswith(running.url)


def test_id_and_secret_by_basic(running: Running, writer: Issued) -> None:
    value = base64.b64encode(f"{writer.principal.client_id}:{writer.client_secret}".encode()).decode()
    fields = {"grant_type": "client_credentials", "scope": "x/.default"}
    answer = form(running, "/adfs/oauth2/v2.0/token", fields, Authorization=f"Basic {value}")
    assert answer.status == 200


def test_the_token_is_verified_by_the_published_key(running: Running, token: str) -> None:
    for tenant in ("adfs", jwt.decode(token, options={"verify_signature": False})["tid"]):
        for version in ("", "v2.0/"):
            found = running.send("GET", f"/{tenant}/{version}.well-known/openid-configuration").json
            assert found["issuer"].startswith(running.url)
            assert found["token_endpoint"] == f"{running.url}/{tenant}/oauth2/v2.0/token"
            assert found["authorization_endpoint"].startswith(running.url)
    context = ssl.create_default_context(cafile=str(running.ca))
    keys = jwt.PyJWKClient(found["jwks_uri"], ssl_context=context)
    key = keys.get_signing_key_from_jwt(token)
    assert jwt.decode(token, key.key, algorithms=["RS256"], audience="https://storage.azure.com")["ver"] == "2.0"


def test_instance_discovery(running: Running) -> None:
    path = "/common/discovery/instance?api-version=1.1&authorization_endpoint=https://x/common/oauth2/v2.0/authorize"
    found = running.send("GET", path).json
    assert found["tenant_discovery_endpoint"] == f"{running.url}/common/v2.0/.well-known/openid-configuration"
    assert found["metadata"][0]["aliases"] == [running.url.removeprefix("https://")]


@pytest.mark.parametrize(
    ("change", "status", "error"),
    [
        ({"client_secret": "wrong"}, 401, "invalid_client"),
        ({"client_id": "nobody"}, 401, "invalid_client"),
        ({"client_id": "", "client_secret": ""}, 401, "invalid_client"),
        ({"grant_type": "password"}, 400, "unsupported_grant_type"),
        ({"grant_type": ""}, 400, "unsupported_grant_type"),
        ({"scope": ""}, 400, "invalid_request"),
    ],
)
def test_refused_token_requests(
    running: Running, writer: Issued, change: dict[str, str], status: int, error: str
) -> None:
    answer = running.ask_token(writer, **change)
    assert (answer.status, answer.json["error"]) == (status, error)
    assert set(answer.json) == {"error", "error_description", "error_codes", "correlation_id"}
    assert writer.client_secret not in answer.body.decode()


def test_wrong_secret_and_unknown_client_read_alike(running: Running, writer: Issued) -> None:
    wrong = running.ask_token(writer, client_secret="x").json
    unknown = running.ask_token(writer, client_id="00000000-0000-0000-0000-000000000000").json
    assert wrong["error_description"] == unknown["error_description"]


def test_other_refusals(running: Running, writer: Issued) -> None:
    other = running.ask_token(writer, tenant="11111111-1111-1111-1111-111111111111")
    assert (other.status, other.json["error"]) == (400, "invalid_request")
    assert running.send("GET", "/adfs/oauth2/v2.0/token").status == 405
    assert form(running, "/adfs/oauth2/v2.0/token", {"x": "y" * 70_000}).status == 413
    assert running.send("POST", "/adfs/oauth2/v2.0/token", b"\xff\xfe=%").status == 400
    assert running.send("GET", "/adfs/oauth2/v2.0/authorize").status == 404


@pytest.mark.parametrize("field", ["client_id", "client_secret", "grant_type", "scope", "x"])
def test_a_field_that_comes_twice_is_refused(running: Running, writer: Issued, field: str) -> None:
    """Neither of the two counts, not even where they are equal."""
    fields = {
        "grant_type": "client_credentials", "client_id": "writer", "client_secret": writer.client_secret,
        "scope": "a/.default", "x": "",
    }  # fmt: skip
    assert form(running, "/adfs/oauth2/v2.0/token", fields).status == 200
    body = urlencode([*fields.items(), (field, fields[field])]).encode()
    sent = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = running.send("POST", "/adfs/oauth2/v2.0/token", body, headers=sent)
    assert (answer.status, answer.json["error"]) == (400, "invalid_request")


def test_many_failures_are_slowed_down(running: Running, writer: Issued) -> None:
    now = [0.0]
    limit = FailureLimit(lambda: now[0])
    for _ in range(10):
        limit.note("here")
    assert not limit.is_reached("here")
    limit.note("here")
    assert limit.is_reached("here")
    assert not limit.is_reached("there")
    now[0] = 1.0
    assert not limit.is_reached("here")

    def slowed() -> bool:
        for _ in range(11):
            running.service.failures.note("127.0.0.1")
        return running.ask_token(writer).status == 429

    until(slowed)
    until(lambda: running.ask_token(writer).status == 200)


def test_foreign_changed_and_expired_tokens(running: Running, token: str, writer: Issued) -> None:
    claims = jwt.decode(token, options={"verify_signature": False})
    foreign = jwt.encode(claims, rsa.generate_private_key(65537, 2048), "RS256")
    header, _, signature = token.split(".")
    swapped = base64.urlsafe_b64encode(json.dumps({**claims, "exp": claims["exp"] + 1}).encode()).rstrip(b"=").decode()
    unsigned = jwt.encode(claims, None, "none")
    public = running.service.tokens.key_set()["keys"][0]["n"]
    by_public_key = jwt.encode(claims, public, "HS256")
    bad = [foreign, f"{header}.{swapped}.{signature}", unsigned, by_public_key, token[:-4], "x", "", "é", f"{token}x"]
    for each in bad:
        answer = running.send("GET", LIST, headers={"Authorization": f"Bearer {each}".encode().decode("latin-1")})
        assert (answer.status, answer.code) == (401, "Unauthorized"), each
    key = running.service.tokens._key
    past = {**claims, "iat": 1, "nbf": 1, "exp": 2}
    answer = running.send("GET", LIST, token=jwt.encode(past, key, "RS256"))
    assert (answer.status, answer.code) == (401, "TokenExpired")
    tenant = jwt.encode({**claims, "tid": "other"}, key, "RS256")
    assert running.send("GET", LIST, token=tenant).status == 401


def test_a_token_that_was_good_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    issued = Principals(tmp_path).add("guest", ["sales=read"])
    tokens = Tokens(tmp_path / "keys", 3600)
    token, expires = tokens.issue(issued.principal, issued.tenant_id, "here", "here")
    assert [tokens.verify(token, issued.tenant_id).client_id for _ in range(2)] == [issued.principal.client_id] * 2
    with pytest.raises(TokenRefused, match="tenant"):
        tokens.verify(token, "other")
    monkeypatch.setattr(tokens_module.time, "time", lambda: float(expires))
    with pytest.raises(TokenRefused, match="expired") as refused:
        tokens.verify(token, issued.tenant_id)
    assert refused.value.expired


def test_other_credentials_are_refused_on_rest(running: Running, writer: Issued) -> None:
    basic = base64.b64encode(f"writer:{writer.client_secret}".encode()).decode()
    for value in ("", f"Basic {basic}", "SharedKey writer:abc", "Bearer"):
        answer = running.send("GET", LIST, headers={"Authorization": value} if value else {})
        assert (answer.status, answer.code) == (401, "Unauthorized"), value


def test_a_running_service_follows_the_principals(running: Running, root: Path) -> None:
    principals = principals_of(root)
    issued = principals.add("guest", ["sales=read"])
    until(lambda: running.ask_token(issued).status == 200, 5)
    token = running.token(issued)
    rotated = principals.rotate("guest")
    until(lambda: running.ask_token(issued).status == 401, 5)
    assert running.ask_token(rotated).status == 200
    assert running.send("GET", LIST, token=token).status == 200
    principals.remove("guest")
    until(lambda: running.send("GET", LIST, token=token).status == 401, 5)
    assert principals.add("guest", ["sales=read"]).principal.client_id != issued.principal.client_id
    time.sleep(1.1)
    assert running.send("GET", LIST, token=token).status == 401
    principals.remove("guest")


def test_no_secret_is_on_the_disk(running: Running, root: Path, writer: Issued) -> None:
    own = root / ".lakemirror"
    on_a_disk = isinstance(root, Path)
    assert not on_a_disk or own.stat().st_mode & 0o777 == 0o700
    for path in own.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert writer.client_secret.encode() not in data, path
            if not on_a_disk:
                continue  # who may read it is the store's to say
            if b"PRIVATE KEY" in data or writer.principal.account_key.encode() in data:
                assert path.stat().st_mode & 0o777 == 0o600, path


def test_the_access_commands(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from lakemirror.cli import app
    from lakemirror.errors import LakemirrorError

    def call(*words: str) -> str:
        found = CliRunner().invoke(app, ["access", str(tmp_path), *words], catch_exceptions=False)
        assert found.exit_code == 0, found.output
        return found.stdout

    made = json.loads(call("add", "shop", "--role", "sales=contribute", "--role", "Stock=read"))
    assert set(made) == {"name", "client_id", "client_secret", "tenant_id", "account_key"}
    assert (tmp_path / "sales").is_dir()
    assert (tmp_path / "Stock").is_dir()
    listed = json.loads(call("list"))
    assert listed == [
        {"name": "shop", "client_id": made["client_id"], "roles": {"sales": "contribute", "stock": "read"}}
    ]
    assert json.loads(call("rotate", "shop"))["client_secret"] != made["client_secret"]
    call("remove", "shop")
    assert json.loads(call("list")) == []
    principals = Principals(tmp_path)
    (tmp_path / "Mixed").mkdir()
    for name, roles in [
        ("mixed", ["sales=read"]),
        ("ab", ["sales=read"]), ("Shop", ["sales=read"]), ("metrics", ["sales=read"]), ("sales", ["*=read"]),
        ("shop", ["sales=write"]), ("shop", []), ("shop", ["../x=read"]), ("shop", ["adfs=read"]),
        ("shop", ["shop=read"]),
    ]:  # fmt: skip
        with pytest.raises(LakemirrorError) as caught:
            principals.add(name, roles)
        assert caught.value.code == "principal-invalid", (name, roles)
    with pytest.raises(LakemirrorError) as caught:
        principals.remove("shop")
    assert caught.value.code == "principal-missing"
