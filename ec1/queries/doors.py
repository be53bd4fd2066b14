"""What a page may change: the doors that commands go through, too, one function each.

Belongs here: finding the door, and who went through it. Does not: what a change means (`ec1.adapters.registry`,
`ec1.graph.review`, `ec1.serving.held`). The one module of `ec1.queries` that does not only read.
"""

from typing import Literal

from ec1.errors import InputError
from ec1.queries.adapters import VersionId
from ec1.queries.desk import Desk

VersionAction = Literal["promote", "pin", "rollback", "unpin", "base", "quarantine"]


def decide_version(
    desk: Desk, action: VersionAction, tenant: str, role: str, version: int | None, reason: str, who: str
) -> str:
    """Promote, pin or quarantine a version, go back, unpin, or let the base serve; returns what is in use then.

    Raises InputError without a reason, for an unknown version or action, and as `AdapterRegistry`.
    """
    if not reason.strip():
        raise InputError("a decision needs a reason: it stands in the role's history for good")
    registry, reason = desk.registry, reason.strip()
    if action in ("promote", "pin", "quarantine"):
        if version is None:
            raise InputError(f"{action}: say which version")
        chosen: VersionId = (tenant, role, version)
        change = {"promote": registry.promote, "pin": registry.pin, "quarantine": registry.withdraw}[action]
        change(*chosen, reason, who)
    elif action in ("rollback", "unpin", "base"):
        {"rollback": registry.rollback, "unpin": registry.unpin, "base": registry.promote_base}[action](
            tenant, role, reason, who
        )
    else:
        raise InputError(f"{action!r} is nothing that can be done with a version")
    incumbent = registry.incumbent(tenant, role)
    return f"{incumbent.name} is in use" if incumbent else f"{tenant}/{role}: the base serves without an adapter"
