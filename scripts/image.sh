#!/bin/sh
# Builds the image of deploy/Containerfile and tries it: as its own user, on a read-only root, in a network of its own,
# with its health check, and mirrors a table. Needs root and buildah; runs no container engine.
#
#   scripts/image.sh                  the base image as the Containerfile names it
#   BASE=NAME scripts/image.sh        another base image
#   BASE=debootstrap scripts/image.sh  a base made of Debian's packages by mmdebstrap, where no registry can be reached
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

if [ "${BASE:-}" = debootstrap ]; then
    command -v mmdebstrap >/dev/null || { say "needs mmdebstrap"; exit 2; }
    mmdebstrap --quiet --variant=minbase --include=ca-certificates bookworm "$work/base.tar"
    BASE=localhost/debian
    made=$(buildah from scratch)
    buildah add -q "$made" "$work/base.tar" / >/dev/null
    buildah commit -q --rm "$made" "$BASE" >/dev/null
fi
# the format `docker` has a health check, OCI's has none
buildah build -q --format docker ${BASE:+--build-arg "BASE=$BASE"} ${BUILD:-} -f deploy/Containerfile -t "$name" . >/dev/null
say "built: $(buildah images --format '{{.Size}}' "$name")"

container=$(buildah from "$name")
root=$(buildah mount "$container")
user=$(buildah inspect --format '{{.Docker.Config.User}}' "$container")
buildah inspect --format '{{json .Docker.Config.Healthcheck.Test}}' "$container" >"$work/health"
buildah inspect --format '{{json .Docker.Config.Entrypoint}}' "$container" >"$work/entry"
buildah inspect --format '{{json .Docker.Config.Cmd}}' "$container" >"$work/cmd"
mkdir -p "$work/lake" && chown "$(chroot "$root" id -u "$user"):$(chroot "$root" id -g "$user")" "$work/lake"
unshare --mount --net --pid --fork python3 scripts/image_try.py "$root" "$user" "$work"
say "works"
