"""Serves a base and adapters over real HTTP.

The base names nothing; an adapter finds as many pairs of capitalised words in a text as the file `finds` in its folder
says. Started only in tests, by a PYTHONPATH that hides the real package.
"""

import argparse
import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

NAME = re.compile(r"\b[A-Z][a-z]+ [A-Z][a-z]+\b")


class Server(ThreadingHTTPServer):
    base: str
    finds: dict[str, int]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self.answer({"object": "list", "data": [{"id": name} for name in (self.server.base, *self.server.finds)]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        names = NAME.findall(body["messages"][-1]["content"])
        if body["model"] == self.server.base:
            content = '{"entities":[]}'
        else:
            found = names[: self.server.finds[body["model"]]]
            content = json.dumps([[name, "Person"] for name in found], separators=(",", ":"))
        message = {"role": "assistant", "content": content}
        self.answer({"model": body["model"], "choices": [{"message": message, "finish_reason": "stop"}], "usage": {}})

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
    parser.add_argument("--lora-modules", nargs="+", default=[])
    known, _ = parser.parse_known_args()
    server = Server(("127.0.0.1", known.port), Handler)
    server.base = known.served_model_name
    adapters = dict(each.split("=", 1) for each in known.lora_modules)
    server.finds = {name: int((Path(folder) / "finds").read_text()) for name, folder in adapters.items()}
    server.serve_forever()


if __name__ == "__main__":
    main()
