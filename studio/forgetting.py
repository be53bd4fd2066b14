"""The pages by which a row is forgotten: by what, what would go, and then for good."""

from starlette.requests import Request
from starlette.responses import Response

from ec1.errors import InputError
from ec1.plural import counted
from ec1.queries import doors, forgetting
from ec1.queries.desk import Desk
from studio.data import opened_row
from studio.web import Form, after, needed, render, state_of

_SHOWN = 20
_LEFT = 3


def ask(request: Request, desk: Desk) -> Response:
    return _page(request, desk, {})


def look(request: Request, desk: Desk, form: Form) -> Response:
    """What would go, by what a form says."""
    return _page(request, desk, form)


def _page(request: Request, desk: Desk, form: Form) -> Response:
    key, source, row, original = opened_row(request, desk)
    names = forgetting.names_of(original or row)
    asked = {name: form.get(name, "").replace("\r\n", "\n") for name in ("source", "text")}
    found = looked_at = None
    if form:
        found = forgetting.look(desk, forgetting.wanted_of(**asked))
        looked_at = forgetting.seen(found)
    return render(
        request,
        "forget.html",
        source=source.summary,
        key=key,
        row=row,
        names=names,
        asked=asked,
        found=found,
        looked_at=looked_at,
        digest=(original or row).digest,
        most=_SHOWN,
    )


def forget(request: Request, desk: Desk, form: Form) -> str:
    """Take out what was looked at, which a person has said to be meant."""
    if form.get("sure") != "1":
        raise InputError("nothing was removed: tick the box that says that you looked at it")
    wanted = forgetting.wanted_of(form.get("source", ""), form.get("text", "").replace("\r\n", "\n"))
    looked_at = needed(form, "looked_at", "what you looked at")
    done = doors.forget(desk, wanted, looked_at, state_of(request).person)
    parts = (("row", done.tuples), ("document", done.documents), ("dataset", done.datasets))
    said = "removed: " + ", ".join(counted(len(each), noun) for noun, each in parts)
    if done.versions:
        said += f"; withdrawn: {', '.join(done.versions)}; their weights stay until `ec1 adapters remove`"
    left = [f"{place} ({why})" for place, why in done.left.items()]
    more = f" and {len(left) - _LEFT} more" if len(left) > _LEFT else ""
    return after("/", said + (f"; still holds it: {'; '.join(left[:_LEFT])}{more}" if left else ""))
