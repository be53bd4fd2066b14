"""What stands between a browser and Dagster's webserver: any page that the operator opens can send requests to it.

Belongs here: the rules, as one small ASGI application around another. Dagster's own server takes any Host (so a name
that an attacker points at 127.0.0.1 reaches it), any Origin, and mutations by GET.
See https://owasp.org/www-community/attacks/csrf and https://developer.mozilla.org/docs/Web/HTTP/Headers/Sec-Fetch-Site
"""

import hmac
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
COOKIE = "ec1_token"
GRAPHQL = "/graphql"


class Guard:
    """Lets through what the UI itself and programs on this machine send, and answers 403 to the rest.

    With a `token` each request must carry it: as `Authorization: Bearer`, or as the cookie that `/?token=...` sets.
    """

    def __init__(self, app: ASGIApp, token: str | None = None) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if reason := refused(scope, headers):
            await _refuse(scope, receive, send, 403, reason)
        elif self._token is None or self._carried(scope, headers):
            if self._token is not None and (given := _query(scope, "token")):
                await _remember(given, scope, receive, send)
            else:
                await self._app(scope, receive, send)
        else:
            await _refuse(scope, receive, send, 401, "this server asks for a token: open /?token=... once")

    def _carried(self, scope: Scope, headers: dict[str, str]) -> bool:
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            cookie = None
        given = (
            headers.get("authorization", "").removeprefix("Bearer "),
            cookie.value if cookie else "",
            _query(scope, "token"),
        )
        assert self._token is not None
        return any(hmac.compare_digest(each.encode(), self._token.encode()) for each in given)


def refused(scope: Scope, headers: dict[str, str]) -> str | None:
    """Why a request is not let through, or None."""
    host = headers.get("host", "")
    if _hostname(f"//{host}") not in LOOPBACK:
        return f"this server answers on this machine only, not as {host[:100]!r}"
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != host:
        return f"a page of {origin[:100]!r} may not use this server"
    reads = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
    visited = reads and headers.get("sec-fetch-mode") == "navigate" and not _query(scope, "query")
    # `none` is what the operator typed; a link from elsewhere may open a page and do nothing more.
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not visited:
        return "a page of another site may not use this server"
    if scope["type"] == "http" and scope["path"] == GRAPHQL:
        if reads and _query(scope, "query"):
            return "ask /graphql by POST: what a GET asks for could be a mutation"
        kind = headers.get("content-type", "").split(";")[0].strip().lower()
        # A form or plain text is what another site's page can send without being asked.
        if not reads and scope["method"] != "OPTIONS" and kind != "application/json":
            return "ask /graphql with Content-Type application/json"
    return None


def _hostname(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _query(scope: Scope, name: str) -> str:
    values = parse_qs(scope.get("query_string", b"").decode("latin-1")).get(name)
    return values[0] if values else ""


async def _remember(token: str, scope: Scope, receive: Receive, send: Send) -> None:
    """Put the token into a cookie and out of the address bar."""
    if scope["type"] == "websocket":
        await _refuse(scope, receive, send, 403, "give the token to a page first")
        return
    answer = RedirectResponse(scope["path"], 303)
    answer.set_cookie(COOKIE, token, httponly=True, samesite="strict")
    await answer(scope, receive, send)


async def _refuse(scope: Scope, receive: Receive, send: Send, status: int, reason: str) -> None:
    if scope["type"] == "websocket":
        await receive()
        # Before it is accepted: the browser sees a 403.
        await send({"type": "websocket.close", "code": 1008, "reason": reason})
        return
    await PlainTextResponse(f"{reason}\n", status)(scope, receive, send)
