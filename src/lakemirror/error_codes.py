"""Every code of an error, once. A row of `CODES` decides what the message does not say.

That is: whether trying again can help, the exit code, the HTTP status and the hint.
"""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """What a code means for whoever meets it.

    `retry`: the same attempt may succeed later without anybody doing anything (a concurrent commit, a store that
    does not answer). `exit_code`: of a command that ends with it (0 done, 1 failed, 2 usage, 3 a table needs
    attention, 4 not yet). `http_status`: of the service. `hint`: the command or edit that helps.
    """

    retry: bool
    exit_code: int
    http_status: int
    hint: str


CODES: dict[str, Kind] = {
    # the landing zone: metadata
    "metadata-invalid": Kind(
        False,
        3,
        422,
        "Correct _metadata.json, or mirroring.json where the message names it; the table goes on by itself.",
    ),
    "key-columns-changed": Kind(
        False, 3, 409, "Put the first list back into _metadata.json, or delete the table folder and publish it again."
    ),
    "not-supported": Kind(
        False,
        3,
        501,
        "Publish Parquet files in one sequence, to a local folder, an object store or a service.",
    ),
    "detection-strategy-changed": Kind(
        False,
        3,
        409,
        "Put the first strategy back into _metadata.json, or delete the table folder and publish it again.",
    ),
    # the landing zone: files
    "file-unreadable": Kind(False, 3, 422, "Delete the file and put a complete one under the same name."),
    "file-too-large": Kind(
        False, 3, 413, "Raise the setting `memory`, or replace the file by one with smaller values, lists and pages."
    ),
    "file-ambiguous": Kind(False, 3, 409, "Delete one of the two files with this number."),
    "cut-invalid": Kind(
        False, 3, 422, "Correct the manifest, or delete it. Tables go on without it, and later cuts count."
    ),
    "cut-unknown": Kind(False, 2, 404, "Run `lakemirror cuts DB` for the numbers of the cuts."),
    "table-name-ambiguous": Kind(
        False, 3, 409, "Rename one of the two table folders: both become the same Delta table."
    ),
    "table-name-invalid": Kind(False, 3, 422, "Rename the table folder to a name in UTF-8."),
    "path-refused": Kind(
        False,
        3,
        409,
        "Put a regular file or a real folder in its place: links, FIFOs, sockets, devices are not opened.",
    ),
    "listing-too-large": Kind(False, 3, 507, "Delete files that nobody needs, or make the folders less deep."),
    "content-too-large": Kind(False, 3, 413, "Make the file smaller."),
    # rows and columns
    "row-marker-invalid": Kind(
        False, 3, 422, "Row markers are 0 insert, 1 update, 2 delete, 4 upsert: replace the file under the same name."
    ),
    "row-marker-misspelt": Kind(
        False,
        3,
        422,
        "Replace the file by one whose column is named __rowMarker__, or set row_marker_misspelt to column.",
    ),
    "partial-row-invalid": Kind(
        False,
        3,
        422,
        "__unchangedColumns__ lists columns, on updates and upserts alone, and no key columns: replace the file under "
        "the same name.",
    ),
    "partial-row-missing": Kind(
        False,
        3,
        422,
        "Replace the file by one with the complete row, or set partial_row_missing to null.",
    ),
    "sequence-null": Kind(
        False, 3, 422, "Replace the file by one in which every row has a value in the columns of the sequence."
    ),
    "sequence-missing": Kind(
        False,
        3,
        422,
        "Replace the file by one that has every column of the sequence, or correct `sequence` in _metadata.json.",
    ),
    "deletes-mode-changed": Kind(
        False,
        3,
        409,
        "Put `deletes`: `soft` back, or run `lakemirror resync DB TABLE --purge-deleted` to remove the deleted rows, "
        "or `lakemirror resync DB TABLE` to build the table again.",
    ),
    "key-columns-missing": Kind(
        False, 3, 422, "Declare keyColumns in _metadata.json: updates, deletes and upserts need them."
    ),
    "key-column-absent": Kind(False, 3, 422, "Replace the file by one that holds every key column."),
    "columns-ambiguous": Kind(False, 3, 422, "Replace the file by one whose column names differ by more than case."),
    "column-name-reserved": Kind(
        False, 3, 422, "Rename the column at its source, or take the option under lakemirror out of _metadata.json."
    ),
    "column-name-invalid": Kind(
        False,
        3,
        422,
        "Replace the file by one with another name for the column: not empty, without NUL, space , ; { } ( ) = tab or "
        "newline. A publisher of lakemirror renames by --names plain.",
    ),
    "column-undeclared": Kind(
        False, 3, 422, "Name the column in SchemaDefinition, or set undeclared_columns to string."
    ),
    "type-changed": Kind(
        False, 3, 409, "Replace the file by one with the table's type, or delete the table folder and publish it again."
    ),
    "type-unsupported": Kind(False, 3, 422, "Replace the file by one that holds the column in another type."),
    "value-invalid": Kind(False, 3, 422, "Replace the file by one whose values fit the declared types."),
    "table-unknown": Kind(False, 2, 404, "Run `lakemirror status DB` for the names of the tables."),
    "file-replaced": Kind(
        False,
        3,
        409,
        "Put the earlier file back, with its time (cp -p), or its time alone (touch -d) if the content is the same. Or "
        "run `lakemirror history drop DB TABLE`: the history begins again with the rows that the table has.",
    ),
    "history-has-no-place": Kind(
        False, 3, 409, "Publish the file's rows again as a new change file, and delete it from _QuarantinedFiles."
    ),
    "history-incomplete": Kind(
        False,
        3,
        409,
        "Leave the history as it is: it goes on by itself. Or run `lakemirror history drop DB TABLE`: then it begins "
        "again with the rows that the table has.",
    ),
    "archive-incomplete": Kind(
        False,
        3,
        409,
        "Delete the table folder, and let the publisher send the whole table again, from number 1.",
    ),
    # a capture of a database
    "capture-taken": Kind(False, 4, 409, "End the other capture, or give this one another name: --name NAME."),
    "capture-position-lost": Kind(
        False, 3, 409, "Load the tables again: `lakemirror capture DB --from URL --reload all`."
    ),
    "capture-source-failed": Kind(True, 4, 503, "Look at the database's log; the capture tries again by itself."),
    "capture-registry-unavailable": Kind(
        True, 4, 503, "Look at the schema registry; the capture tries again by itself."
    ),
    "capture-extra-missing": Kind(False, 1, 501, 'Run `pip install "lakemirror[capture]"`.'),
    "capture-no-key": Kind(
        False,
        3,
        409,
        "Give the table a primary key, and load it again: `lakemirror capture DB --from URL --reload TABLE`.",
    ),
    "capture-schema-changed": Kind(
        False, 3, 409, "Load the table again: `lakemirror capture DB --from URL --reload TABLE`."
    ),
    "capture-value": Kind(False, 3, 422, "Correct the value in the source, or leave the table out: --exclude TABLE."),
    "capture-table-name": Kind(False, 3, 422, "Give the table's folder another name: --rename SCHEMA.TABLE=NAME."),
    "capture-not-ready": Kind(
        False, 2, 409, "Run the statements that `lakemirror capture check --from URL` prints, in the source."
    ),
    # the Delta table
    "target-foreign": Kind(
        False, 3, 409, "Move the existing Delta table away, or rename the table folder: lakemirror did not make it."
    ),
    "table-unreadable": Kind(
        False,
        3,
        500,
        "Check the path; restore the Delta table, or delete the table folder and publish it again. "
        "Move a history table away: it begins again.",
    ),
    "table-restored": Kind(
        False,
        3,
        409,
        "Run `lakemirror resync DB TABLE`, or delete the table folder and publish it again.",
    ),
    "table-feature-unsupported": Kind(
        False, 3, 501, "Run `lakemirror features drop PATH FEATURE`, or unset the property that the message names."
    ),
    "key-columns-missing-in-table": Kind(
        False,
        3,
        409,
        "Rename the column back, run `lakemirror resync DB TABLE`, or delete the table folder and publish it again.",
    ),
    "history-track-changed": Kind(
        False,
        3,
        409,
        "Run `lakemirror history build DB TABLE --from-processed`, put the old `track` back, or give the history "
        "another `name`: then a new table of versions begins.",
    ),
    "table-append-only": Kind(
        False,
        3,
        409,
        "Unset the property: ALTER TABLE … UNSET TBLPROPERTIES ('delta.appendOnly'). The table goes on by itself.",
    ),
    "constraint-violated": Kind(
        False,
        3,
        422,
        "Replace the file by one whose rows fulfil the constraint, or drop the constraint from the table.",
    ),
    "concurrent-commit": Kind(True, 3, 409, "Nothing to do: it is tried again."),
    # machine and configuration
    "storage-unavailable": Kind(True, 3, 503, "Check the store and the permissions; it is tried again."),
    "store-unsafe": Kind(
        False,
        1,
        501,
        "Use a store that keeps the condition `If-None-Match: *`: without it two engines could make one version twice.",
    ),
    "store-refused": Kind(
        True,
        1,
        403,
        "Give credentials by the store's environment variables, or --storage KEY=VALUE, and the permissions that "
        "docs/how-to/object-stores.md lists.",
    ),
    "bucket-missing": Kind(True, 2, 404, "Make the bucket or container, or correct its name and the endpoint."),
    "stores-extra-missing": Kind(False, 1, 500, "Install it: pip install 'lakemirror[stores]'"),
    "definition-invalid": Kind(False, 2, 422, "Correct mirroring.json."),
    "setting-invalid": Kind(
        False,
        2,
        422,
        "Correct the value; `lakemirror config DB` lists the settings, and --help the options of a command.",
    ),
    "database-missing": Kind(
        False, 2, 404, "Give the folder that holds Files/LandingZone, or make one: lakemirror init DB."
    ),
    "address-unsupported": Kind(
        False, 2, 501, "Give a local folder, or an address of s3://, az://, abfss:// or gs://."
    ),
    "java-missing": Kind(False, 1, 500, "Install Java 17, for example: apt-get install openjdk-17-jre-headless"),
    "pyspark-missing": Kind(False, 1, 500, "Install it: pip install 'lakemirror[spark]', or set `engine` to local."),
    "jars-missing": Kind(
        False, 1, 500, "Run the same command once with network access, or name the jars: LAKEMIRROR_JARS=a.jar,b.jar"
    ),
    "spark-unsupported": Kind(
        False, 1, 500, "Let lakemirror start Spark itself, or give a session with delta-spark on its class path."
    ),
    "spark-needed": Kind(
        False, 3, 409, "Set `engine` to auto or spark, or drop the constraint that the message names."
    ),
    "spark-workers": Kind(
        False, 1, 500, "Set PYSPARK_PYTHON, before the session starts, to a Python with pyarrow and numpy."
    ),
    "spark-job-failed": Kind(True, 1, 502, "Look at the job in Spark's pages or logs; it is tried again."),
    "spark-failed": Kind(
        False, 1, 500, "Run `lakemirror doctor`; look at driver_memory, master, spark_remote and the spark.* settings."
    ),
    "memory-exhausted": Kind(
        True, 1, 507, "Lower parallel_tables or batch_bytes, or give the process more memory; it is tried again."
    ),
    "internal": Kind(True, 1, 500, "Report it with the log; nothing of the failing batch was applied."),
    # publishing
    "input-invalid": Kind(
        False,
        2,
        422,
        "Give rows as Arrow data, a frame of pandas, polars, DuckDB or Spark, or dicts; "
        "files as Parquet, CSV, .xlsx, JSON lines or Arrow IPC.",
    ),
    "publish-conflict": Kind(True, 1, 409, "Another program changed the table folder just now: publish again."),
    "stream-restarted": Kind(
        False,
        1,
        409,
        "Give the stream a new name (the second argument, or queryId), or say that a new run goes on under the old "
        'one: run="2" of publish_each_batch, .option("run", "2") of writeStream.',
    ),
    "credential-invalid": Kind(
        False,
        2,
        401,
        "Name the JSON file that `lakemirror access ROOT add` printed: --credential, LAKEMIRROR_CREDENTIAL.",
    ),
    "keys-not-unique": Kind(False, 1, 422, "A snapshot holds one row per key: correct the query or the key columns."),
    "snapshot-state-lost": Kind(
        False, 1, 409, "Recreate the table and publish the snapshot again: `table.recreate()`, or --recreate."
    ),
    "sql-driver-missing": Kind(False, 1, 500, "Install the drivers: pip install 'lakemirror[sql]'"),
    "sql-failed": Kind(True, 1, 502, "Check the query and the URL; nothing was published."),
    "excel-reader-missing": Kind(False, 1, 500, "Install it: pip install 'lakemirror[publish]'"),
    "demo-data-missing": Kind(False, 1, 500, "Install the demo's data: pip install 'lakemirror[demo]'"),
    # queries
    "query-extra-missing": Kind(False, 1, 500, "Install it: pip install 'lakemirror[query]'"),
    "query-failed": Kind(False, 1, 422, "Correct the statement; `lakemirror tables DB` shows the tables' names."),
    # catalogs
    "catalog-name-taken": Kind(
        False, 3, 409, "Drop or rename what has this name, or choose another with --schema; then register again."
    ),
    "catalog-refused": Kind(
        False, 3, 422, "Look at the reason that Spark gives: a name that the catalog allows, or a right to write there."
    ),
    # the service
    "service-extra-missing": Kind(False, 1, 500, "Install it: pip install 'lakemirror[service]'"),
    "service-option-invalid": Kind(False, 2, 422, "Correct the option; `lakemirror serve --help` lists them."),
    "root-in-use": Kind(False, 1, 409, "Stop the other process, or serve another folder."),
    "listen-failed": Kind(False, 1, 500, "Choose a free port and an address of this machine: --port, --host."),
    "principal-invalid": Kind(
        False, 2, 422, "Give a name of [a-z0-9]{3,24}, and roles: --role WORKSPACE=read or WORKSPACE=contribute."
    ),
    "principal-missing": Kind(False, 2, 404, "`lakemirror access ROOT list` shows the names."),
    # table features
    "feature-unknown": Kind(False, 2, 404, "See docs/reference/table-features.md for the names."),
    "feature-absent": Kind(False, 3, 404, "Nothing to drop; `lakemirror features list PATH` shows what is there."),
    "client-unknown": Kind(False, 2, 404, "See docs/reference/clients.md for the names and versions."),
    "statement-invalid": Kind(False, 2, 400, "Write: ALTER TABLE <table> DROP FEATURE <feature> [TRUNCATE HISTORY]"),
    "target-unreachable": Kind(False, 3, 409, "Copy the rows into a new table, or name another client."),
    "feature-not-droppable": Kind(False, 3, 409, "Copy the rows into a new table: CREATE TABLE … AS SELECT."),
    "feature-in-use": Kind(False, 3, 409, "Run the named statements, then the same command again."),
    "feature-needed": Kind(False, 3, 409, "Drop the features that need it in the same command."),
    "feature-history": Kind(
        False,
        3,
        409,
        "Leave out TRUNCATE HISTORY: it is for features that readers must know, and checkpointProtection.",
    ),
    "features-unsafe": Kind(
        False, 3, 409, "Drop them with the program that made the table, or copy its rows into a new table."
    ),
    "confirmation-needed": Kind(False, 3, 409, "Read the plan, then run the same command with --yes."),
    "column-names-invalid": Kind(False, 3, 409, "Rename the columns first: ALTER TABLE … RENAME COLUMN … TO …"),
    "drop-unproven": Kind(False, 3, 500, "The table differs from the plan: look at its history before going on."),
}
