# Makes the virtual environments of the checkout: .venv, and a second one for the other ansible-core where this machine
# has a Python for it. Does nothing, quickly, when they fit the requirement files.
#
#   bash tools/venv.sh            make or refresh them
#   bash tools/venv.sh --list     print the folders that exist, the main one first
#   bash tools/venv.sh --cores    print the versions of ansible-core in them
#
# ansible-core by Python: 2.19 on 3.11, 2.21 on 3.12 and later.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

CORE_OLD=2.19
CORE_NEW=2.21

say() { printf '%s\n' "venv: $*"; }
die() { say "$*" >&2; exit 1; }

# Prints "MAJOR.MINOR core REAL_PATH" of an interpreter that really runs (a pyenv shim may not), nothing otherwise.
probe() {
    "$1" -c '
import sys
if sys.version_info >= (3, 11):
    print("%d.%d" % sys.version_info[:2], sys.argv[1] if sys.version_info < (3, 12) else sys.argv[2], sys.executable)
' "$CORE_OLD" "$CORE_NEW" 2>/dev/null || true
}

can_make_venvs() { "$1" -c 'import ensurepip, venv; ensurepip.version()' 2>/dev/null; }

# Interpreters worth probing, best first: the system's own, then the numbered ones on PATH, then those of pyenv.
candidates() {
    local name folder
    [ -n "${GPUFLEET_PYTHON:-}" ] && printf '%s\n' "$GPUFLEET_PYTHON"
    for name in /usr/bin/python3 python3 python3.11 python3.13 python3.12 python3.14; do
        command -v "$name" || true
    done
    for folder in "$HOME"/.pyenv/versions/3.11.* "$HOME"/.pyenv/versions/3.13.* "$HOME"/.pyenv/versions/3.12.* \
        "$HOME"/.pyenv/versions/3.14.*; do
        [ -x "$folder/bin/python" ] && printf '%s\n' "$folder/bin/python"
    done
    return 0
}

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# Debian and Ubuntu split ensurepip off; without it no venv can be made.
install_venv_package() {
    command -v apt-get >/dev/null || die "found no Python >= 3.11 that can make virtual environments (module ensurepip): install it"
    say "installing python3-venv by apt: this Python cannot make virtual environments without it"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq </dev/null >.build/log/apt-venv.log 2>&1 \
        && as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv \
            </dev/null >>.build/log/apt-venv.log 2>&1 \
        || { tail -n 20 .build/log/apt-venv.log >&2; die "apt could not install python3-venv (.build/log/apt-venv.log)"; }
}

# make_venv FOLDER PYTHON VERSION CORE
make_venv() {
    local folder=$1 python=$2 version=$3 core=$4 stamp log began=$SECONDS
    stamp=$(cat "requirements-core-$core.txt" requirements-dev.txt requirements-lock.txt <(printf '%s' "$python") | sha256sum)
    if [ "$(cat "$folder/.stamp" 2>/dev/null)" = "$stamp" ] && "$folder/bin/python" -c '' 2>/dev/null; then
        return 0
    fi
    log=.build/log/venv-$core.log
    say "$folder: Python $version ($python), ansible-core $core and the test tools from requirements-*.txt (about 30 s)"
    rm -rf "$folder"
    if ! { "$python" -m venv "$folder" \
        && "$folder/bin/pip" install -q --disable-pip-version-check -r "requirements-core-$core.txt" -r requirements-dev.txt; } >"$log" 2>&1 </dev/null; then
        tail -n 30 "$log" >&2
        die "pip could not fill $folder; the whole output is in $log"
    fi
    printf '%s' "$stamp" >"$folder/.stamp"
    say "$folder: ready after $((SECONDS - began)) s"
}

list() {
    local folder
    for folder in .venv .venv-core*; do
        [ -f "$folder/.stamp" ] && printf '%s\n' "$folder"
    done
    return 0
}

case "${1:-}" in
    --list) list; exit 0 ;;
    --cores) list | while read -r folder; do
            "$folder/bin/python" -c 'import ansible.release as r; print(".".join(r.__version__.split(".")[:2]))'
        done; exit 0 ;;
esac

mkdir -p .build/log
declare -A python_for version_for
main_core='' without_ensurepip=''
pick() {
    local candidate version core path
    python_for=() version_for=() main_core='' without_ensurepip=''
    while read -r candidate; do
        read -r version core path < <(probe "$candidate") || continue
        [ -n "${python_for[$core]:-}" ] && continue
        if ! can_make_venvs "$path"; then
            without_ensurepip=$path
            continue
        fi
        python_for[$core]=$path
        version_for[$core]=$version
        main_core=${main_core:-$core}
    done < <(candidates)
}

pick
if [ -z "$main_core" ] && [ -n "$without_ensurepip" ]; then
    install_venv_package
    pick
fi
[ -n "$main_core" ] || die "found no working Python >= 3.11: install one (Debian: apt-get install python3 python3-venv)," \
    "or name it in GPUFLEET_PYTHON"

other_core=$CORE_NEW
[ "$main_core" = "$CORE_NEW" ] && other_core=$CORE_OLD
make_venv .venv "${python_for[$main_core]}" "${version_for[$main_core]}" "$main_core" &
main_job=$!
if [ -n "${python_for[$other_core]:-}" ]; then
    make_venv ".venv-core$other_core" "${python_for[$other_core]}" "${version_for[$other_core]}" "$other_core"
else
    rm -rf ".venv-core$other_core"
    say "no Python for ansible-core $other_core here: its half of the tests is not run"
fi
wait "$main_job"
