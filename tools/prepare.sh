# Makes what the test hosts need, once: programs of this machine, the image, the model, the played engine, and
# with --engine the volume with the real engine (which the first deployment would fill otherwise).
set -euo pipefail
# shellcheck source=tools/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$GPUFLEET_ROOT"
bash molecule/shared/hosts/hosts.sh image
bash molecule/shared/engine/cpu/prepare.sh
bash molecule/shared/engine/played/prepare.sh
[ "${1:-}" = --engine ] || exit 0

host=engine-maker
export ANSIBLE_COLLECTIONS_PATH=$GPUFLEET_BUILD/prepare/collections
bash tools/build.sh "$ANSIBLE_COLLECTIONS_PATH"
trap 'bash molecule/shared/hosts/hosts.sh down "$host"' EXIT
bash molecule/shared/hosts/hosts.sh up "$host"
printf '%s\n' '---' 'sglang:' '  hosts:' "    $host:" >"$GPUFLEET_BUILD/prepare/hosts.yml"
ansible-playbook molecule/shared/engine/install.yml --limit "$host" -i inventories/demo \
    -i "$(bash molecule/shared/hosts/hosts.sh inventory)" -i "$GPUFLEET_BUILD/prepare/hosts.yml" </dev/null
