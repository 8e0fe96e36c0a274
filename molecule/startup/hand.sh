# A restart as it is done by hand: wait blindly for half a minute, ask for a completion, at most twelve minutes, then look into
# the journal. Prints seconds from the line that told the end (ready, or the first that names the death) to the end of this.
set -u
unit=sglang-main
systemctl reset-failed $unit
systemctl restart --no-block $unit
answered=no
for _turn in $(seq 24); do
  sleep 30
  if python3 - <<'P' 2>/dev/null; then answered=yes; break; fi
import json, urllib.request
body = json.dumps({"model": "m", "prompt": "The capital of France is", "max_tokens": 8}).encode()
request = urllib.request.Request("http://127.0.0.1:30000/v1/completions", body, {"Content-Type": "application/json"})
raise SystemExit("choices" not in json.load(urllib.request.urlopen(request, timeout=8)))
P
done
found=$(journalctl -u $unit --since -8m -o cat | grep -o 'max_total_num_tokens=[0-9]*' | tail -1)
end=$(date +%s.%N)
invocation=$(systemctl show $unit --property=InvocationID --value)
line=$(journalctl "_SYSTEMD_INVOCATION_ID=$invocation" -o short-unix -a | grep -m1 -E 'fired up and ready|OutOfMemoryError' | cut -d' ' -f1)
echo "answered=$answered pool=${found:-none} seconds_after_line=$(awk "BEGIN{print $end-$line}")"
