#!/bin/sh
# Builds wheel and source distribution into dist/, installs each into an empty environment, and mirrors a table with it.
#
#   scripts/dist.sh                  the wheel alone, without extras
#   scripts/dist.sh full             also each extra by itself, and with the oldest dependencies that pyproject.toml allows
#   scripts/dist.sh sbom             also dist/sbom.json and dist/licences.txt of all that the wheel with its extras installs
#   PYTHON=python3.13 scripts/dist.sh   by another Python
set -eu
unset PYTHONPATH PYTHONHOME
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
tried=$(mktemp -d)
trap 'rm -rf "$tried"' EXIT

say() { printf 'dist: %s\n' "$*" >&2; }

# empty NAME: a new environment with nothing but pip
empty() {
    rm -rf "$tried/$1"
    "$python" -m venv "$tried/$1"
}

# smoke NAME WHAT [MODULE…]: mirrors a table by what is installed there
smoke() {
    name=$1 what=$2
    shift 2
    (cd "$tried" && "$tried/$name/bin/python" -I "$root/scripts/smoke.py" "$@") || { say "$what: fails"; exit 1; }
    say "$what: works"
}

# pip NAME WORD…: pip of that environment
pip() {
    name=$1
    shift
    "$tried/$name/bin/python" -m pip --disable-pip-version-check install -q "$@"
}

root=$(pwd)
rm -rf dist build
.venv/bin/python -c "from setuptools import build_meta as b; b.build_sdist('dist'); b.build_wheel('dist')" >/dev/null 2>&1 ||
    { say "the build fails; run: make packages"; exit 1; }
rm -rf build
wheel=$(ls "$root"/dist/*.whl) source=$(ls "$root"/dist/*.tar.gz)

empty plain && pip plain "$wheel" && smoke plain "the wheel without extras"
empty source && pip source "$source" && smoke source "the source distribution"

if [ "${1:-}" = full ]; then
    while read -r extra modules; do
        empty extra && pip extra "$wheel[$extra]"
        smoke extra "the extra $extra" $modules
    done <<EOF
stores obstore
sql adbc_driver_postgresql
publish openpyxl
query duckdb
service aiohttp prometheus_client
capture pydbzengine psycopg
mariadb pymysql
spark pyspark
connect grpc
EOF
    empty oldest && pip oldest uv
    "$tried/oldest/bin/uv" pip install -q --python "$tried/oldest/bin/python" --resolution lowest-direct "$wheel[stores,publish,service]"
    smoke oldest "the oldest dependencies that are allowed" obstore aiohttp
fi

if [ "${1:-}" = sbom ]; then
    empty bom && pip bom cyclonedx-bom
    empty all && pip all "$wheel[stores,sql,publish,query,service,capture,mariadb,spark,connect]"
    "$tried/bom/bin/cyclonedx-py" environment "$tried/all/bin/python" -o dist/sbom.json
    "$tried/all/bin/python" -I scripts/licences.py >dist/licences.txt
    say "dist/sbom.json, dist/licences.txt"
fi
say "$(ls dist | tr '\n' ' ')"
