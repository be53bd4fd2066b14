"""The Dagster UI and daemon on this home's instance: `python -m jobs.ui --port P`. `ec1 ui` starts it."""

import argparse
import os
import sys

from ec1.home import CHECKOUT, Home
from jobs.instance import prepare_instance, reconcile
from resources.environment import choice_from_environment


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m jobs.ui")
    parser.add_argument("--port", type=int, default=3000)
    arguments = parser.parse_args()
    choice = choice_from_environment()
    with prepare_instance(Home(choice.home)) as instance:
        reconcile(instance)
    os.chdir(CHECKOUT)
    command = [
        sys.executable,
        "-m",
        "dagster",
        "dev",
        "-w",
        "workspace.yaml",
        "-h",
        "127.0.0.1",
        "-p",
        str(arguments.port),
    ]
    os.execv(sys.executable, command)


if __name__ == "__main__":
    main()
