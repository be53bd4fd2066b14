"""Studio on this home: `python -m studio --port P`. `ec1 studio` starts it."""

import argparse
import socket
import sys
import threading

import uvicorn

from ec1.errors import EC1Error, InputError
from ec1.queries.desk import Desk, open_desk
from ec1.who import who_acts
from jobs.guard import Guard
from resources.environment import api_key, choice_from_environment, ui_token
from studio import vibe
from studio.app import application
from studio.web import StudioState

HOST = "127.0.0.1"
SHUTDOWN_SECONDS = 3


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m studio")
    parser.add_argument("--port", type=int, default=3100)
    parser.add_argument("--read-only", action="store_true")
    parser.add_argument("--as", dest="labels", default=None)
    parser.add_argument("--gateway", default=None)
    arguments = parser.parse_args()
    choice = choice_from_environment()

    def here() -> Desk:
        return open_desk(choice.deployment, choice.home, choice.project, arguments.labels)

    try:
        # A broken deployment is told before the first page.
        gateway = arguments.gateway or f"http://{HOST}:{here().deployment.serving.port}"
        state = StudioState(here, who_acts(), arguments.read_only, gateway.rstrip("/"), api_key())
        with socket.socket() as listener:
            _bind(listener, arguments.port)
            threading.Thread(target=_warm, name="warm", daemon=True).start()
            if not state.read_only:
                threading.Thread(target=vibe.keep_up, args=(state,), name="vibe checks", daemon=True).start()
            sys.stdout.write(f"Studio: http://{HOST}:{listener.getsockname()[1]}\n")
            sys.stdout.flush()
            config = uvicorn.Config(
                Guard(application(state), ui_token()), log_level="warning", timeout_graceful_shutdown=SHUTDOWN_SECONDS
            )
            uvicorn.Server(config).run(sockets=[listener])
    except EC1Error as error:
        sys.stderr.write(f"error: {error}\n")
        return 2 if isinstance(error, InputError) else 1
    except KeyboardInterrupt:
        return 130
    return 0


def _bind(listener: socket.socket, port: int) -> None:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except OSError:
        raise InputError(f"port {port} is taken on this machine: choose another one with --port") from None


def _warm() -> None:
    """Load what the first page of rows needs, while somebody still looks for it."""
    import pyarrow.parquet  # noqa: F401


if __name__ == "__main__":
    sys.exit(main())
