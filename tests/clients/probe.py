# ruff: noqa
"""Run inside another client's Python: reads and appends to the tables of a folder, prints what happened as JSON.

    python probe.py CLIENT FOLDER [TABLE …]    one line for each table as it is done

CLIENT: deltalake-pyarrow, deltalake-datafusion, duckdb, polars, daft, chdb, delta-spark. `expected.json` beside the
tables holds the rows of each: the sorted values of a column `id`, or columns and rows. A client has read a table when
all rows, their count and the rows of one value (a filter) are as expected.
"""

import glob
import json
import os
import shutil
import sys
import tempfile


class Deltalake_pyarrow:
    def open(self, path):
        from deltalake import DeltaTable

        self.table = DeltaTable(path)

    def rows(self, columns):
        return picked(self.table.to_pyarrow_table(), columns)

    def count(self):
        return self.table.to_pyarrow_dataset().count_rows()

    def where(self, columns, column, value):
        import pyarrow.dataset as ds

        return picked(self.table.to_pyarrow_dataset().to_table(filter=ds.field(column) == value), columns)

    def append(self, path, row):
        import pyarrow as pa
        from deltalake import DeltaTable, write_deltalake

        fields = DeltaTable(path).schema()
        fields = fields.to_pyarrow() if hasattr(fields, "to_pyarrow") else pa.schema(fields.to_arrow())
        columns = [pa.array([row.get(f.name)], f.type) for f in fields]
        write_deltalake(path, pa.Table.from_arrays(columns, schema=pa.schema(list(fields))), mode="append")


class Deltalake_datafusion(Deltalake_pyarrow):
    def ask(self, what, where=""):
        import pyarrow as pa
        from deltalake import QueryBuilder

        found = QueryBuilder().register("t", self.table).execute("select %s from t %s" % (what, where))
        found = found.read_all() if hasattr(found, "read_all") else found
        return pa.Table.from_batches(found) if isinstance(found, list) and found else found and pa.table(found)

    def rows(self, columns):
        return picked(self.ask("*"), columns)

    def count(self):
        return int(self.ask("count(*) as n").column("n")[0].as_py())

    def where(self, columns, column, value):
        return picked(self.ask("*", 'where "%s" = %d' % (column, value)), columns)


def duck():
    import duckdb

    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    import duckdb_extension_delta

    folder = os.path.dirname(duckdb_extension_delta.__file__)
    found = glob.glob(os.path.join(folder, "**", "*.duckdb_extension*"), recursive=True)
    connection.execute("LOAD '%s'" % found[0])
    return connection


class Duckdb:
    def open(self, path):
        self.source = "delta_scan('%s')" % path
        self.connection = duck()

    def ask(self, text):
        return self.connection.execute(text % self.source)

    def rows(self, columns, where=""):
        found = self.ask("select * from %s" + where)
        places = [[d[0] for d in found.description].index(name) for name in columns]
        return [[row[place] for place in places] for row in found.fetchall()]

    def count(self):
        return self.ask("select count(*) from %s").fetchall()[0][0]

    def where(self, columns, column, value):
        return self.rows(columns, ' where "%s" = %d' % (column, value))

    def append(self, path, row):
        connection = duck()
        connection.execute("ATTACH '%s' AS t (TYPE delta)" % path)
        names = [row[0] for row in connection.execute("describe select * from t").fetchall()]
        values = [row.get(name) for name in names]
        connection.execute("INSERT INTO t VALUES (%s)" % ", ".join("?" for _ in names), values)


class Polars:
    def open(self, path):
        import polars

        self.polars, self.frame = polars, polars.scan_delta(path)

    def rows(self, columns):
        return self.frame.collect().select(columns).rows()

    def count(self):
        return self.frame.select(self.polars.len()).collect().item()

    def where(self, columns, column, value):
        return self.frame.filter(self.polars.col(column) == value).collect().select(columns).rows()


class Daft:
    def open(self, path):
        import daft

        self.daft, self.frame = daft, daft.read_deltalake(path)

    def rows(self, columns):
        return picked(self.frame.to_arrow(), columns)

    def count(self):
        return self.frame.count_rows()

    def where(self, columns, column, value):
        return picked(self.frame.where(self.daft.col(column) == value).to_arrow(), columns)


class Chdb:
    def open(self, path):
        self.source = "deltaLakeLocal('%s')" % path

    def ask(self, what, where=""):
        import chdb

        return str(chdb.query("select %s from %s %s format JSONEachRow" % (what, self.source, where)))

    def rows(self, columns, where=""):
        found = [json.loads(line) for line in self.ask("*", where).split("\n") if line]
        return [[row[name] for name in columns] for row in found]

    def count(self):
        return int(json.loads(self.ask("count() as n"))["n"])

    def where(self, columns, column, value):
        return self.rows(columns, "where `%s` = %d" % (column, value))


class Delta_spark:
    session = None

    def open(self, path):
        from delta import configure_spark_with_delta_pip
        from pyspark.sql import SparkSession

        if self.session is None:
            builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
            builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
            builder = builder.config("spark.databricks.delta.snapshotPartitions", "2")
            builder = builder.config("spark.sql.shuffle.partitions", "2")
            catalog = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
            builder = builder.config("spark.sql.catalog.spark_catalog", catalog)
            Delta_spark.session = configure_spark_with_delta_pip(builder).getOrCreate()
        self.frame = self.session.read.format("delta").load(path)

    def rows(self, columns):
        found = [json.loads(line) for line in self.frame.toJSON().collect()]  # the whole rows
        return [[row.get(name) for name in columns] for row in found]

    def count(self):
        return self.frame.count()

    def where(self, columns, column, value):
        found = self.frame.where("`%s` = %d" % (column, value)).toJSON().collect()
        return [[row.get(name) for name in columns] for row in map(json.loads, found)]

    def append(self, path, row):
        from pyspark.sql.types import StructType

        schema = self.session.read.format("delta").load(path).schema
        values = [row.get(field.name) for field in schema.fields]
        nullable = StructType([type(f)(f.name, f.dataType, True) for f in schema.fields])
        frame = self.session.createDataFrame([values], nullable)
        frame.write.format("delta").mode("append").save(path)


ROUTES = {
    "deltalake-pyarrow": Deltalake_pyarrow,
    "deltalake-datafusion": Deltalake_datafusion,
    "duckdb": Duckdb,
    "polars": Polars,
    "daft": Daft,
    "chdb": Chdb,
    "delta-spark": Delta_spark,
}


def picked(table, columns):
    """The rows of these columns of an Arrow table; none where a client gives nothing for no rows."""
    return list(zip(*(table.column(name).to_pylist() for name in columns))) if table is not None and len(table) else []


def texts(rows, days=()):
    """Rows in an order that all clients share; of the places in `days` the day counts."""

    def text(place, value):
        return None if value is None else str(value)[:10] if place in days else str(value)

    return sorted(json.dumps([text(place, value) for place, value in enumerate(row)]) for row in rows)


def attempt(act):
    try:
        return act(), None
    except BaseException as error:  # some clients panic past Exception
        lines = (type(error).__name__ + ": " + str(error)).splitlines()
        return None, " ".join(line.strip() for line in lines)[:300]


def read(client, path, columns, rows, days=()):
    """None, or what of the answer is wrong: rows, count, filter."""
    days = [columns.index(name) for name in days]
    client.open(path)
    if texts(client.rows(columns), days) != texts(rows, days):
        return "rows"
    if client.count() != len(rows):
        return "count"
    numbers = [row[0] for row in rows if isinstance(row[0], int)]
    if numbers:
        value = numbers[len(numbers) // 2]
        found = texts(client.where(columns, columns[0], value), days)
        if found != texts((row for row in rows if row[0] == value), days):
            return "filter"
    return None


def main():
    name, folder = sys.argv[1:3]
    with open(os.path.join(folder, "expected.json")) as file:
        expected = json.load(file)
    for table in sys.argv[3:] or sorted(expected):
        value = expected[table]
        if isinstance(value, list):
            value = {"columns": ["id"], "rows": [[number] for number in value]}
        columns, rows, days = value["columns"], value["rows"], value.get("days", [])
        path = os.path.join(folder, table)
        client = ROUTES[name]()
        wrong, error = attempt(lambda: read(client, path, columns, rows, days))
        result = {"read": "no" if error else "wrong" if wrong else "yes", "why": error or wrong}
        if hasattr(client, "append"):
            row = dict(zip(columns, rows[0])) if rows else {columns[0]: 77}
            row = {name: value for name, value in row.items() if name not in days}
            with tempfile.TemporaryDirectory() as temporary:
                copy = os.path.join(temporary, table)
                shutil.copytree(path, copy)
                _, error = attempt(lambda: client.append(copy, row))
            result["write"], result["why_not_written"] = "no" if error else "yes", error
        print(json.dumps([table, result]), flush=True)


if __name__ == "__main__":
    main()
