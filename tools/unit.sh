# Runs the unit tests with every virtual environment that exists; arguments go to pytest.
#
#   bash tools/unit.sh [pytest arguments]                 without any: all but the tests marked slow or long
#   GPUFLEET_VENV=.venv-core2.21 bash tools/unit.sh       with this one only
set -euo pipefail
one=${GPUFLEET_VENV:-}
# shellcheck source=tools/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$GPUFLEET_ROOT"
python tools/tree.py link >/dev/null
export PYTHONPATH=$GPUFLEET_BUILD/devtree
[ $# -gt 0 ] || set -- -m "not slow and not long"
status=0
for venv in ${one:-$(bash tools/venv.sh --list)}; do
    core=$("$venv/bin/python" -c 'import ansible.release as r; print(r.__version__)')
    printf 'unit: ansible-core %s, %s\n' "$core" "$("$venv/bin/python" -V)"
    # The played engine is tried once: it knows nothing of Ansible.
    [ "$venv" -ef .venv ] || set -- "$@" --ignore tests/unit/engine
    "$venv/bin/python" -m pytest -q "$@" || status=1
done
exit $status
