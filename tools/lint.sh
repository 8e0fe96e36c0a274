# Style and consistency: ruff, ansible-lint (profile production, nothing skipped), and the tests of the house rules.
set -euo pipefail
# shellcheck source=tools/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$GPUFLEET_ROOT"
python tools/tree.py link >/dev/null
status=0
echo "lint: ruff"
ruff check --no-cache . || status=1
echo "lint: ansible-lint"
ansible-lint --offline --nocolor -q </dev/null || status=1
echo "lint: rules of the house"
PYTHONPATH=$GPUFLEET_BUILD/devtree python -m pytest -q --tb=short tests/unit/test_house.py || status=1
exit $status
