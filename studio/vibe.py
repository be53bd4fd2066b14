"""The pages of vibe checks: a role's prompts, and what every version answered to them."""

import logging
import time
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from ec1.errors import EC1Error, InputError
from ec1.queries import doors
from ec1.queries.desk import Desk
from ec1.queries.feedback import pair_votes
from ec1.queries.vibe import BASE, GatewayAddress, unanswered, vibe_table
from studio.web import Form, StudioState, after, needed, render, state_of

COLUMNS = 8
LOOK_SECONDS = 60.0
log = logging.getLogger(__name__)


def table(request: Request, desk: Desk) -> Response:
    tenant, role = request.path_params["tenant"], request.path_params["role"]
    found = vibe_table(desk, tenant, role, COLUMNS)
    return render(
        request,
        "vibe.html",
        tenant=tenant,
        role=role,
        table=found,
        votes=pair_votes(desk.home, tenant, role),
        before=dict(zip(found.columns[1:-1], found.columns[2:], strict=True)),
        work=state_of(request).background.state(_work(tenant, role)),
    )


def change(request: Request, desk: Desk, form: Form) -> str:
    tenant, role, state = request.path_params["tenant"], request.path_params["role"], state_of(request)
    action, path = needed(form, "action", "what to do"), f"/versions/{tenant}/{role}/vibe"
    if action == "add":
        text = needed(form, "text", "the prompt")
        system = form.get("system", "").replace("\r\n", "\n")
        return after(path, doors.change_vibe_check(desk, tenant, role, state.person, add=text, system=system))
    if action == "remove":
        prompt = needed(form, "prompt", "which prompt")
        return after(path, doors.change_vibe_check(desk, tenant, role, state.person, remove=prompt))
    if action != "run":
        raise InputError(f"{action!r} is nothing that can be done with a vibe check")
    version = needed(form, "version", "which version")
    found = vibe_table(desk, tenant, role, COLUMNS)
    if version not in (BASE, *found.usable):
        raise InputError(f"{tenant}/{role} has no {version} that can be asked")
    if not found.prompts:
        raise InputError("the vibe check of this role has no prompt yet: add one first")
    begun = begin(state, desk, tenant, role, [version])
    return after(path, "" if begun else "a vibe check of this role runs already")


def begin(state: StudioState, desk: Desk, tenant: str, role: str, versions: Sequence[str]) -> bool:
    """Ask versions in the background; False if this role is being asked."""
    gateway = GatewayAddress(state.gateway, state.api_key)
    return state.background.begin(
        _work(tenant, role), lambda tell: doors.run_vibe_check(desk, tenant, role, versions, gateway, tell)
    )


def keep_up(state: StudioState) -> None:
    """Ask each role's newest version what it has not been asked, as long as this Studio runs and an engine answers."""
    while True:
        try:
            desk = state.desk
            for tenant, role, version in unanswered(desk):
                begin(state, desk, tenant, role, [version])
        except (EC1Error, OSError) as error:
            log.info("no vibe check: %s", error)
        time.sleep(LOOK_SECONDS)


def _work(tenant: str, role: str) -> str:
    return f"vibe check of {tenant}/{role}"
