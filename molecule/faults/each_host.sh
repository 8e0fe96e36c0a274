# Runs the faults of each host, all hosts side by side; RESULTS/HOST.log says what happened there.
#
#   bash each_host.sh RESULTS INVENTORIES "HOST ..."
set -euo pipefail
results=$1 inventories=$2
read -ra hosts <<<"$3"
here=$(dirname "${BASH_SOURCE[0]}")
inventory=()
IFS=, read -ra sources <<<"$inventories"
for source in "${sources[@]}"; do inventory+=(-i "$source"); done
rm -f "$results"/*.json "$results"/*.log
running=()
for host in "${hosts[@]}"; do
    ansible-playbook "$here/one_host.yml" "${inventory[@]}" --limit "$host" >"$results/$host.log" 2>&1 </dev/null &
    running+=($!)
done
failed=0
for number in "${!hosts[@]}"; do
    wait "${running[number]}" && continue
    failed=1
    echo "${hosts[number]}: it never ran to its end" >&2
    tail -n 40 "$results/${hosts[number]}.log" >&2
done
exit "$failed"
