"""What all pages share: the application's state, templates, forms, errors, and the headers of each answer.

Belongs here: how a page is answered. Does not: any one page.
"""

import datetime as dt
import shlex
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ec1.errors import EC1Error, InputError
from ec1.plural import counted
from ec1.queries.desk import Desk
from studio import shown
from studio.background import Background

FOLDER = Path(__file__).parent
MAX_FORM_BYTES = 4 * 2**20
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
Form = Mapping[str, str]


@dataclass
class StudioState:
    """What one Studio was started with. `person` is who decides in it; `gateway` is where `ec1 serve` answers."""

    open_desk: Callable[[], Desk]
    person: str
    read_only: bool = False
    gateway: str = ""
    api_key: str | None = None
    background: Background = field(default_factory=Background)

    @property
    def desk(self) -> Desk:
        """Read anew for each page: recipes and the deployment may change meanwhile."""
        return self.open_desk()


def _age(moment: dt.datetime | None) -> str:
    if moment is None:
        return "unknown"
    seconds = (dt.datetime.now(dt.UTC) - moment).total_seconds()
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"


def _templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(FOLDER / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {
        "safe_text": shown.safe, "short": shown.short, "age": _age, "number": _number,
        "quoted": lambda text: shlex.quote(str(text)), "part": lambda text: urllib.parse.quote(str(text), safe=""),
    }  # fmt: skip
    environment.filters["counted"] = counted
    environment.globals["body"] = shown.body
    return environment


TEMPLATES = _templates()


def state_of(request: Request) -> StudioState:
    state: StudioState = request.app.state.studio
    return state


def render(request: Request, template: str, status: int = 200, **values: Any) -> Response:
    """A page. `said` is what a change before it came to."""
    state = state_of(request)
    query = dict(request.query_params)

    def here(**changes: object) -> str:
        """This address with other values; empty ones are left out."""
        merged = {**query, **{name.rstrip("_"): str(value) for name, value in changes.items() if value is not None}}
        merged |= {name.rstrip("_"): "" for name, value in changes.items() if value is None}
        text = urllib.parse.urlencode({name: value for name, value in merged.items() if value})
        return f"{request.url.path}?{text}" if text else request.url.path

    page = TEMPLATES.get_template(template).render(
        path=request.url.path,
        query=query,
        here=here,
        read_only=state.read_only,
        said=request.query_params.get("said", ""),
        **values,
    )
    # What is half a character was shown by its number; nothing else of it may break an answer.
    return HTMLResponse(page.encode("utf-8", "replace"), status)


def seen(handler: Callable[[Request, Desk], Response]) -> Callable[[Request], Awaitable[Response]]:
    """An address that shows something. What goes wrong on purpose is one line on a page."""

    async def endpoint(request: Request) -> Response:
        return await run_in_threadpool(_guarded, request, lambda: handler(request, state_of(request).desk))

    return endpoint


def changed(handler: Callable[[Request, Desk, Form], str]) -> Callable[[Request], Awaitable[Response]]:
    """An address that changes something, and leads to the address that the handler returns."""

    async def endpoint(request: Request) -> Response:
        if state_of(request).read_only:
            return problem(request, "this Studio was started with --read-only: it changes nothing", 403)
        fields = await fields_of(request)
        if fields is None:
            return problem(request, "this form holds more than 4 MiB", 413)
        return await run_in_threadpool(
            _guarded, request, lambda: RedirectResponse(handler(request, state_of(request).desk, fields), 303)
        )

    return endpoint


def tried(handler: Callable[[Request, Desk, Form], Response]) -> Callable[[Request], Awaitable[Response]]:
    """An address that shows what a form would come to, and changes nothing."""

    async def endpoint(request: Request) -> Response:
        fields = await fields_of(request)
        if fields is None:
            return problem(request, "this form holds more than 4 MiB", 413)
        return await run_in_threadpool(_guarded, request, lambda: handler(request, state_of(request).desk, fields))

    return endpoint


async def fields_of(request: Request) -> Form | None:
    """What a form holds; None of one that is too large."""
    data = b""
    async for piece in request.stream():
        data += piece
        if len(data) > MAX_FORM_BYTES:
            return None
    return dict(urllib.parse.parse_qsl(data.decode("utf-8", "replace"), keep_blank_values=True))


def _guarded(request: Request, answer: Callable[[], Response]) -> Response:
    try:
        return answer()
    except InputError as error:
        return problem(request, str(error), 400)
    except EC1Error as error:
        return problem(request, str(error), 500)
    except OSError as error:
        return problem(request, f"{error.filename or 'a file'}: {error.strerror or error}", 500)


def problem(request: Request, what: str, status: int) -> Response:
    """A page that says in one line what is wrong."""
    return render(request, "problem.html", status, what=what)


def after(path: str, said: str = "", **query: str) -> str:
    """Where a change leads: an address, with what it came to."""
    text = urllib.parse.urlencode({**query, **({"said": said} if said else {})})
    return f"{path}?{text}" if text else path


def needed(form: Form, name: str, what: str) -> str:
    """A field that must not be empty. Raises InputError."""
    value = form.get(name, "").replace("\r\n", "\n").strip()
    if not value:
        raise InputError(f"{what} is missing: go back and fill it in")
    return value
