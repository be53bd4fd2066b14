"""An ASGI application on a real port, and a gateway that listens."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from ec1.gpu.engine import Endpoint
from ec1.serving.backend import Backend
from ec1.serving.gateway import Gateway


@contextmanager
def listening(app: Any, **settings: Any) -> Iterator[str]:
    """Run an ASGI application on a free port until the block ends, with settings of uvicorn; yields its address."""
    options = {"log_level": "error", "lifespan": "off", "timeout_graceful_shutdown": 1, **settings}
    server = uvicorn.Server(uvicorn.Config(app, port=0, **options))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


class Served:
    """A gateway that listens at `url`, and its parts."""

    def __init__(
        self, url: str, gateway: Gateway, backend: Backend, endpoint: Endpoint, told: list[tuple[str, str, str]]
    ) -> None:
        self.url = url
        self.told = told
        self.gateway = gateway
        self.backend = backend
        self.endpoint = endpoint


Serve = Callable[..., Any]
