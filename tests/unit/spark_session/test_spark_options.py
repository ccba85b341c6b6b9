from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from lakemirror.errors import LakemirrorError, SetupError
from lakemirror.settings import Settings
from lakemirror.spark_session import session as spark

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


def test_workers_run_this_python_or_the_one_the_user_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    with spark._worker_python({}):
        assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert "PYSPARK_PYTHON" not in os.environ
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    with spark._worker_python({}):
        assert os.environ["PYSPARK_PYTHON"] == "/opt/python"
    with spark._worker_python({"spark.pyspark.python": "/executors/python"}):
        assert os.environ["PYSPARK_PYTHON"] == "/executors/python"
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python"


def test_logs_of_earlier_days_go(tmp_path: Path) -> None:
    old, new, other = (tmp_path / name for name in ("spark-old.log", "spark-new.log", "notes.log"))
    for path in (old, new, other):
        path.write_text("")
    for path in (old, other):
        os.utime(path, (0, 0))
    name = spark._log_file(tmp_path)
    assert name is not None
    assert not name.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.log", "spark-new.log"]


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
