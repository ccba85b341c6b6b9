"""The permissions that the how-to names are enough, and each of them is needed: a policy on MinIO."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from tests.databases import Database
from tests.landing import MARKER
from tests.object_stores import SECRET, USER, StoreServer

from lakemirror.errors import LakemirrorError
from lakemirror.storage import connections

OBJECTS = ("s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload")


@pytest.mark.full
def test_the_least_permissions_are_enough(minio_server: StoreServer) -> None:
    owner = made(minio_server)
    limited = Database(owner.address, limited_options(minio_server, owner.address, OBJECTS))
    limited.sync()
    owner.put("orders", 2, {"id": [1, 3], MARKER: [2, 0]})
    limited.sync()
    assert sorted(limited.bag("orders")) == [(2,), (3,)]
    assert f"Files/LandingZone/orders/_ProcessedFiles/{1:020}.parquet" in limited.files()
    connections.forget_all()


@pytest.mark.full
@pytest.mark.parametrize("missing", ["s3:GetObject", "s3:PutObject"])
def test_a_missing_permission_is_store_refused(minio_server: StoreServer, missing: str) -> None:
    owner = made(minio_server)
    given = [each for each in OBJECTS if each != missing]
    limited = Database(owner.address, limited_options(minio_server, owner.address, given))
    with pytest.raises(LakemirrorError) as raised:
        limited.sync()
    assert raised.value.code == "store-refused"
    assert SECRET not in str(raised.value)
    connections.forget_all()


@pytest.mark.full
def test_nothing_outside_of_the_database_is_reached(minio_server: StoreServer) -> None:
    owner = made(minio_server)
    bucket = owner.address.removesuffix("/shop")
    other = Database(f"{bucket}/other", limited_options(minio_server, owner.address, OBJECTS))
    with pytest.raises(LakemirrorError) as raised:
        other.sync()
    assert raised.value.code == "store-refused"
    connections.forget_all()


def made(server: StoreServer) -> Database:
    """A database with one file to apply."""
    found = Database(f"{server.bucket()}/shop", server.options)
    found.declare("orders", ["id"])
    found.put("orders", 1, {"id": [1, 2]})
    return found


def limited_options(server: StoreServer, address: str, actions: Sequence[str]) -> dict[str, str]:
    """The options of a client that may do these things with objects below the address, and list it."""
    import boto3

    bucket, _, folder = address.removeprefix("s3://").partition("/")
    arn = f"arn:aws:s3:::{bucket}"
    listing = {"StringLike": {"s3:prefix": [f"{folder}/*"]}}
    policy = {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": ["s3:ListBucket"], "Resource": [arn], "Condition": listing},
            {"Effect": "Allow", "Action": list(actions), "Resource": [f"{arn}/{folder}/*"]},
        ],
    }
    client = boto3.client(
        "sts", endpoint_url=server.endpoint, region_name="us-east-1", aws_access_key_id=USER,
        aws_secret_access_key=SECRET,
    )  # fmt: skip
    found = client.assume_role(
        RoleArn="arn:aws:iam::000000000000:role/limited", RoleSessionName="limited", Policy=json.dumps(policy)
    )
    given = found["Credentials"]
    return {
        **server.options,
        "AWS_ACCESS_KEY_ID": given["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": given["SecretAccessKey"],
        "AWS_SESSION_TOKEN": given["SessionToken"],
    }
