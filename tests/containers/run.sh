#!/usr/bin/env bash
# `make test-containers`: compose.yaml in real containers, under podman with an engine, a storage
# and a network configuration of its own, so that nothing of yours is touched. Root on Debian or
# Ubuntu; takes some minutes the first time. `--or-say-why`: where that cannot be, print the reason
# and end with 0.
set -euo pipefail
cd "$(dirname "$0")/../.."

or_say_why=
if [ "${1:-}" = --or-say-why ]; then
    or_say_why=yes
    shift
fi

not_here() {
    echo "containers cannot be tested here: $1" >&2
    [ -n "$or_say_why" ] && exit 0
    exit 1
}

packages=(podman runc netavark aardvark-dns iptables uidmap debootstrap ca-certificates)
store=${VYSTAK_CONTAINERS:-/var/tmp/vystak-turns-containers}
base=localhost/vystak-turns-base:bookworm
compose=$PWD/.venv/bin/docker-compose
log=$store/log

[ "$(uname -s)" = Linux ] || not_here "they need Linux"
[ "$(id -u)" = 0 ] || not_here "the tests start an engine of their own, which only root can"
[ -x "$compose" ] || not_here "there is no Compose binary for this platform"
mkdir -p "$store"

missing=()
for package in "${packages[@]}"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok' ||
        missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
    command -v apt-get >/dev/null || not_here "please install ${missing[*]}"
    echo "== installing ${missing[*]}"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
        --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 ||
        not_here "apt-get failed: $(tail -n 1 "$log")"
fi

cat >"$store/containers.conf" <<END
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = "$store/tmp"
[network]
network_backend = "netavark"
network_config_dir = "$store/networks"
END
export CONTAINERS_CONF=$store/containers.conf
export VYSTAK_TEST_PODMAN="podman --root $store/root --runroot $store/run"

if ! $VYSTAK_TEST_PODMAN image exists "$base" 2>/dev/null; then
    echo "== making the base image (some minutes, once)"
    root=$(mktemp -d "$store/base.XXXXXX")
    debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates \
        bookworm "$root" >"$log" 2>&1 || not_here "debootstrap failed: $(tail -n 1 "$log")"
    # A build reaches the package index through whatever this machine trusts.
    cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
    rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
    tar -C "$root" -c . | $VYSTAK_TEST_PODMAN import -q - "$base" >"$log" 2>&1 ||
        not_here "podman import failed: $(tail -n 1 "$log")"
    rm -rf "$root"
fi
$VYSTAK_TEST_PODMAN run --rm --network none "$base" true >"$log" 2>&1 ||
    not_here "a container does not start: $(tail -n 1 "$log")"

export DOCKER_HOST=unix://$store/podman.sock
export VYSTAK_BASE_IMAGE=$base
$VYSTAK_TEST_PODMAN system service --time 0 "$DOCKER_HOST" >"$store/service.log" 2>&1 &
engine=$!
# podman leaves health checks to systemd's timers; there may be no systemd.
while sleep 0.5; do
    for container in $($VYSTAK_TEST_PODMAN ps -q 2>/dev/null); do
        timeout 10 $VYSTAK_TEST_PODMAN healthcheck run "$container" || true
    done
done >/dev/null 2>&1 &
checks=$!
trap 'kill $checks $engine 2>/dev/null || true' EXIT

sh docker/secrets.sh
.venv/bin/python -m pytest tests/containers --timeout 600 "$@"
