"""A batch of Debezium's records as JSON lines, written in Java: of an event only what a capture reads.

    records ─▶ for each schema of values a `StringBuilder` of lines ─▶ one text

Kafka Connect's converter makes a tree of every event, with its key and two dozen fields that no one reads, and that
costs as much as reading the log. Values other than texts, numbers and truth values still go through it, so that they
are written as it does. The methods are compiled by Javassist, which is among Debezium's jars: a JDK is not needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_NEIGHBOUR = "io.debezium.embedded.Connect"
_NAME = "io.debezium.embedded.JsonLines"
_STRUCT = "org.apache.kafka.connect.data.Struct"
_SCHEMA = "org.apache.kafka.connect.data.Schema"
_FIELDS = (
    "private org.apache.kafka.connect.json.JsonConverter converter;",
    "private java.util.Map plans;",  # of this batch: schema to the names and fields that are written of its values
)
_METHODS = (
    """public JsonLines(org.apache.kafka.connect.json.JsonConverter converter) { this.converter = converter; }""",
    # a text in quotes
    """private void writeText(StringBuilder into, String text) {
        into.append('"');
        int from = 0, length = text.length();
        for (int at = 0; at < length; at++) {
            char each = text.charAt(at);
            if (each < 32 || each == 34 || each == 92) {
                into.append(text.substring(from, at));
                into.append(each < 16 ? "\\\\u000" : "\\\\u00").append(Integer.toHexString(each));
                from = at + 1;
            }
        }
        into.append(from == 0 ? text : text.substring(from));
        into.append('"');
    }""",
    # a value as Kafka Connect's converter writes it
    f"""private void writeOther(StringBuilder into, {_SCHEMA} schema, Object value) {{
        into.append(new String(converter.fromConnectData("", schema, value), "UTF-8"));
    }}""",
    f"""private void writeValue(StringBuilder into, {_SCHEMA} schema, Object value) {{
        if (value == null) into.append("null");
        else if (value instanceof String) writeText(into, (String) value);
        else if (value instanceof Integer || value instanceof Long || value instanceof Short)
            into.append(((Number) value).longValue());
        else if (value instanceof Boolean) into.append(((Boolean) value).booleanValue());
        else if (value instanceof Double && Double.isFinite(((Double) value).doubleValue()))
            into.append(((Double) value).doubleValue());
        else if (value instanceof Float && Float.isFinite(((Float) value).floatValue()))
            into.append(((Float) value).floatValue());
        else writeOther(into, schema, value);
    }}""",
    # `only`: the names of the fields that are written; null: all
    f"""private Object[] planOf({_SCHEMA} schema, java.util.List only) {{
        Object[] plan = (Object[]) plans.get(schema);
        if (plan != null) return plan;
        java.util.List names = new java.util.ArrayList(), fields = new java.util.ArrayList();
        for (int at = 0; at < schema.fields().size(); at++) {{
            org.apache.kafka.connect.data.Field field = (org.apache.kafka.connect.data.Field) schema.fields().get(at);
            if (only != null && !only.contains(field.name())) continue;
            StringBuilder name = new StringBuilder(names.isEmpty() ? "" : ",");
            writeText(name, field.name());
            names.add(name.append(':').toString());
            fields.add(field);
        }}
        plan = new Object[2];
        plan[0] = names.toArray(new String[0]);
        plan[1] = fields.toArray(new org.apache.kafka.connect.data.Field[0]);
        plans.put(schema, plan);
        return plan;
    }}""",
    # NULL stays NULL, whatever the column's default
    f"""private void writeStruct(StringBuilder into, {_STRUCT} value, java.util.List only) {{
        if (value == null) {{ into.append("null"); return; }}
        Object[] plan = planOf(value.schema(), only);
        String[] names = (String[]) plan[0];
        org.apache.kafka.connect.data.Field[] fields = (org.apache.kafka.connect.data.Field[]) plan[1];
        into.append('{{');
        for (int at = 0; at < names.length; at++) {{
            into.append(names[at]);
            {_SCHEMA} schema = fields[at].schema();
            writeValue(into, schema, schema.defaultValue() == null
                ? value.get(fields[at]) : value.getWithoutDefault(fields[at].name()));
        }}
        into.append('}}');
    }}""",
    f"""private void writeLine(StringBuilder into, {_SCHEMA} schema, Object value, java.util.Map wanted) {{
        java.util.List only = (java.util.List) wanted.get(schema.name());
        if (only != null) {{ writeStruct(into, ({_STRUCT}) value, only); return; }}
        if (schema.field("after") == null) {{ writeOther(into, schema, value); return; }}
        {_STRUCT} event = ({_STRUCT}) value;
        writeText(into.append("{{\\"op\\":"), event.getString("op"));
        writeStruct(into.append(",\\"before\\":"), event.getStruct("before"), null);
        writeStruct(into.append(",\\"after\\":"), event.getStruct("after"), null);
        writeStruct(into.append(",\\"source\\":"), event.getStruct("source"), (java.util.List) wanted.get("source"));
        writeStruct(into.append(",\\"transaction\\":"), event.getStruct("transaction"),
            (java.util.List) wanted.get("transaction"));
        into.append('}}');
    }}""",
    f"""public java.util.Map of(java.util.List records, java.util.Map wanted) {{
        java.util.Map found = new java.util.LinkedHashMap(), known = new java.util.IdentityHashMap();
        plans = new java.util.IdentityHashMap();
        for (int at = 0; at < records.size(); at++) {{
            org.apache.kafka.connect.source.SourceRecord record =
                ((io.debezium.embedded.EmbeddedEngineChangeEvent) records.get(at)).sourceRecord();
            {_SCHEMA} schema = record.valueSchema();
            StringBuilder into = (StringBuilder) known.get(schema);
            if (into == null) {{
                into = (StringBuilder) found.get(schema);
                if (into == null) {{ into = new StringBuilder(1024); found.put(schema, into); }}
                known.put(schema, into);
            }}
            if (into.length() > 0) into.append('\\n');
            writeLine(into, schema, record.value(), wanted);
        }}
        return found;
    }}""",
)


_POSTGRES = "io.debezium.connector.postgresql."
LEAN_SOURCE = f"{_POSTGRES}LeanSource"
"""Makes the `source` of an event of PostgreSQL: of two dozen fields those that a capture or Debezium reads."""
_SOURCE = (
    f"private {_SCHEMA} schema;",
    f"""public void init(String connector, String version, io.debezium.config.CommonConnectorConfig config) {{
        {_SCHEMA} text = {_SCHEMA}.STRING_SCHEMA, number = {_SCHEMA}.OPTIONAL_INT64_SCHEMA;
        schema = org.apache.kafka.connect.data.SchemaBuilder.struct().name("{_POSTGRES}Source")
            .field("ts_ms", {_SCHEMA}.INT64_SCHEMA).field("schema", text).field("table", text)
            .field("txId", number).field("lsn", number).field("xmin", number).build();
    }}""",
    f"public {_SCHEMA} schema() {{ return schema; }}",
    f"""public {_STRUCT} struct(io.debezium.connector.AbstractSourceInfo given) {{
        {_POSTGRES}SourceInfo info = ({_POSTGRES}SourceInfo) given;
        java.time.Instant moment = info.timestamp() == null ? java.time.Instant.now() : info.timestamp();
        {_STRUCT} made = new {_STRUCT}(schema);
        made.put("ts_ms", Long.valueOf(moment.toEpochMilli()));
        made.put("schema", info.schemaName());
        made.put("table", info.tableName());
        made.put("txId", info.txId());
        if (info.lsn() != null) made.put("lsn", Long.valueOf(info.lsn().asLong()));
        return made;
    }}""",
)
_METRICS = "io.debezium.pipeline.metrics."


def json_lines(java: Callable[[str], Any], converter: Any) -> Any:
    """An object of Java whose `of(records, wanted)` gives a map from each schema of the values to their lines, in the
    order in which the schemas appear. `converter`: Kafka Connect's, for values that this does not write.

    `wanted`: the names of the fields that are written, for the whole values of a schema by its name, and for the
    `source` and the `transaction` of events.
    """
    pool = _pool(java, _NEIGHBOUR)
    made = pool.makeClass(_NAME)
    for field in _FIELDS:
        made.addField(java("javassist.CtField").make(field, made))
    made.addConstructor(java("javassist.CtNewConstructor").make(_METHODS[0], made))
    for method in _METHODS[1:]:
        made.addMethod(java("javassist.CtNewMethod").make(method, made))
    return made.toClass(java(_NEIGHBOUR).class_).getConstructors()[0].newInstance([converter])


def lean_events(java: Callable[[str], Any]) -> None:
    """Makes Debezium's events of PostgreSQL cheaper; before its first use in the process.

    Its metrics describe each event by a text, for which a new writer of JSON is made: a third of all that is allocated.
    """
    neighbour = f"{_METRICS}StreamingChangeEventSourceMetrics"
    metrics = _pool(java, neighbour).get(f"{_METRICS}DefaultStreamingChangeEventSourceMetrics")
    metrics.getDeclaredMethod("onEvent").setBody("{}")
    metrics.toClass(java(neighbour).class_)
    neighbour = f"{_POSTGRES}PostgresSourceInfoStructMaker"
    pool = _pool(java, neighbour)
    made = pool.makeClass(LEAN_SOURCE)
    made.addInterface(pool.get("io.debezium.connector.SourceInfoStructMaker"))
    made.addField(java("javassist.CtField").make(_SOURCE[0], made))
    made.addConstructor(java("javassist.CtNewConstructor").defaultConstructor(made))
    for method in _SOURCE[1:]:
        made.addMethod(java("javassist.CtNewMethod").make(method, made))
    made.toClass(java(neighbour).class_)


def _pool(java: Callable[[str], Any], neighbour: str) -> Any:
    """The classes as the neighbour of a new one finds them."""
    pool = java("javassist.ClassPool")(True)
    pool.appendClassPath(java("javassist.ClassClassPath")(java(neighbour).class_))
    return pool
