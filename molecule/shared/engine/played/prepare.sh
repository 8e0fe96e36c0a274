#!/usr/bin/env bash
# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# The wheelhouse of the played engine, in the cache that every test host mounts: in the host /srv/wheels/played.
# An inventory installs it through the variables that a user has:
#
#   sglang_engine_version: 0.5.18
#   sglang_engine_root: /opt/played/engines       # the real engines' folder is shared by all hosts
#   sglang_engine_wheelhouse: /srv/wheels/played
#   sglang_engine_min_free_gib: 1
#
#   prepare.sh [VERSION ...]                       other versions than the usual ones
set -euo pipefail

HERE=$(cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CACHE=${GPUFLEET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gpufleet-sglang}
PYTHON=${HOSTS_PYTHON:-python3}
WHEELS=$CACHE/wheels/played
# 0.4.6.post5 to 0.5.2: no --config. 0.5.18: the last that kills itself at a clean stop. 0.5.19: --cuda-graph-max-bs for
# the last time. The others: each the first of a wording of its lines.
VERSIONS=(0.4.6.post5 0.4.9 0.5.2 0.5.6 0.5.9 0.5.10 0.5.14 0.5.18 0.5.19 0.5.20 0.5.23)
# The Pythons of the test hosts' releases.
PYTHONS=(3.11 3.13)
[ $# -eq 0 ] || VERSIONS=("$@")

mkdir -p "$WHEELS"
exec {lock}>"$CACHE/wheels/.played.lock"
flock "$lock"

stamp=$(cat "$HERE/requirements.txt" <(echo "${PYTHONS[*]}") | sha256sum | cut -c1-16)
if [ ! -e "$WHEELS/.packages-$stamp" ]; then
  echo "played engine: fetching what it imports (1 MB)" >&2
  rm -f "$WHEELS"/*.whl "$WHEELS"/.packages-*
  for python in "${PYTHONS[@]}"; do
    "$PYTHON" -m pip download -q --no-deps --only-binary :all: --python-version "$python" \
      -r "$HERE/requirements.txt" -d "$WHEELS"
  done
  touch "$WHEELS/.packages-$stamp"
fi
stamp=$(find "$HERE" -name '*.py' -print0 | sort -z | xargs -0 cat | sha256sum | cut -c1-16)-${VERSIONS[*]}
stamp=$WHEELS/.built-${stamp// /-}
if [ ! -e "$stamp" ]; then
  rm -f "$WHEELS"/.built-*
  PYTHONDONTWRITEBYTECODE=1 "$PYTHON" "$HERE/build.py" "$WHEELS" "${VERSIONS[@]}"
  touch "$stamp"
fi
