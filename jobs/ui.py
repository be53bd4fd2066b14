"""The Dagster UI and its daemon on this home's instance, in one process: `python -m jobs.ui --port P`.

`ec1 ui` starts it. One process and one code server for both, so that a recipe file that came, changed or went is seen
by both at once; one lock, so that one home has one daemon. Runs are processes of their own (`jobs.launcher`): killing
this one ends none of them.
"""

import argparse
import contextlib
import fcntl
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator

import dagster as dg
import uvicorn
from dagster_webserver.app import create_app_from_workspace_process_context
from dagster_webserver.version import __version__

from ec1.deployment import deployment_file, load_deployment
from ec1.errors import BusyError, EC1Error, InputError
from ec1.home import CHECKOUT, Home
from ec1.night.steps.recipes import recipe_folders, recipe_marks
from jobs.background import in_background
from jobs.guard import Guard
from jobs.instance import prepare_instance, reconcile
from resources.dagster_private import (
    DagsterDaemonController,
    WorkspaceFileTarget,
    WorkspaceProcessContext,
    configure_loggers,
    create_daemons_from_instance,
)
from resources.environment import DeploymentChoice, choice_from_environment, ui_token
from resources.schedule import check_schedule

LOCATION = "ec1"
HOST = "127.0.0.1"
WATCH_SECONDS = 2.0
SHUTDOWN_SECONDS = 3
log = logging.getLogger("dagster.ec1")


@contextlib.contextmanager
def only_one(home: Home, port: int) -> Iterator[None]:
    """Hold the lock of this home's daemon. Raises BusyError that says who has it."""
    path = home.dagster / ".ui.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise BusyError(f"{home.root} is served already, by {lock.read().strip()}: use that, or end it") from None
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on http://{HOST}:{port}")
        lock.flush()
        yield


def free(port: int) -> None:
    """Raises InputError if the port is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            raise InputError(f"port {port} is taken on this machine: choose another one with --port") from None


@contextlib.contextmanager
def recipes_watched(context: WorkspaceProcessContext, choice: DeploymentChoice) -> Iterator[None]:
    """Load the definitions again when a recipe file or the deployment's came, changed or went."""

    def marks() -> dict[str, tuple[int, int]]:
        deployment = load_deployment(choice.deployment, choice.project)
        check_schedule(deployment)
        home = Home(choice.home)
        # What people accept in Studio is a part of the night, too.
        said = [*home.generated.glob("*/recipes/*/*.json"), *home.generated.glob("*/recipes/*/*.yaml")]
        settings = [deployment_file(choice.deployment, choice.project), home.first_night, *said]
        return recipe_marks(settings, recipe_folders(deployment, choice.project))

    def watch(done: threading.Event) -> None:
        loaded = seen = marks()
        while not done.wait(WATCH_SECONDS):
            try:
                now = marks()
            except EC1Error as error:
                # With a broken deployment nothing would be left: what was loaded stays until it is mended.
                if seen:
                    log.error("the deployment is not loaded again: %s", error)
                seen = {}
                continue
            # Two looks alike: an editor that is still writing is left alone.
            if now == seen and now != loaded:
                log.info("recipes changed: loading the definitions again")
                context.reload_code_location(LOCATION)
                loaded = now
            seen = now

    with in_background("recipes-watched", watch):
        yield


@contextlib.contextmanager
def daemon(context: WorkspaceProcessContext) -> Iterator[None]:
    """Dagster's daemon: queue, schedules, sensors, backfills, and the monitor that misses killed runs."""
    instance = context.instance
    with contextlib.ExitStack() as stack:
        daemons = [stack.enter_context(each) for each in create_daemons_from_instance(instance)]
        controller = stack.enter_context(DagsterDaemonController(context, daemons))

        def look() -> None:
            try:
                controller.check_daemon_loop()
            except Exception:
                log.exception("the daemon has ended, so this server ends too")
                os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=look, daemon=True, name="daemon-watched").start()
        yield


def serve(instance: dg.DagsterInstance, choice: DeploymentChoice, port: int, *, read_only: bool) -> None:
    """Serve until the process is interrupted or terminated."""
    instance.optimize_for_webserver(statement_timeout=15000, pool_recycle=3600, max_overflow=20)
    target = WorkspaceFileTarget([str(CHECKOUT / "workspace.yaml")])
    with (
        WorkspaceProcessContext(instance, target, version=__version__, read_only=read_only) as context,
        recipes_watched(context, choice),
        daemon(context),
    ):
        app = create_app_from_workspace_process_context(context, live_data_poll_rate=2000)
        config = uvicorn.Config(
            Guard(app, ui_token()),
            host=HOST,
            port=port,
            log_level="warning",
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        log.info("serving %s on http://%s:%s", instance.root_directory, HOST, port)
        uvicorn.Server(config).run()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m jobs.ui")
    parser.add_argument("--port", type=int, default=3000)
    parser.add_argument("--read-only", action="store_true")
    arguments = parser.parse_args()
    configure_loggers(formatter="colored", log_level="INFO")
    # After its own shutdown uvicorn sends itself the signal once more: the rest is then shut down too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.chdir(CHECKOUT)
    choice = choice_from_environment()
    try:
        check_schedule(load_deployment(choice.deployment, choice.project))
        free(arguments.port)
        with only_one(Home(choice.home), arguments.port), prepare_instance(Home(choice.home)) as instance:
            reconcile(instance)
            serve(instance, choice, arguments.port, read_only=arguments.read_only)
    except EC1Error as error:
        sys.stderr.write(f"error: {error}\n")
        return 2 if isinstance(error, InputError) else 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


if __name__ == "__main__":
    sys.exit(main())
