"""The page of rows that a model proposed and the sandbox checked: looked at before they are admitted."""

from starlette.requests import Request
from starlette.responses import Response

from ec1.queries import doors, made
from ec1.queries.desk import Desk
from studio.web import Form, after, render


def overview(request: Request, desk: Desk) -> Response:
    return render(request, "make.html", generations=made.generations(desk))


def admit(request: Request, desk: Desk, form: Form) -> str:
    return after("/make", doors.admit_rows(desk, request.path_params["role"], request.path_params["digest"]))
