#!/usr/bin/env python3
"""Stands in for the command `vllm`: takes the same arguments, speaks the same HTTP, and tells who was asked.

FAKE_VLLM=dies makes it end at once, as vLLM does when memory does not suffice.
"""

import argparse
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("command", choices=["serve"])
parser.add_argument("model")
for name in ("served-model-name", "host", "dtype", "quantization"):
    parser.add_argument(f"--{name}")
for name in ("port", "max-model-len", "max-num-seqs", "max-loras", "max-lora-rank"):
    parser.add_argument(f"--{name}", type=int)
parser.add_argument("--enable-lora", action="store_true")
parser.add_argument("--enforce-eager", action="store_true")
parser.add_argument("--enable-prompt-tokens-details", action="store_true")
parser.add_argument("--lora-modules", nargs="+", type=json.loads, default=[])
options = parser.parse_args()
if os.environ.get("FAKE_VLLM") == "dies":
    sys.exit("ValueError: No available memory for the cache blocks")
if options.max_lora_rank not in (1, 8, 16, 32, 64, 128, 256, 320, 512) or not options.enable_lora:
    sys.exit("ValueError: max_lora_rank")
adapters = {module["name"]: module["path"] for module in options.lora_modules}


class Handler(BaseHTTPRequestHandler):
    """The few paths that are asked for."""

    def do_GET(self) -> None:
        """Health and models."""
        names = [options.served_model_name, *adapters]
        self._answer(200, {"data": [{"id": name} for name in names]} if self.path == "/v1/models" else {})

    def do_POST(self) -> None:
        """Completions, and adapters that come and go."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Authorization"] != f"Bearer {os.environ['VLLM_API_KEY']}":
            self._answer(401, {"error": {"message": "no"}})
        elif self.path == "/v1/load_lora_adapter":
            whole = (Path(body["lora_path"]) / "adapter_config.json").exists()
            if whole:
                adapters[body["lora_name"]] = body["lora_path"]
            self._answer(200 if whole else 400, {})
        elif self.path == "/v1/unload_lora_adapter":
            adapters.pop(body["lora_name"])
            self._answer(200, {})
        elif body["messages"][-1]["content"] == "die":
            sys.stdout.write("torch.OutOfMemoryError: CUDA out of memory\n")
            sys.stdout.flush()
            os._exit(1)
        else:
            text = f"{body['model']}|{adapters.get(body['model'], options.model)}"
            choice = {"message": {"content": text}, "finish_reason": "stop", "stop_reason": None}
            usage = {"prompt_tokens": 1, "completion_tokens": 2}
            self._answer(200, {"model": body["model"], "choices": [choice], "usage": usage})

    def _answer(self, status: int, body: dict) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


ThreadingHTTPServer(("127.0.0.1", options.port), Handler).serve_forever()
