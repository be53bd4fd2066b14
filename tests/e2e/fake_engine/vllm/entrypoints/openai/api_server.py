"""Looks like vLLM from outside: the same command, real HTTP, and a worker process in a separate session.

Finds every pair of capitalised words. With adapters the base names nothing, and each adapter as many pairs as the file
`finds` in its folder says. Started only in tests, by a PYTHONPATH that hides the real package.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

NAME = re.compile(r"\b[A-Z][a-z]+ [A-Z][a-z]+\b")


class Server(ThreadingHTTPServer):
    model: str
    finds: dict[str, int]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        if not self.allowed():
            return
        self.answer({"object": "list", "data": [{"id": name} for name in (self.server.model, *self.server.finds)]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.allowed():
            return
        names = NAME.findall(body["messages"][-1]["content"])
        if body["model"] in self.server.finds:
            found = names[: self.server.finds[body["model"]]]
            content = json.dumps([[name, "Person"] for name in found], separators=(",", ":"))
        else:
            found = [] if self.server.finds else list(dict.fromkeys(names))[:24]
            content = json.dumps({"entities": [{"name": name, "class": "Person"} for name in found]})
        message = {"role": "assistant", "content": content}
        self.answer({"model": body["model"], "choices": [{"message": message, "finish_reason": "stop"}], "usage": {}})

    def allowed(self) -> bool:
        key = os.environ.get("VLLM_API_KEY")
        if key is None or self.headers["Authorization"] == f"Bearer {key}":
            return True
        self.answer({"error": "Unauthorized"}, 401)
        return False

    def answer(self, value: object, status: int = 200) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--served-model-name")
    parser.add_argument("--lora-modules", nargs="+", default=[])
    known, _ = parser.parse_known_args()
    worker = "import time; time.sleep(3600)  # vllm.entrypoints worker"
    subprocess.Popen([sys.executable, "-c", worker], start_new_session=True)
    server = Server((known.host, known.port), Handler)
    server.model = known.served_model_name
    adapters = dict(each.split("=", 1) for each in known.lora_modules)
    server.finds = {name: int((Path(folder) / "finds").read_text()) for name, folder in adapters.items()}
    server.serve_forever()


if __name__ == "__main__":
    main()
