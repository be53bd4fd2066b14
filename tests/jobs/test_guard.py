"""What another site's page can make a browser send is refused; what the UI and programs of this machine send is not."""

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from jobs.guard import Guard

HOST = "http://127.0.0.1:3000"
JSON = {"content-type": "application/json"}


async def page(request: Request) -> PlainTextResponse:
    return PlainTextResponse("reached")


async def socket(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.send_text("reached")
    await websocket.close()


def client(token: str | None = None) -> TestClient:
    routes = [
        Route("/", page),
        Route("/graphql", page, methods=["GET", "POST"]),
        Route("/report_asset_materialization", page, methods=["POST"]),
        WebSocketRoute("/graphql", socket),
    ]
    return TestClient(Guard(Starlette(routes=routes), token), base_url=HOST)


@pytest.mark.parametrize("host", ["127.0.0.1:3000", "localhost:3000", "[::1]:3000"])
def test_the_ui_itself_works(host: str) -> None:
    own = {"host": host, "origin": f"http://{host}", "sec-fetch-site": "same-origin"}
    assert client().get("/", headers={"host": host}).text == "reached"
    assert client().post("/graphql", headers={**own, **JSON}).text == "reached"
    with client().websocket_connect("/graphql", headers=own) as websocket:
        assert websocket.receive_text() == "reached"


def test_a_program_of_this_machine_needs_no_browsers_headers() -> None:
    assert client().post("/graphql", headers=JSON).status_code == 200


def test_a_link_may_open_a_page() -> None:
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client().get("/", headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "/", {"host": "evil.example"}),
        ("GET", "/", {"host": "127.0.0.1.evil.example"}),
        ("GET", "/", {"host": "[::1"}),
        ("GET", "/", {"host": ""}),
        ("GET", "/graphql?query=mutation{x}", {}),
        ("GET", "/graphql?query=mutation{x}", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}),
        ("HEAD", "/graphql?query=mutation{x}", {}),
        ("POST", "/graphql", {**JSON, "origin": "http://evil.example"}),
        ("POST", "/graphql", {**JSON, "origin": "null"}),
        ("POST", "/graphql", {**JSON, "origin": "http://127.0.0.1:4000"}),
        ("POST", "/graphql", {**JSON, "sec-fetch-site": "cross-site"}),
        ("POST", "/graphql", {**JSON, "sec-fetch-site": "same-site"}),
        ("POST", "/graphql", {"content-type": "text/plain"}),
        ("POST", "/graphql", {"content-type": "application/x-www-form-urlencoded"}),
        ("POST", "/graphql", {"content-type": "multipart/form-data; boundary=x"}),
        ("POST", "/report_asset_materialization", {"origin": "http://evil.example"}),
        ("POST", "/report_asset_materialization", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}),
    ],
)
def test_what_another_page_may_send_is_refused(method: str, path: str, headers: dict[str, str]) -> None:
    answer = client().request(method, path, headers=headers)
    assert answer.status_code == 403
    assert "reached" not in answer.text


@pytest.mark.parametrize(
    "headers", [{"origin": "http://evil.example"}, {"host": "evil.example"}, {"sec-fetch-site": "cross-site"}]
)
def test_websockets_are_asked_the_same(headers: dict[str, str]) -> None:
    with pytest.raises(WebSocketDisconnect), client().websocket_connect("/graphql", headers=headers):
        pass


def test_a_token_is_asked_of_everything_and_remembered() -> None:
    guarded = client("secret")
    assert guarded.get("/").status_code == 401
    assert guarded.get("/", headers={"authorization": "Bearer wrong"}).status_code == 401
    assert guarded.get("/", headers={"authorization": "Bearer secret"}).text == "reached"
    with pytest.raises(WebSocketDisconnect), guarded.websocket_connect("/graphql"):
        pass
    answer = guarded.get("/?token=secret", follow_redirects=False)
    assert answer.status_code == 303 and "token" not in answer.headers["location"]
    assert "HttpOnly" in answer.headers["set-cookie"] and "SameSite=strict" in answer.headers["set-cookie"]
    assert guarded.get("/").text == "reached"
