#!/bin/sh
# Unpacks a MySQL server into a folder, for tests of captures: Debian has one in its suite sid only. Nothing is installed.
#
#   scripts/mysql.sh FOLDER                          some 60 MB, from where this machine's Debian packages come from
#   MYSQLD_BINARY=FOLDER/mysqld make test-full       tests capture MySQL too
#
# The server runs with the libraries that are unpacked beside it. Debian 12 or later.
set -eu
[ $# = 1 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p "$1/lists/partial" "$1/packages/partial" "$1/root"
cd "$1"
here=$(pwd)
: >status # of dpkg: as if nothing were installed, so that every library comes along
archive=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | head -n 1)
[ -n "$archive" ] || { echo "mysql: apt knows no source of Debian; run: apt-get update" >&2; exit 1; }
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $archive sid main" >sources.list
apt() {
    apt-get -qq -o Dir::Etc::sourcelist="$here/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$here/lists" \
        -o Dir::State::status="$here/status" -o Dir::Cache="$here" -o Dir::Cache::archives="$here/packages" \
        -o Debug::NoLocking=1 -o APT::Sandbox::User= "$@" >&2
}
apt update
apt install --yes --download-only --no-install-recommends mysql-server-core
for package in packages/*.deb; do dpkg -x "$package" root; done
cat >mysqld <<'END'
#!/bin/sh
root=$(dirname "$(readlink -f "$0")")/root
first=
if [ "${1:-}" = --no-defaults ]; then first=$1; shift; fi
exec "$root"/usr/lib64/ld-linux-*.so.* --library-path "$(echo "$root"/usr/lib/*-linux-gnu*)" "$root/usr/sbin/mysqld" $first \
    --lc-messages-dir="$root/usr/share/mysql" --character-sets-dir="$root/usr/share/mysql/charsets" \
    --plugin-dir="$root/usr/lib/mysql/plugin" "$@"
END
chmod +x mysqld
rm -rf packages lists status sources.list
./mysqld --version
