# Sourced by the tools and, if you like, by your shell: the environment in which the checkout's own programs run.
# Everything that Ansible and its friends would keep in the home folder goes to .build/ instead.
GPUFLEET_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export GPUFLEET_ROOT
export GPUFLEET_BUILD=$GPUFLEET_ROOT/.build
GPUFLEET_VENV=${GPUFLEET_VENV:-$GPUFLEET_ROOT/.venv}
export GPUFLEET_VENV

# A `python3` on PATH may be a shim that does not run.
export HOSTS_PYTHON=$GPUFLEET_VENV/bin/python
export PATH=$GPUFLEET_VENV/bin:$PATH
export ANSIBLE_HOME=$GPUFLEET_BUILD/ansible
export ANSIBLE_COLLECTIONS_PATH=${GPUFLEET_COLLECTIONS:-$GPUFLEET_BUILD/devtree}
export ANSIBLE_CONFIG=$GPUFLEET_ROOT/ansible.cfg
# The default of coming ansible-core releases: facts only as ansible_facts['x'].
export ANSIBLE_INJECT_FACT_VARS=false
export PYTHONDONTWRITEBYTECODE=1
export LC_ALL=C.UTF-8
mkdir -p "$GPUFLEET_BUILD/log" "$ANSIBLE_HOME"
