#!/usr/bin/env bash
# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Test hosts: podman containers whose first process is systemd, reached by ssh as the user `ops` with sudo.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: hosts.sh tools                                install what is missing here (apt, after saying what and why)
       hosts.sh image [bookworm|trixie]              make the image of a release, if it is not there yet
       hosts.sh up NAME... [--release bookworm|trixie] [--volume HOSTDIR:DIR[:ro]]...
                                                     make and start hosts; a host that runs already is left as it is
       hosts.sh restart NAME                         power cycle: a new boot, the same disk
       hosts.sh exec NAME COMMAND...                 run a command as root, without ssh
       hosts.sh ssh NAME [COMMAND...]                the same way as Ansible goes: ssh as ops
       hosts.sh list | inventory                     running hosts | path of their Ansible inventory, written anew
       hosts.sh down NAME... | --all                 remove hosts of this checkout
       hosts.sh clean                                remove hosts, images, volumes and caches

environment: HOSTS_IMAGE     an image to use instead of a debootstrap of our own (see Containerfile)
             HOSTS_STATE     state of this checkout's hosts   (default: .build/hosts in the checkout)
             GPUFLEET_CACHE  images, engines, models          (default: ~/.cache/gpufleet-sglang)
Every host mounts   CACHE/engines/RELEASE  at /opt/sglang/engines
                    CACHE/models/NAME      at /srv/models/NAME, read-only (the models that are there when it is made)
                    CACHE/wheels           at /srv/wheels, read-only
TEXT
}

HERE=$(cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CHECKOUT=$(cd -P "$HERE/../../.." && pwd)
STATE=${HOSTS_STATE:-$CHECKOUT/.build/hosts}
CACHE=${GPUFLEET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gpufleet-sglang}
PYTHON=${HOSTS_PYTHON:-python3}
CHECKOUT_ID=$(printf '%s' "$CHECKOUT" | sha256sum | cut -c1-6)
PREFIX=gpufleet-$CHECKOUT_ID
LABEL=gpufleet.sglang
NAMESPACE=/run/gpufleet-sglang/mnt # the private mount namespace, where one is needed
IMAGE_REPOSITORY=localhost/gpufleet-sglang-host
PACKAGES=systemd,systemd-sysv,dbus,openssh-server,sudo,python3,python3-venv,ca-certificates,iproute2,procps
PACKAGES+=,libnuma1,libgomp1,gcc,g++ # what SGLang loads on a CPU, and what takes long to install
LIMIT_PROCESSES=10000

say() { printf 'hosts: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }
# Runs programs, never a function of ours of the same name.
as_root() { if [ "$(id -u)" -eq 0 ]; then command "$@"; else sudo --preserve-env=PATH "$@"; fi; }

# --- this machine ------------------------------------------------------------------------------------------------

tools() {
  local missing=() item check package reason
  for item in \
    "podman|podman|runs the test hosts" \
    "/usr/lib/podman/netavark|netavark|gives them a network" \
    "/usr/lib/podman/aardvark-dns|aardvark-dns|lets them resolve each other by name" \
    "iptables|iptables|publishes their ssh ports" \
    "debootstrap|debootstrap|makes their image without a container registry" \
    "ssh|openssh-client|reaches them"; do
    IFS='|' read -r check package reason <<<"$item"
    if [[ $check == debootstrap && -n ${HOSTS_IMAGE:-} ]]; then continue; fi
    if [ -x "$check" ] || type -P "$check" >/dev/null || [ -x "/usr/sbin/$check" ]; then continue; fi
    say "needs $package: $reason"
    missing+=("$package")
  done
  if [ ${#missing[@]} -eq 0 ]; then return; fi
  type -P apt-get >/dev/null || die "this machine has no apt-get; install ${missing[*]} and try again"
  say "installing with apt-get: ${missing[*]}"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends crun "${missing[@]}" >&2
}

on_cgroup_v2() { [ "$(stat -fc %T /sys/fs/cgroup)" = cgroup2fs ]; }

# crun refuses the hybrid layout (v1 controllers beside a cgroup2 mount). There, everything that talks to podman runs in
# one private mount namespace with cgroup2 in the place of /sys/fs/cgroup. A file keeps the namespace: podman's own
# mounts live in it and must be seen by the next command. Detected; an ordinary machine never comes here.
enter_namespace() {
  if ! as_root nsenter --mount="$NAMESPACE" true 2>/dev/null; then
    local directory=${NAMESPACE%/*}
    as_root mkdir -p "$directory"
    # shellcheck disable=SC2016  # expanded by the inner shell
    as_root sh -c '
      mountpoint -q "$1" || mount --bind "$1" "$1"
      mount --make-private "$1"
      touch "$2"
      unshare --mount="$2" --propagation slave \
        sh -c "umount -R /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup"
    ' sh "$directory" "$NAMESPACE"
  fi
}

# A command as root where podman works.
there() {
  if on_cgroup_v2; then
    as_root "$@"
  else
    enter_namespace
    quiet nsenter --mount="$NAMESPACE" "$@"
  fi
}

podman() { there podman "$@"; }

# As podman, but in a cgroup of the host's own: without podman's cgroups all systemds would share one root, and units.
podman_in_cgroup() { # CGROUP ARGUMENT...
  local cgroup=/sys/fs/cgroup/$1
  shift
  if podman_makes_cgroups; then
    podman "$@"
  else
    # shellcheck disable=SC2016  # expanded by the inner shell
    there sh -c 'mkdir -p "$0"; echo $$ >"$0/cgroup.procs"; exec podman "$@"' "$cgroup" "$@"
  fi
}

# Podman's monitors complain that no syslog listens here. A file takes it, not a pipe, which they would keep open.
quiet() {
  local errors status=0
  errors=$(mktemp)
  as_root "$@" 2>"$errors" || status=$?
  grep -v 'failed to connect to syslog' "$errors" >&2 || true
  rm -f "$errors"
  return "$status"
}

# CAP_SYS_RESOURCE (bit 24): without it podman may not raise limits, as it does by default, for its cgroups too.
may_raise_limits() {
  local capabilities
  capabilities=$(as_root grep '^CapEff:' /proc/self/status | cut -f2)
  ((16#$capabilities >> 24 & 1))
}

podman_makes_cgroups() { on_cgroup_v2 && may_raise_limits; }

# Options that this machine needs, one a line.
run_options() {
  if ! podman_makes_cgroups; then printf '%s\n' --cgroups=disabled --cgroupns=private; fi
  if ! may_raise_limits; then
    printf '%s\n' "--ulimit=nofile=$(ulimit -Sn):$(ulimit -Hn)" "--ulimit=nproc=$LIMIT_PROCESSES:$LIMIT_PROCESSES"
  fi
  # AppArmor's profile for containers forbids the mounts that systemd makes for its units.
  if [ "$(cat /sys/module/apparmor/parameters/enabled 2>/dev/null)" = Y ]; then
    printf '%s\n' --security-opt=apparmor=unconfined
  fi
}

# One at a time in this checkout: ports, network, inventory. The lock is not handed on: podman's monitors would keep it.
locked() {
  if [ -n "${HOSTS_LOCKED:-}" ]; then
    "$@"
  else
    mkdir -p "$STATE"
    HOSTS_LOCKED=1 flock --close "$STATE/lock" bash "${BASH_SOURCE[0]}" "$@"
  fi
}

# --- image -------------------------------------------------------------------------------------------------------

make_rootfs() { # RELEASE DIRECTORY
  local release=$1 directory=$2 mirror
  mirror=$("$PYTHON" "$HERE/machine.py" --mirror "$release")
  # shellcheck disable=SC2086  # without a mirror of this machine debootstrap takes its own
  as_root debootstrap --variant=minbase --include="$PACKAGES" "$release" "$directory" $mirror \
    >"$CACHE/images/$release.log" 2>&1 || {
    tail -n 5 "$CACHE/images/$release.log" >&2
    say "debootstrap of $release failed; the whole log is $CACHE/images/$release.log"
    return 1
  }
  as_root find "$directory/var/cache/apt" "$directory/var/lib/apt/lists" -type f -delete
  as_root find "$directory/etc/ssh" -name 'ssh_host_*' -delete # every host gets a key of its own
  as_root truncate -s 0 "$directory/etc/machine-id"           # and an identity
  as_root rm -f "$directory/var/lib/dbus/machine-id"
}

remove_work() {
  if mountpoint -q "$1"; then as_root umount "$1"; fi
  as_root rm -rf "$1"
}

image_name() { # RELEASE -> the name holds a digest of what it was made from
  if [ -n "${HOSTS_IMAGE:-}" ]; then
    echo "$HOSTS_IMAGE"
  else
    echo "$IMAGE_REPOSITORY:$1-$({ echo "$PACKAGES"; declare -f make_rootfs; } | sha256sum | cut -c1-8)"
  fi
}

image() {
  local release=${1:-bookworm} name archive work
  name=$(image_name "$release")
  if podman image exists "$name"; then return; fi
  if [ -n "${HOSTS_IMAGE:-}" ]; then
    podman pull "$name" >&2
    return
  fi
  mkdir -p "$CACHE/images"
  archive=$CACHE/images/${name##*:}.tar
  if [ ! -e "$archive" ]; then
    say "making the image of Debian $release (debootstrap, one to two minutes)"
    work=$CACHE/images/work.$$
    mkdir -p "$work"
    # In memory where there is enough: dpkg waits for the disk after every file.
    if (($(awk '/^MemAvailable:/ {print $2}' /proc/meminfo) > 6 * 1024 * 1024)); then
      as_root mount -t tmpfs -o size=2g,mode=755 tmpfs "$work"
    fi
    make_rootfs "$release" "$work" || { remove_work "$work"; exit 1; }
    as_root tar -C "$work" -c . >"$archive.part.$$"
    rm -f "$CACHE/images/$release"-*.tar # made from what is no longer wanted
    mv "$archive.part.$$" "$archive"
    remove_work "$work"
  fi
  podman import --change 'CMD ["/sbin/init"]' "$archive" "$name" >/dev/null 2>&1 || die "podman cannot import $archive"
  say "image $name is ready"
}

# --- hosts -------------------------------------------------------------------------------------------------------

container() { echo "$PREFIX-$1"; }
running() { [ "$(podman container inspect -f '{{.State.Running}}' "$(container "$1")" 2>/dev/null)" = true ]; }

free_port() { # below the range from which outgoing connections take theirs
  "$PYTHON" - <<'PYTHON'
import random, socket
for port in random.sample(range(20000, 30000), 100):
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            continue
    print(port)
    break
PYTHON
}

# Runs first in the container: a container keeps the kernel's boot_id, by which Ansible and systemd tell one boot from
# the next; so each start gets a fresh one. /run is a tmpfs of the container.
FIRST='cp /proc/sys/kernel/random/uuid /run/boot_id && mount --bind /run/boot_id /proc/sys/kernel/random/boot_id
exec /sbin/init'

make_seed() { # NAME RELEASE -> directories to mount, one a line; files for the host in STATE/hosts/NAME/seed
  local directory=$STATE/hosts/$1 seed=$STATE/hosts/$1/seed
  rm -rf "$directory"
  mkdir -p "$seed/etc/ssh/sshd_config.d" "$seed/etc/ssh/authorized_keys" "$seed/etc/sudoers.d"
  [ -e "$STATE/id_ed25519" ] || ssh-keygen -q -t ed25519 -N '' -C gpufleet-test -f "$STATE/id_ed25519"
  ssh-keygen -q -t ed25519 -N '' -C "$1" -f "$seed/etc/ssh/ssh_host_ed25519_key"
  cp "$STATE/id_ed25519.pub" "$seed/etc/ssh/authorized_keys/ops"
  printf '%s\n' 'AuthorizedKeysFile /etc/ssh/authorized_keys/%u' 'PasswordAuthentication no' 'MaxStartups 100' \
    'MaxSessions 100' 'HostKey /etc/ssh/ssh_host_ed25519_key' >"$seed/etc/ssh/sshd_config.d/10-test.conf"
  echo 'ops ALL=(ALL) NOPASSWD: ALL' >"$seed/etc/sudoers.d/ops"
  "$PYTHON" "$HERE/machine.py" "$seed" "$2"
}

create() { # NAME RELEASE VOLUME...: a container with its files, not started
  local name=$1 release=$2 port line options=()
  shift 2
  mkdir -p "$CACHE/engines/$release" "$CACHE/models" "$CACHE/wheels"
  while read -r line; do options+=("$line"); done < <(run_options)
  while read -r line; do options+=(--volume "$line:$line:ro"); done < <(make_seed "$name" "$release" | grep .)
  # A volume for the journal: podman would put a tmpfs there, and a reboot would lose it.
  options+=(--volume /var/log/journal)
  for line in "$CACHE/engines/$release:/opt/sglang/engines" "$CACHE/wheels:/srv/wheels:ro" "$@"; do
    options+=(--volume "$line")
  done
  for line in "$CACHE"/models/*/config.json; do
    [ -e "$line" ] || continue
    line=$(dirname "$line")
    options+=(--volume "$line:/srv/models/${line##*/}:ro")
  done
  podman network exists "$PREFIX" || podman network create "$PREFIX" >/dev/null
  podman rm --force --volumes --time 0 "$(container "$name")" >/dev/null 2>&1 || true
  port=$(free_port)
  # SYS_ADMIN: systemd's sandboxing of units (ProtectSystem, PrivateTmp) works as on a real host.
  # restart: a host that reboots or powers off comes back; `down` removes it.
  podman_in_cgroup "$(container "$name")" create --name "$(container "$name")" --hostname "$name" --systemd=always \
    --label "$LABEL=$CHECKOUT" --label "$LABEL.name=$name" --label "$LABEL.port=$port" \
    --network "$PREFIX" --network-alias "$name" --publish "127.0.0.1:$port:22" \
    --cap-add SYS_ADMIN --cap-add NET_ADMIN --cap-add SYS_PTRACE --restart always \
    "${options[@]}" "$(image_name "$release")" \
    /bin/sh -c "$FIRST" >/dev/null
  echo "$port" >"$STATE/hosts/$name/port"
  echo "$release" >"$STATE/hosts/$name/release"
}

start() { # NAME: start, give it its files, wait until it is up
  local name=$1 state='' _try
  podman_in_cgroup "$(container "$name")" start "$(container "$name")" >/dev/null
  if [ -d "$STATE/hosts/$name/seed" ]; then
    chmod -R go-w,u+rwX,go+rX "$STATE/hosts/$name/seed"
    tar -C "$STATE/hosts/$name/seed" --owner=0 --group=0 -c . | podman exec -i "$(container "$name")" sh -c '
      tar -C / --no-overwrite-dir -x
      chmod 600 /etc/ssh/ssh_host_ed25519_key
      chmod 440 /etc/sudoers.d/ops
      id -u ops >/dev/null 2>&1 || useradd --create-home --shell /bin/bash ops'
    cp "$STATE/hosts/$name/seed/etc/ssh/ssh_host_ed25519_key.pub" "$STATE/hosts/$name/known"
    rm -rf "$STATE/hosts/$name/seed"
  fi
  for _try in $(seq 150); do
    state=$(podman exec "$(container "$name")" systemctl is-system-running 2>/dev/null || true)
    case $state in running | degraded) break ;; esac
    sleep 0.2
  done
  case $state in
    running) ;;
    degraded) say "$name runs, but units failed: see  hosts.sh exec $name systemctl --failed" ;;
    *) die "$name does not come up (systemd says '${state:-nothing}'); see  hosts.sh exec $name journalctl -b" ;;
  esac
}

up() {
  local release=bookworm volumes=() names=() started=() name began=$SECONDS
  while [ $# -gt 0 ]; do
    case $1 in
      --release) release=${2:?up --release needs bookworm or trixie}; shift 2 ;;
      --volume) volumes+=("${2:?up --volume needs HOSTDIR:DIR}"); shift 2 ;;
      -*) die "up does not know $1" ;;
      *) names+=("$1"); shift ;;
    esac
  done
  [ ${#names[@]} -gt 0 ] || die "up needs the name of a host"
  tools
  image "$release"
  for name in "${names[@]}"; do
    if running "$name"; then continue; fi
    started+=("$name")
    if [ -e "$STATE/hosts/$name/known" ] && podman container exists "$(container "$name")"; then
      start "$name" # made earlier, stopped since (this machine was off)
    else
      create "$name" "$release" "${volumes[@]}"
      start "$name"
    fi
  done
  inventory >/dev/null
  for name in "${names[@]}"; do
    reach "$name" true || die "$name runs but cannot be reached by ssh; see  hosts.sh exec $name journalctl -u ssh"
  done
  if [ ${#started[@]} -gt 0 ]; then say "up in $((SECONDS - began)) s: ${started[*]}"; fi
}

restart() {
  podman_in_cgroup "$(container "$1")" restart --time 10 "$(container "$1")" >/dev/null
  start "$1"
}

# Names of this checkout's hosts that have a port.
names() { for path in "$STATE"/hosts/*/known; do [ -e "$path" ] && basename "$(dirname "$path")"; done; true; }

inventory() {
  local name port common
  common="-F '$STATE/ssh_config'"
  : >"$STATE/known_hosts.part"
  : >"$STATE/ssh_config.part"
  printf '%s\n' '---' 'all:' '  hosts:' >"$STATE/inventory.yml.part"
  for name in $(names); do
    port=$(cat "$STATE/hosts/$name/port")
    echo "[127.0.0.1]:$port $(cut -d' ' -f1,2 "$STATE/hosts/$name/known")" >>"$STATE/known_hosts.part"
    printf '%s\n' "Host $name" "  HostName 127.0.0.1" "  Port $port" >>"$STATE/ssh_config.part"
    printf '%s\n' "    $name:" "      ansible_host: 127.0.0.1" "      ansible_port: $port" "      ansible_user: ops" \
      "      ansible_ssh_private_key_file: \"$STATE/id_ed25519\"" "      ansible_ssh_common_args: \"$common\"" \
      "      ansible_python_interpreter: /usr/bin/python3" >>"$STATE/inventory.yml.part"
  done
  [ -n "$(names)" ] || printf '%s\n' '---' 'all: {}' >"$STATE/inventory.yml.part"
  printf '%s\n' 'Host *' '  User ops' "  IdentityFile \"$STATE/id_ed25519\"" '  IdentitiesOnly yes' \
    "  UserKnownHostsFile \"$STATE/known_hosts\"" '  StrictHostKeyChecking yes' '  LogLevel ERROR' \
    >>"$STATE/ssh_config.part"
  for name in known_hosts ssh_config inventory.yml; do mv "$STATE/$name.part" "$STATE/$name"; done
  echo "$STATE/inventory.yml"
}

reach() { local name=$1; shift; ssh -F "$STATE/ssh_config" -o ConnectTimeout=10 "$name" "$@"; }

down() {
  local name selected=("$@")
  if [ "${1:-}" = --all ]; then
    mapfile -t selected < <(podman ps --all --filter "label=$LABEL=$CHECKOUT" --format '{{.Labels}}' |
      grep -oE "$LABEL\.name:[^] ]+" | cut -d: -f2; names)
  fi
  for name in "${selected[@]}"; do
    podman rm --force --volumes --time 0 --ignore "$(container "$name")" >/dev/null 2>&1 || true
    rm -rf "${STATE:?}/hosts/$name"
    podman_makes_cgroups || remove_cgroup "$(container "$name")"
  done
  if [ "${1:-}" = --all ]; then podman network rm --force "$PREFIX" >/dev/null 2>&1 || true; fi
  inventory >/dev/null
}

remove_cgroup() { # cgroups are removed from the leaves
  # shellcheck disable=SC2016  # expanded by the inner shell
  there sh -c '[ ! -d "$0" ] || find "$0" -depth -type d -exec rmdir {} +' "/sys/fs/cgroup/$1" 2>/dev/null || true
}

clean() {
  if type -P podman >/dev/null; then down --all; fi
  rm -rf "${STATE:?}"
  if ! type -P podman >/dev/null; then
    remove_caches
    return
  fi
  if [ -n "$(podman ps --all --quiet --filter "label=$LABEL")" ]; then
    say "another checkout has hosts; images and caches stay"
    return
  fi
  local image
  podman images --format '{{.Repository}}:{{.Tag}}' --filter "reference=$IMAGE_REPOSITORY" | while read -r image; do
    podman rmi --force "$image" >/dev/null </dev/null
  done
  on_cgroup_v2 || as_root umount "$NAMESPACE" "${NAMESPACE%/*}" || true
  remove_caches
}

remove_caches() {
  local part
  for part in images engines models models.lock wheels; do as_root rm -rf "${CACHE:?}/$part"; done
  rmdir "$CACHE" 2>/dev/null || true
}

command=${1:-help}
shift || true
case $command in
  tools) tools ;;
  image) tools; image "$@" ;;
  up) locked up "$@" ;;
  down) locked down "$@" ;;
  restart) [ $# -eq 1 ] || die "restart needs the name of a host"; locked restart "$@" ;;
  exec) name=$1; shift; podman_in_cgroup "$(container "$name")" exec -i "$(container "$name")" "$@" ;;
  ssh) reach "$@" ;;
  list) names ;;
  inventory) locked inventory ;;
  clean) locked clean ;;
  help | -h | --help) usage ;;
  *) usage >&2; exit 2 ;;
esac
