from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lakemirror.errors import LakemirrorError, SetupError
from lakemirror.settings.settings import Settings
from lakemirror.spark_session import jvm
from lakemirror.spark_session import session as spark
from lakemirror.spark_session.java import Java
from lakemirror.spark_session.log_files import new_log_file

JARS = (Path("/c/a.jar"), Path("/c/b.jar"))


def options(*own: tuple[str, str], master: str = "", **more: object) -> dict[str, str]:
    return spark.options(Settings(master=master, spark=own), delta_jars=JARS, **more)  # type: ignore[arg-type]


def test_without_delta_no_jar_is_named() -> None:
    for master in ("", "yarn"):
        made = spark.options(Settings(master=master))
        assert made["spark.sql.session.timeZone"] == "UTC"
        assert not [key for key, value in made.items() if "delta" in f"{key}{value}".lower() or key.endswith("jars")]


def test_local_by_default_with_delta_in_utc() -> None:
    made = options(cores=3)
    assert made["spark.master"] == "local[*]"
    assert made["spark.sql.session.timeZone"] == "UTC"
    assert made["spark.sql.shuffle.partitions"] == "3"
    assert made["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension"
    assert made["spark.driver.extraClassPath"] == "/c/a.jar:/c/b.jar"
    assert "spark.jars" not in made


@pytest.mark.parametrize("master", ["spark://host:7077", "local-cluster[2,1,1024]", "yarn"])
def test_executors_elsewhere_are_sent_the_jars(master: str) -> None:
    made = options(master=master)
    assert made["spark.jars"] == "/c/a.jar,/c/b.jar"
    assert "spark.driver.bindAddress" not in made


LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def driver_address(*own: tuple[str, str], master: str = "") -> dict[str, str]:
    """Where a driver listens with these options."""
    made = spark.options(Settings(master=master, spark=own))
    return {key: value for key, value in made.items() if key in LOOPBACK}


@pytest.mark.parametrize(
    ("own", "master", "found"),
    [
        ((), "", LOOPBACK), ((), "local", LOOPBACK), ((), "local[4]", LOOPBACK), ((), "yarn", {}),
        ((), "local-cluster[2,1,1024]", {}), ((("spark.master", "yarn"),), "", {}),
        ((("spark.master", "local[1]"),), "yarn", LOOPBACK),
        ((("spark.driver.host", "10.0.0.5"),), "", {"spark.driver.host": "10.0.0.5"}),
        ((("spark.driver.bindAddress", "0.0.0.0"),), "", {"spark.driver.bindAddress": "0.0.0.0"}),
    ],
)  # fmt: skip
def test_a_local_driver_is_on_loopback_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, own: tuple[tuple[str, str], ...], master: str, found: dict[str, str]
) -> None:
    assert driver_address(*own, master=master) == found
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    made = jvm._variables(Java(Path("/java"), "17"), spark.options(Settings(master=master, spark=own)))
    assert made.get("SPARK_LOCAL_IP") == ("127.0.0.1" if found == LOOPBACK else None)
    monkeypatch.setenv("SPARK_LOCAL_IP", "10.0.0.5")
    assert "SPARK_LOCAL_IP" not in jvm._variables(Java(Path("/java"), "17"), {})


def test_the_jvm_that_fetches_jars_is_on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    with jvm.environment(jvm._variables(Java(Path("/java"), "17"), {"spark.jars.packages": "a:b:1"})):
        assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert "SPARK_LOCAL_IP" not in os.environ


IVY = 'Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: a#b;1: not found]'


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        ("Caused by: java.net.UnknownHostException: box: box: Name or service not known\n\tat x\n",
         "this machine's own name box does not resolve: add it to /etc/hosts"),
        ("java.net.UnknownHostException: other: Name or service not known", "the name other does not resolve"),
        (f"\tHost repo.example not found. url=https://repo.example/x\n{IVY}",
         "the host repo.example cannot be found: no network, or no name server"),
        ("\tServer access error at url http://me:secret@repo.example:9/maven/a.pom "
         f"(java.net.ConnectException: Connection refused)\n{IVY}",
         "repo.example:9 cannot be reached: ConnectException: Connection refused"),
        (IVY, "no repository has a#b;1"),
        ("one\n\ntwo\n\tat java.x\nthree\nfour\n", "two | three | four"), ("", "it printed nothing"),
    ],
)  # fmt: skip
def test_the_true_cause_is_named(printed: str, reason: str) -> None:
    assert jvm.reason_in(printed, "box") == reason


def test_a_user_s_own_option_wins() -> None:
    made = options(("spark.master", "local[1]"), ("spark.ui.enabled", "true"), ("spark.x.y", "z"))
    assert (made["spark.master"], made["spark.ui.enabled"], made["spark.x.y"]) == ("local[1]", "true", "z")


def test_lists_are_added_to() -> None:
    made = options(
        ("spark.driver.extraClassPath", "/own.jar"),
        ("spark.driver.extraJavaOptions", "-Down=1"),
        ("spark.sql.extensions", "own.Extension"),
        ("spark.jars", "/own.jar"),
    )
    assert made["spark.driver.extraClassPath"] == "/c/a.jar:/c/b.jar:/own.jar"
    assert made["spark.driver.extraJavaOptions"].endswith(" -Down=1")
    assert made["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension,own.Extension"
    assert made["spark.jars"] == "/own.jar"


def test_a_list_that_names_ours_already_stays() -> None:
    both = "own.Extension,io.delta.sql.DeltaSparkSessionExtension"
    assert options(("spark.sql.extensions", both))["spark.sql.extensions"] == both


def test_java_flags() -> None:
    plain = options()["spark.driver.extraJavaOptions"]
    assert "-Xlog:disable" in plain
    assert "TieredStopAtLevel" not in plain
    assert "SharedArchiveFile" not in plain
    flags = options(short=True, archive=Path("/c/x y.jsa"))["spark.driver.extraJavaOptions"]
    assert "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC" in flags
    assert '"-XX:SharedArchiveFile=/c/x y.jsa"' in flags
    for_mirroring = spark.options(Settings())["spark.driver.extraJavaOptions"]
    assert "-XX:TieredStopAtLevel=1" in for_mirroring, "Python workers do the row work"


def test_the_log_configuration_is_where_it_is_looked_for() -> None:
    flags = options(log_file=Path("/c/spark.log"))["spark.driver.extraJavaOptions"]
    configuration = flags.partition("-Dlog4j2.configurationFile=")[2].partition(" ")[0].strip('"')
    assert "${sys:lakemirror.log}" in Path(configuration).read_text()
    assert "-Dlakemirror.log=/c/spark.log" in flags


def test_heap_only_where_set() -> None:
    assert "spark.driver.memory" not in options()
    assert spark.options(Settings(driver_memory="4g"), delta_jars=JARS)["spark.driver.memory"] == "4g"


class Session:
    """As much of an active session as is asked for."""

    def __init__(self, **conf: str) -> None:
        self.conf = {"spark.sql.extensions": None} | {key.replace("_", "."): value for key, value in conf.items()}
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True


def test_an_active_session_without_delta_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "_active", lambda: Session())
    with pytest.raises(SetupError) as caught:
        spark.start(Settings(), delta=True)
    assert caught.value.code == "spark-unsupported"
    assert spark.start(Settings()) is not None


def test_an_active_session_with_delta_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    active = Session(spark_sql_extensions="own.Extension,io.delta.sql.DeltaSparkSessionExtension")
    before = dict(active.conf)
    monkeypatch.setattr(spark, "_active", lambda: active)
    assert spark.start(Settings(spark=(("spark.sql.session.timeZone", "CET"),)), delta=True) is active
    assert active.conf == before


def test_a_session_of_somebody_else_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session()
    monkeypatch.setattr("pyspark.SparkContext._gateway", object())
    monkeypatch.setattr(spark, "_own", {})
    spark.stop(session)  # type: ignore[arg-type]
    assert not session.stopped


def test_a_session_that_is_over_does_not_end_the_one_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway, ended = object(), []
    monkeypatch.setattr("pyspark.SparkContext._gateway", gateway)
    monkeypatch.setattr(spark, "_own", {"gateway": gateway})
    monkeypatch.setattr(spark, "_forget", lambda: None)
    monkeypatch.setattr(jvm, "end", lambda gateway, patience: ended.append(gateway) or True)
    for is_over in (True, False):
        session = Session()
        session._sc = SimpleNamespace(_jsc=None if is_over else object())  # type: ignore[attr-defined]
        assert spark.is_over(session) is is_over  # type: ignore[arg-type]
        assert spark.stop(session)  # type: ignore[arg-type]
        assert (session.stopped, ended) == ((False, []) if is_over else (True, [gateway]))


def test_workers_run_this_python_or_the_one_the_user_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("SPARK_REMOTE", "sc://host")
    with jvm.environment(spark._variables({})):
        assert os.environ["PYSPARK_PYTHON"] == sys.executable
        assert "SPARK_REMOTE" not in os.environ
    assert "PYSPARK_PYTHON" not in os.environ and os.environ["SPARK_REMOTE"] == "sc://host"
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    with jvm.environment(spark._variables({})):
        assert os.environ["PYSPARK_PYTHON"] == "/opt/python"
    with jvm.environment(spark._variables({"spark.pyspark.python": "/executors/python"})):
        assert os.environ["PYSPARK_PYTHON"] == "/executors/python"
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python"


def test_logs_of_earlier_days_go(tmp_path: Path) -> None:
    line, crash = "2026-11-23T01:02:03.004Z ERROR x: y\n", "#\n# A fatal error has been detected"
    old = {
        "spark-20200101T000000-1.log": line,
        "spark-20200101T000000-1.log.1": line,
        "spark-20200101T000000-1.crash": crash,
    }
    foreign = {"notes.log": line, "spark-plan.txt": line, "spark-20200101T000000-2.log": "somebody's"}
    for name, text in (old | foreign).items():
        (tmp_path / name).write_text(text)
        os.utime(tmp_path / name, (0, 0))
    new = new_log_file(tmp_path)
    assert new is not None
    assert not new.exists()
    new.write_text(line)
    assert new_log_file(tmp_path) is not None
    assert {path.name for path in tmp_path.iterdir()} == {*foreign, new.name}


def test_a_setting_without_a_value_is_told() -> None:
    with pytest.raises(LakemirrorError, match="is not a list of KEY=VALUE") as error:
        Settings().with_environment({"LAKEMIRROR_SPARK": "spark.jars=a.jar,b.jar"})
    assert error.value.code == "setting-invalid"


def test_delta_jars_are_for_one_version_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", "3.5.7")
    monkeypatch.setattr(spark, "_active", lambda: None)
    with pytest.raises(SetupError, match=r"needs PySpark 4\.2, and 3\.5\.7 is installed") as caught:
        spark.start(Settings(), delta=True)
    assert caught.value.code == "spark-unsupported"


def test_pandas_is_shown_once_spark_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    from lakemirror.cli.main import _NoPandas

    monkeypatch.setattr(sys, "meta_path", [_NoPandas, *sys.meta_path])
    monkeypatch.setattr(spark, "_active", lambda: Session())
    spark.start(Settings())
    assert _NoPandas not in sys.meta_path


CONNECT = "sc://host:15002"


@pytest.mark.parametrize(
    "given",
    [
        {"spark_remote": CONNECT}, {"master": CONNECT}, {"spark": (("spark.master", CONNECT),)},
        {"spark": (("spark.remote", CONNECT),)}, {"master": CONNECT, "spark_remote": CONNECT},
        {"master": "local[2]", "spark_remote": CONNECT},
    ],
    ids=str,
)  # fmt: skip
def test_a_connect_address_is_one_wherever_it_is_given(given: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, Spark said of a master: "Master must either be yarn or start with spark, k8s, or local"."""
    asked: list[str] = []
    monkeypatch.setattr(spark, "_remote", lambda address: asked.append(address))
    spark.start(Settings(**given))
    assert asked == [CONNECT]


def test_two_connect_addresses_are_refused() -> None:
    with pytest.raises(LakemirrorError) as caught:
        spark.start(Settings(master=CONNECT, spark_remote="sc://other"))
    assert caught.value.code == "setting-invalid" and "sc://other and sc://host:15002" in caught.value.message


@pytest.mark.parametrize(("given", "expected"), [({}, CONNECT), ({"master": "local[2]"}, "")], ids=str)
def test_the_variable_of_pyspark(given: dict[str, Any], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", CONNECT)
    assert spark.remote_variable(Settings(**given)) == expected
    asked: list[str] = []
    monkeypatch.setattr(spark, "_remote", lambda address: asked.append(address))
    monkeypatch.setattr(spark, "_new", lambda *_, **__: asked.append(""))
    monkeypatch.setattr(spark, "_active", lambda: None)
    spark.start(Settings(**given))
    assert asked == [expected]
