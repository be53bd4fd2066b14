"""Errors as OpenAI's API words them, so that its clients raise what their users expect.

https://platform.openai.com/docs/guides/error-codes
"""

from starlette.responses import JSONResponse

from ec1.errors import EC1Error
from ec1.serving.versions import RefusedError

_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


def refusal(error: EC1Error) -> JSONResponse:
    """The answer to a request that is refused."""
    status = error.status if isinstance(error, RefusedError) else 503
    headers = {}
    if isinstance(error, RefusedError) and error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    kind = _KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")
    return JSONResponse(
        {"error": {"message": str(error), "type": kind, "param": None, "code": status}}, status, headers
    )
