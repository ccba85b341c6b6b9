"""Where Spark's writers publish to, and which stream a batch is of, without a JVM."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lakemirror.errors import LakemirrorError
from lakemirror.publisher import spark_batches
from lakemirror.publisher.spark_batches import Target, publish_each_batch
from lakemirror.storage import connections

HERE = str(Path.cwd())


@pytest.mark.parametrize(
    ("path", "place"),
    {
        "shop/orders": (f"{HERE}/shop", "", "orders"),
        "/lake/shop/sales.orders": ("/lake/shop", "sales", "orders"),
        "/orders": ("/", "", "orders"),
        "file:/lake/a%20b/orders": ("/lake/a b", "", "orders"),
        "file:///lake/shop/Files/LandingZone/sales.schema/orders": ("/lake/shop", "sales", "orders"),
        "s3://lake/shop/orders": ("s3://lake/shop", "", "orders"),
        "s3a://lake/shop/orders/": ("s3a://lake/shop", "", "orders"),
        "s3://lake/orders": ("s3://lake", "", "orders"),
        "gs://lake/a%20b/Files/LandingZone/sales.schema/orders": ("gs://lake/a%20b", "sales", "orders"),
        "abfss://lake@account.dfs.core.windows.net/shop/sales.orders": (
            "abfss://lake@account.dfs.core.windows.net/shop", "sales", "orders",
        ),
        "https://host/work%20space/shop/sales.new%20orders": ("https://host/work%20space/shop", "sales", "new orders"),
        "https://host/sales/shop/Files/LandingZone/orders": ("https://host/sales/shop", "", "orders"),
    }.items(),
)  # fmt: skip
def test_paths_and_addresses(path: str, place: tuple[str, str, str]) -> None:
    target = Target.of({"path": path})
    assert (target.db, target.schema, target.table) == place
    assert target.is_local == (not path.startswith(("s3", "gs", "abfss", "https")))


@pytest.mark.parametrize(
    ("path", "code"),
    {
        "s3://lake": "input-invalid", "https://host/shop/orders": "input-invalid", "dbfs:/shop/orders": "not-supported",
        "hdfs://name/shop/orders": "not-supported",
    }.items(),
)  # fmt: skip
def test_paths_that_are_refused(path: str, code: str) -> None:
    with pytest.raises(LakemirrorError) as caught:
        Target.of({"path": path}).open()
    assert caught.value.code == code


def test_options_that_nobody_knows() -> None:
    with pytest.raises(TypeError, match="'key'"):
        publish_each_batch("shop/orders", "q", key="id")


def test_the_options_of_a_store_come_from_a_file(tmp_path: Path) -> None:
    """The file's name travels, its content does not; a task does not use what another one left in its process."""
    file = tmp_path / "store.json"
    options = {"aws_access_key_id": "me", "aws_secret_access_key": "hidden", "aws_region": "here"}
    file.write_text(json.dumps({name.upper(): value for name, value in options.items()}))
    given = {"path": "s3://lake/shop/orders"}
    target = Target.of({**given, "credential": str(file)})
    assert b"hidden" not in pickle.dumps(target) and "hidden" not in repr(target)
    try:
        target.open()
        assert connections.options_of("s3://lake") == options
        Target.of(given).open()
        assert connections.options_of("s3://lake") == options, "those of the driver's own process stay"
        Target.of(given).open(in_task=True)
        assert connections.options_of("s3://lake") == {}
        for content, reason in ((None, "No such file"), ("[1]", "no JSON object"), ("{", "no JSON object")):
            file.unlink() if content is None else file.write_text(content)
            with pytest.raises(LakemirrorError, match=reason) as caught:
                target.open()
            assert caught.value.code == "credential-invalid"
    finally:
        connections.forget_all()


def frame(*streams: tuple[str, str | None]) -> Any:
    """As much of a frame of Spark Connect as tells which streams run in its session: their ids and names."""
    active = [SimpleNamespace(id=id, name=name) for id, name in streams]
    kind = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})
    made = kind()
    made.sparkSession = SimpleNamespace(streams=SimpleNamespace(active=active))
    return made


def test_which_stream_a_batch_of_spark_connect_is_of() -> None:
    """Once, of several streams none was known, and a new checkpoint's batch 0 was taken for a repeated one."""
    known = spark_batches._stream_of_session
    assert known(frame(("a", None)), "clicks", 0) == "a"
    assert known(frame(("a", "orders"), ("b", "clicks")), "clicks", 0) == "b"
    assert known(frame(), "clicks", 0) == known(frame(("a", None), ("b", None)), "clicks", 1) == ""
    with pytest.raises(LakemirrorError, match="several streams") as caught:
        known(frame(("a", None), ("b", "orders")), "clicks", 0)
    assert "queryName('clicks')" in caught.value.hint
    assert known(SimpleNamespace(), "clicks", 0) == "", "without Connect, tasks know"
