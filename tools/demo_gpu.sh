# Runs the reference case for the eye, from the release archive, installed into an empty path.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export GPUFLEET_COLLECTIONS=$here/.build/demo-gpu/collections
# shellcheck source=tools/env.sh
. "$here/tools/env.sh"
cd "$GPUFLEET_ROOT"
bash tools/prepare.sh
bash tools/build.sh "$GPUFLEET_COLLECTIONS"
exec python molecule/shared/demo/demo_gpu.py "$@"
