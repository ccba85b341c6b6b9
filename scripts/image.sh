#!/bin/sh
# Builds the image of deploy/Containerfile and tries it: as its own user, on a read-only root, in a network of its own,
# with its health check, and mirrors a table. Needs root and buildah; runs no container engine.
#
#   scripts/image.sh                  on the base image that the Containerfile names
#   BASE=made scripts/image.sh        that base is made of Debian's packages by mmdebstrap, where no registry can be reached
#   BUILD="-v /etc/pip.conf:/etc/pip.conf:ro" scripts/image.sh   more words for `buildah build`
set -eu
cd "$(dirname "$0")/.."
name=localhost/lakemirror
export BUILDAH_ISOLATION="${BUILDAH_ISOLATION:-chroot}" STORAGE_DRIVER="${STORAGE_DRIVER:-vfs}"
work=$(mktemp -d)
container=
say() { printf 'image: %s\n' "$*" >&2; }
end() {
    [ -z "$container" ] || buildah rm "$container" >/dev/null
    rm -rf "$work"
}
trap end EXIT
[ "$(id -u)" = 0 ] && command -v buildah >/dev/null || { say "needs root and buildah"; exit 2; }

if [ "${BASE:-}" = made ]; then
    command -v mmdebstrap >/dev/null || { say "needs mmdebstrap"; exit 2; }
    mmdebstrap --quiet --variant=minbase --include=ca-certificates bookworm "$work/base.tar"
    made=$(buildah from scratch)
    buildah add -q "$made" "$work/base.tar" / >/dev/null
    buildah commit -q --rm "$made" "$(sed -n 's/^FROM //p' deploy/Containerfile)" >/dev/null
fi
# the format `docker` has a health check, OCI's has none
buildah build -q --pull=false --format docker ${BUILD:-} -f deploy/Containerfile -t "$name" . >/dev/null
say "built: $(buildah images --format '{{.Size}}' "$name")"

container=$(buildah from "$name")
root=$(buildah mount "$container")
buildah inspect "$container" >"$work/image.json"
unshare --mount --net --pid --fork python3 scripts/image_try.py "$root" "$work"
say "works"
