"""What this machine has for a process that is started on it: a free port, and cores."""

import socket


def free_port(host: str = "127.0.0.1") -> int:
    """A port of `host` that nobody listens on at this moment; an empty host means all of this machine's addresses."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def usable_cores() -> int:
    """How many cores this process may use: fewer than the machine has in a container or under `taskset`."""
    import joblib

    return int(joblib.cpu_count())
