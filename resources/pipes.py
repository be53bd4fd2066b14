"""Dagster Pipes with a strict contract: a process that exits 0 without having reported is a failure, not a success."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import dagster as dg

from ec1.errors import PermanentError
from resources.environment import child_environment

Result = TypeVar("Result")


class PipesResource(dg.ConfigurableResource["PipesResource"]):
    """Opens a Pipes session around a launch; what the process logs and reports streams into the run."""

    def run(
        self,
        context: dg.AssetExecutionContext,
        launch: Callable[[Mapping[str, str]], Result],
        *,
        required: Sequence[str],
    ) -> tuple[Result, dict[str, Any]]:
        """Call `launch` with the environment for the process; return its result and the process's last report.

        `launch` must not return before the process has ended. Raises PermanentError if the process did not open and
        close Pipes, or if its report lacks a key of `required`.
        """
        asked: Any = _WithoutTypedEvents(context)
        with dg.open_pipes_session(
            asked, dg.PipesTempFileContextInjector(), dg.PipesTempFileMessageReader(include_stdio_in_messages=False)
        ) as session:
            result = launch({**child_environment(), **session.get_bootstrap_env_vars()})
        handler = session.message_handler
        if not (handler.received_opened_message and handler.received_closed_message):
            raise PermanentError("the process exited without reporting through Pipes: what it left is not trusted")
        messages = list(session.get_custom_messages())
        report: dict[str, Any] = messages[-1] if messages else {}
        if missing := [key for key in required if key not in report]:
            raise PermanentError(f"the process did not report {', '.join(missing)}: what it left is not trusted")
        return result, report


class _WithoutTypedEvents:
    """A step's context that lets the step end without a result although a session was opened.

    A machine may be taken away in the middle of a training: the step's result is then skipped and its training waits
    for a later night. Dagster holds a session whose result does not come for a mistake of the author's; that a process
    has to report is our own contract, above.
    """

    def __init__(self, context: dg.AssetExecutionContext) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    @property
    def run_id(self) -> str:
        """What Dagster's own Pipes asks for by a name that it has deprecated."""
        return self._context.run.run_id

    def set_requires_typed_event_stream(self, **_: str) -> None:
        """What Dagster asks for when a session opens."""
