#!/bin/sh
# Makes .venv with pinned and hash-checked packages and lakemirror itself, and what else is asked for.
# Debian or Ubuntu with Python 3.10 or later. Run again at any time: what is done already takes a moment.
#
#   scripts/install.sh              mirroring by the local engine, tests that start no JVM
#   scripts/install.sh java         Java too, for Spark
#   scripts/install.sh java jars    and Delta's jars, for table features by SQL, and for tests
#   scripts/install.sh postgresql   and a PostgreSQL server, for tests of captures; without it they are skipped
#   scripts/install.sh mariadb      and a MariaDB server, for the same
#   scripts/install.sh all          all of it; without Java or the jars it says what does not work, and goes on
#   PYTHON=python3.12 scripts/install.sh   picks the Python
set -eu
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*" >&2; }
fail() { say "install: $*"; exit 1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo -n "$@"
    else return 1
    fi
}

apt_updated=
apt_install() {
    command -v apt-get >/dev/null || return 1
    as_root true || return 1
    if [ -z "$apt_updated" ]; then
        as_root apt-get update -qq >&2 || return 1
        apt_updated=yes
    fi
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2
}

fits() { "$1" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' 2>/dev/null; }

find_python() {
    for name in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.10}; do
        if command -v "$name" >/dev/null && fits "$name"; then
            command -v "$name"
            return
        fi
    done
    fail "no Python 3.10 to 3.13 found${PYTHON:+ under the name $PYTHON}; name one: PYTHON=python3.12 make install"
}

make_venv() {
    python=$(find_python)
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        apt_install "python$version-venv" ||
            fail "$python cannot make virtual environments; as root: apt-get install python$version-venv"
    fi
    say "install: .venv with $("$python" --version)"
    "$python" -m venv .venv
    pwd >.venv/.made-in
}

# What the packages in .venv follow from. A folder that was moved has scripts that point to its old place.
wanted() { cat requirements/*.txt pyproject.toml | cksum; pwd; }

install_packages() {
    if [ -f .venv/.made-in ] && [ "$(cat .venv/.made-in)" != "$(pwd)" ]; then
        rm -rf .venv
    fi
    if [ "$(cat .venv/.installed 2>/dev/null)" = "$(wanted)" ] && .venv/bin/python -c '' 2>/dev/null; then
        return
    fi
    if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
        rm -rf .venv
        make_venv
    fi
    rm -f .venv/.installed
    say "install: packages; the first time some 600 MB are downloaded, which takes minutes"
    pip="$PWD/.venv/bin/python -m pip --disable-pip-version-check"
    shown $pip install --require-hashes -r requirements/build.txt
    # without build isolation, so that nothing that is not locked comes in to build what has no wheel
    shown $pip install --require-hashes --no-build-isolation -r requirements/dev.txt
    $pip install -q --no-deps --no-build-isolation --editable .
    wanted >.venv/.installed
}

# Runs pip, and shows on a terminal which package it fetches; elsewhere a line for every twenty packages. Its errors are shown.
shown() {
    rm -f .venv/.done
    { "$@" --progress-bar off && touch .venv/.done; } | awk '
        /^Collecting /  { n++; name = $2; sub(/[=<>!;].*/, "", name); show() }
        /^ *Downloading / { size = $NF == "" ? "" : " " $(NF - 1) " " $NF; show(size) }
        /^Installing collected/ { name = "unpacking all"; show() }
        function show(more) {
            if (terminal) printf "\r\033[Kinstall: package %d: %s%s", n, name, more > "/dev/stderr"
            else if (n % 20 == 0 && n != last) { last = n; printf "install: package %d\n", n > "/dev/stderr" }
        }
        BEGIN { terminal = system("test -t 2") == 0 }
        END { if (terminal) printf "\r\033[K" > "/dev/stderr" }'
    [ -f .venv/.done ] || fail "pip could not install the packages; see its error above"
    rm -f .venv/.done
}

has_java() { .venv/bin/python -c 'from lakemirror.spark_session import java; java.find()' 2>/dev/null; }

install_java() {
    has_java && return
    say "install: Java"
    apt_install openjdk-17-jre-headless || apt_install openjdk-21-jre-headless || true
    has_java
}

install_jars() { .venv/bin/python -m lakemirror.spark_session.jars >/dev/null; } # says itself why it cannot

# The server's programs alone: Debian's package would also make a cluster and run it.
install_postgresql() {
    ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 && return
    say "install: PostgreSQL"
    apt_install postgresql-common || return 1
    settings=/etc/postgresql-common/createcluster.conf
    as_root cp -p "$settings" "$settings.before"
    as_root sh -c "echo 'create_main_cluster = false' >>$settings"
    apt_install postgresql || true
    as_root mv "$settings.before" "$settings"
    ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1
}

# The server's program alone, which nothing starts.
install_mariadb() {
    PATH="$PATH:/usr/sbin" command -v mariadbd >/dev/null && return
    say "install: MariaDB"
    apt_install mariadb-server-core mariadb-client-core
}

no_java="Spark needs Java 17 (or 21); as root: apt-get install openjdk-17-jre-headless"

install_packages
for part; do
    case $part in
    java) install_java || fail "$no_java" ;;
    jars) install_jars || fail "no Delta jars, which table features by SQL and their tests need; 'make demo' and 'make test-unit' do not" ;;
    postgresql)
        install_postgresql || say "install: no PostgreSQL: tests of captures are skipped. As root: apt-get install postgresql"
        ;;
    mariadb)
        install_mariadb || say "install: no MariaDB: its tests are skipped. As root: apt-get install mariadb-server-core"
        ;;
    all)
        if ! install_java; then
            say "install: no Java: the local engine works, Spark does not. $no_java"
        else
            install_jars || say "install: no Delta jars: mirroring works, table features by SQL do not until this is run again"
            .venv/bin/python -m lakemirror.spark_session.class_archive --background
        fi
        ;;
    *) fail "$part is not java, jars, postgresql, mariadb or all" ;;
    esac
done
