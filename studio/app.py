"""The application: which address shows or changes what.

Belongs here: routes, the headers of every answer, and what is told of addresses that are none. Does not: the pages.
"""

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from studio import data, forgetting, graph, judgement, make, nights, versions, vibe
from studio.web import FOLDER, HEADERS, StudioState, changed, render, seen, tried

_SOURCES = ("/data/snapshot/{bucket}/{digest}", "/data/dataset/{digest}")


def application(state: StudioState) -> ASGIApp:
    """Studio as an ASGI application, without the guard."""
    routes = [
        Route("/", seen(data.overview)),
        Route("/data/import", seen(data.import_form), methods=["GET"]),
        Route("/data/import", tried(data.import_preview), methods=["POST"]),
        Route("/data/compare", seen(data.compare)),
        *(Route(path, seen(data.rows)) for path in _SOURCES),
        *(Route(f"{path}/counts", seen(data.counts)) for path in _SOURCES),
        Route("/data/dataset/{digest}/scores", seen(data.scores)),
        *(Route(f"{path}/row/{{number:int}}", seen(data.row)) for path in _SOURCES),
        *(Route(f"{path}/row/{{number:int}}/forget", seen(forgetting.ask), methods=["GET"]) for path in _SOURCES),
        *(Route(f"{path}/row/{{number:int}}/forget", tried(forgetting.look), methods=["POST"]) for path in _SOURCES),
        Route("/forget", changed(forgetting.forget), methods=["POST"]),
        Route("/nights", seen(nights.overview)),
        Route("/nights/{night}", seen(nights.night)),
        Route("/runs", seen(nights.runs)),
        Route("/runs/{run:path}", seen(nights.run)),
        Route("/versions", seen(versions.overview)),
        Route("/versions/{tenant}/{role}", seen(versions.role)),
        Route("/versions/{tenant}/{role}/decide", changed(versions.decide), methods=["POST"]),
        Route("/versions/{tenant}/{role}/v{number:int}", seen(versions.version)),
        Route("/versions/{tenant}/{role}/vibe", seen(vibe.table), methods=["GET"]),
        Route("/versions/{tenant}/{role}/vibe", changed(vibe.change), methods=["POST"]),
        Route("/judge", seen(judgement.waiting), methods=["GET"]),
        Route("/judge", changed(judgement.judge), methods=["POST"]),
        Route("/vote", changed(judgement.vote), methods=["POST"]),
        Route("/judge/{row}", changed(judgement.decide), methods=["POST"]),
        Route("/generate", seen(judgement.generate), methods=["GET"]),
        Route("/generate/answer", judgement.answer, methods=["POST"]),
        Route("/graph", seen(graph.search)),
        Route("/graph/entity", seen(graph.entity), methods=["GET"]),
        Route("/graph/entity", changed(graph.correct), methods=["POST"]),
        Route("/graph/history", seen(graph.history), methods=["GET"]),
        Route("/graph/history", changed(graph.decide_history), methods=["POST"]),
        Route("/graph/changes", seen(graph.changes)),
        Route("/graph/review", seen(graph.review), methods=["GET"]),
        Route("/graph/review", changed(graph.decide), methods=["POST"]),
        Route("/graph/held", seen(graph.held), methods=["GET"]),
        Route("/graph/held", changed(graph.decide_held), methods=["POST"]),
        Route("/make", seen(make.overview), methods=["GET"]),
        Route("/make", changed(make.save), methods=["POST"]),
        Route("/make/new", seen(make.new)),
        Route("/make/{role}/{name}", seen(make.recipe), methods=["GET"]),
        Route("/make/{role}/{name}", changed(make.decide), methods=["POST"]),
        Route("/make/{role}/{digest}/admit", changed(make.admit), methods=["POST"]),
        Route("/keys", seen(lambda request, _: render(request, "keys.html"))),
        Mount("/static", StaticFiles(directory=FOLDER / "static")),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _unknown})
    app.state.studio = state
    return _with_headers(app)


async def _unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return render(request, "problem.html", error.status_code, what=f"there is no page at {request.url.path}")


def _with_headers(app: ASGIApp) -> ASGIApp:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def passed(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await app(scope, receive, passed)

    return answer
