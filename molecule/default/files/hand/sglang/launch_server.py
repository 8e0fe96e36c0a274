"""A stand-in for a server that somebody started by hand: it says and answers what SGLang 0.5.23 does, no more.

The lines are those of a real start on a CPU, with another pool.
"""

import argparse
import http.server
import json
import sys
import time

LINES = (
    "Load weight begin. avail mem=20.72 GB",
    "Load weight end. elapsed=0.37 s, type=LlamaForCausalLM, avail mem=20.50 GB, mem usage=0.22 GB.",
    "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 30000, K size: 0.32 GB, V size: 0.32 GB",
    "Memory pool end. avail mem=19.80 GB",
    "max_total_num_tokens=30000, chunked_prefill_size=4096, max_prefill_tokens=16384, max_running_requests=2048, "
    "context_len=8192, available_cpu_mem=19.80 GB",
    "The server is fired up and ready to roll!",
)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer({"max_total_num_tokens": 30000})

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.answer({"text": " Paris.", "meta_info": {"completion_tokens": 2}})

    def answer(self, data):
        body = json.dumps(data).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        """Says nothing."""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Handler)
    for line in LINES:
        print(time.strftime("[%Y-%m-%d %H:%M:%S] ") + line, file=sys.stderr, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
