# ruff: noqa
"""Run inside another client's Python: reads and appends to the tables of a folder, prints what happened as JSON.

    python probe.py CLIENT FOLDER      CLIENT: deltalake-pyarrow, deltalake-datafusion, duckdb, polars, daft, chdb

Every table has rows with a column `id`; `expected.json` beside the tables holds the sorted ids of each.
"""

import glob
import json
import os
import shutil
import sys
import tempfile


def read_deltalake_pyarrow(path):
    from deltalake import DeltaTable

    return DeltaTable(path).to_pyarrow_table().column("id").to_pylist()


def read_deltalake_datafusion(path):
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder

    batches = QueryBuilder().register("t", DeltaTable(path)).execute("select id from t")
    batches = batches.read_all() if hasattr(batches, "read_all") else batches
    return (
        pa.table(batches).column("id").to_pylist()
        if not isinstance(batches, list)
        else [value for batch in batches for value in batch.column("id").to_pylist()]
    )


def write_deltalake_pyarrow(path):
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake

    fields = DeltaTable(path).schema()
    fields = fields.to_pyarrow() if hasattr(fields, "to_pyarrow") else pa.schema(fields.to_arrow())
    columns = {f.name: pa.array([777 if f.name == "id" else None], f.type) for f in fields}
    write_deltalake(path, pa.table(columns), mode="append")


def duck():
    import duckdb

    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    import duckdb_extension_delta

    folder = os.path.dirname(duckdb_extension_delta.__file__)
    found = glob.glob(os.path.join(folder, "**", "*.duckdb_extension*"), recursive=True)
    connection.execute("LOAD '%s'" % found[0])
    return connection


def read_duckdb(path):
    return [row[0] for row in duck().execute("select id from delta_scan('%s')" % path).fetchall()]


def write_duckdb(path):
    connection = duck()
    connection.execute("ATTACH '%s' AS t (TYPE delta)" % path)
    names = [row[0] for row in connection.execute("describe select * from t").fetchall()]
    values = ", ".join("777" if name == "id" else "NULL" for name in names)
    connection.execute("INSERT INTO t VALUES (%s)" % values)


def read_polars(path):
    import polars

    return polars.scan_delta(path).select("id").collect()["id"].to_list()


def read_daft(path):
    import daft

    return daft.read_deltalake(path).select("id").to_pydict()["id"]


def read_chdb(path):
    import chdb

    text = str(chdb.query("select id from deltaLakeLocal('%s') format TSV" % path))
    return [None if line == "\\N" else int(line) for line in text.split()]


def count_chdb(path):
    import chdb

    return int(str(chdb.query("select count() from deltaLakeLocal('%s') format TSV" % path)))


ROUTES = {
    "deltalake-pyarrow": (read_deltalake_pyarrow, write_deltalake_pyarrow),
    "deltalake-datafusion": (read_deltalake_datafusion, write_deltalake_pyarrow),
    "duckdb": (read_duckdb, write_duckdb),
    "polars": (read_polars, None),
    "daft": (read_daft, None),
    "chdb": (read_chdb, None),
}


def attempt(act):
    try:
        return act(), None
    except BaseException as error:  # some clients panic past Exception
        return None, (type(error).__name__ + ": " + str(error)).splitlines()[0][:200]


def main():
    client, folder = sys.argv[1:3]
    read, write = ROUTES[client]
    with open(os.path.join(folder, "expected.json")) as file:
        expected = json.load(file)
    results = {}
    for name, ids in expected.items():
        path = os.path.join(folder, name)
        found, error = attempt(lambda path=path: sorted(read(path), key=lambda v: (v is None, v)))
        result = {"read": "no" if error else "yes" if found == ids else "wrong", "why": error}
        if result["read"] == "yes" and client == "chdb" and count_chdb(path) != len(ids):
            result["read"] = "wrong"
        if write is not None:
            with tempfile.TemporaryDirectory() as temporary:
                copy = os.path.join(temporary, name)
                shutil.copytree(path, copy)
                _, error = attempt(lambda copy=copy: write(copy))
                result["write"], result["why_not_written"] = "no" if error else "yes", error
        results[name] = result
    print(json.dumps(results))


if __name__ == "__main__":
    main()
