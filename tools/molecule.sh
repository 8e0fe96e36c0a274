# Runs molecule scenarios against the installed release archive.
#
#   bash tools/molecule.sh [SCENARIO ...]       all of molecule/*/ when none is named
#   MOLECULE_COMMAND=converge bash tools/molecule.sh default
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Scenarios that run side by side have an installation each.
export GPUFLEET_COLLECTIONS=$here/.build/collections/${1:-all}
# shellcheck source=tools/env.sh
. "$here/tools/env.sh"
cd "$GPUFLEET_ROOT"
bash tools/prepare.sh
bash tools/build.sh "$GPUFLEET_COLLECTIONS"
if [ $# = 0 ]; then
    for file in molecule/*/molecule.yml; do
        set -- "$@" "$(basename "$(dirname "$file")")"
    done
fi
for scenario in "$@"; do
    echo "molecule: $scenario"
    MOLECULE_EPHEMERAL_DIRECTORY=$GPUFLEET_BUILD/molecule/$scenario \
        molecule "${MOLECULE_COMMAND:-test}" --scenario-name "$scenario" </dev/null
done
