# Stands where an engine's Python would: a launcher with one rank that SIGTERM does not end. Below 0.5.20, for which the
# unit is written so, it ends a clean stop by killing itself (SGLang does up to 0.5.18).
import os
import signal
import sys
import time

if "-I" in sys.argv:
    os.execv("/usr/bin/python3", ["python3", *sys.argv[1:]])


def drained(*_):
    print("drained", flush=True)
    if "/0.5.19/" in sys.argv[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(0)


if os.fork() == 0:
    signal.signal(signal.SIGTERM, lambda *_: print("the rank was told to end", flush=True))
    while True:
        time.sleep(0.1)
signal.signal(signal.SIGTERM, drained)
for key in ("canary-5d20", "'canary-5d20", '"canary-5d20'):
    print(f"server_args=ServerArgs(api_key={key!r}, admin_api_key=None)", flush=True)
    print("server_args=" + repr({"admin_api_key": key}), flush=True)
print("server_args=ServerArgs(api_key=None, admin_api_key=None)", flush=True)
print("serving", flush=True)
while True:
    time.sleep(0.1)
