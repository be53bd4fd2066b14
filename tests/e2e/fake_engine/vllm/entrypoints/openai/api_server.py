"""Looks like vLLM from outside: the same command, real HTTP, and a worker process in a separate session.

Finds every pair of capitalised words. Started only in tests, by a PYTHONPATH that hides the real package.
"""

import argparse
import json
import re
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NAME = re.compile(r"\b[A-Z][a-z]+ [A-Z][a-z]+\b")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self.answer({"object": "list", "data": [{"id": self.server.model}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        names = dict.fromkeys(NAME.findall(body["messages"][-1]["content"]))
        content = json.dumps({"entities": [{"name": name, "class": "Person"} for name in list(names)[:24]]})
        message = {"role": "assistant", "content": content}
        self.answer({"model": "fake", "choices": [{"message": message, "finish_reason": "stop"}], "usage": {}})

    def answer(self, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--served-model-name")
    known, _ = parser.parse_known_args()
    worker = "import time; time.sleep(3600)  # vllm.entrypoints worker"
    subprocess.Popen([sys.executable, "-c", worker], start_new_session=True)
    server = ThreadingHTTPServer(("127.0.0.1", known.port), Handler)
    server.model = known.served_model_name
    server.serve_forever()


if __name__ == "__main__":
    main()
