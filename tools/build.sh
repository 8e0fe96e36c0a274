# Builds the release archive into .build/ and installs it into an empty collections folder, as a user would.
#
#   bash tools/build.sh [FOLDER]       FOLDER defaults to .build/collections
set -euo pipefail
# shellcheck source=tools/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$GPUFLEET_ROOT"
folder=${1:-$GPUFLEET_BUILD/collections}
log=$GPUFLEET_BUILD/log/build.log

quietly() { "$@" >>"$log" 2>&1 </dev/null || { tail -n 30 "$log" >&2; echo "build: '$1 $2 $3' failed; the whole output is in $log" >&2; exit 1; }; }

# One build at a time: parts of the tests run side by side.
exec {lock}>"$GPUFLEET_BUILD/build.lock"
flock "$lock"
: >"$log"
# From a clean copy: what git ignores can never slip into a release.
tree=$(python "$GPUFLEET_ROOT/tools/tree.py" copy "$GPUFLEET_BUILD/release")
quietly ansible-galaxy collection build --force --output-path "$GPUFLEET_BUILD" "$tree"
version=$(sed -n 's/^version: *//p' galaxy.yml)
archive=$GPUFLEET_BUILD/gpufleet-sglang-$version.tar.gz
rm -rf "${folder:?}/ansible_collections"
mkdir -p "$folder"
quietly ansible-galaxy collection install --offline --no-deps --force -p "$folder" "$archive"
echo "build: ${archive#"$GPUFLEET_ROOT"/} ($(($(stat -c %s "$archive") / 1024)) KiB), installed in ${folder#"$GPUFLEET_ROOT"/}"
